//! `gpucl doctor`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::reserving::{self, ProviderArgs};
use crate::cluster::sites::OpenSite;
use crate::error::{Error, ErrorKind};
use crate::host::LocalHost;
use crate::playbook::{self, Capacity, Facts, RunAs};
use crate::provider::SiteFinding;
use crate::util::{child, human};

/// Disk space for a Ray environment, including its installation.
const ENVIRONMENT_BYTES: u64 = 1536 << 20;

/// The files of a Ray environment, with those of its installation, as `ray-native` requires them.
const ENVIRONMENT_FILES: u64 = 21_000;

/// The arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    provider: ProviderArgs,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    /// What needs it, such as `local + native`.
    needed_by: String,
    /// The item that was checked.
    what: &'static str,
    state: State,
    /// What was found.
    saw: String,
    /// A command that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Present and usable.
    Ok,
    /// Required, but absent or unusable.
    Missing,
    /// Absent, and not required.
    Optional,
}

const LOCAL: &str = "local + native";

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    if !args.provider.is_open() {
        return of_sites(app, &args.provider).await;
    }
    let host = LocalHost::new("local", nearest_folder(&app.paths.cache), app.host_environment())?;
    let facts = playbook::facts(&host).await?;
    let path = app.variable("PATH").unwrap_or_default();
    let mut findings = vec![python(&facts), venv(&facts).await, tools(path), disk(app, &facts), memory(&facts)];
    findings.extend(file_system(app));
    findings.push(environments(&app.paths.cache.join("environments")));
    findings.push(uv(&facts));
    findings.push(gpus(&facts));
    findings.push(ssh(path));
    findings.push(docker(&facts));
    let works = findings.iter().all(|finding| finding.needed_by != LOCAL || finding.state != State::Missing);
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "doctor", "local_native": works, "facts": facts, "findings": findings,
        }));
    } else {
        show(app, &findings);
        app.ui.data(if works {
            "the local provider with the native runtime works here"
        } else {
            "the local provider with the native runtime does not work here yet"
        });
    }
    Ok(if works { exit_code::DONE } else { exit_code::FAILED })
}

/// Inspects a provider's sites.
async fn of_sites(app: &App, args: &ProviderArgs) -> anyhow::Result<u8> {
    let sites = args.sites(app, app.plain_events())?;
    let asked = sites.ask(async |site| site.provider.inspect_site().await).await.or_none("inspect the sites")?;
    reserving::report(app, &asked.failed);
    let mut works = asked.failed.is_empty();
    for (site, found) in asked.found {
        works &= of_site(app, site, found)?;
    }
    Ok(if works { exit_code::DONE } else { exit_code::FAILED })
}

/// Shows what was found at a site; whether clusters work there.
fn of_site(app: &App, site: &OpenSite, found: Vec<SiteFinding>) -> anyhow::Result<bool> {
    let name = &site.source.provider;
    if found.is_empty() {
        return Err(Error::new(ErrorKind::Unsupported, format!("inspect the site of the provider `{name}`"))
            .because("there is nothing to inspect there")
            .hint("gpucl doctor   # inspects this machine")
            .into());
    }
    let state = |works| match works {
        Some(true) => State::Ok,
        Some(false) => State::Missing,
        None => State::Optional,
    };
    let finding = |found: SiteFinding| Finding {
        needed_by: site.name().to_owned(),
        what: found.what,
        state: state(found.works),
        saw: found.saw,
        fix: found.fix,
    };
    let findings: Vec<Finding> = found.into_iter().map(finding).collect();
    let works = findings.iter().all(|finding| finding.state != State::Missing);
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "doctor_site", "provider": name, "place": site.name(), "works": works, "findings": findings,
        }));
    } else {
        show(app, &findings);
        let at = if site.name() == name { String::new() } else { format!(" at {}", site.name()) };
        app.ui.data(format_args!(
            "clusters of the provider `{name}`{at} {}",
            if works { "work there" } else { "do not work there yet" }
        ));
    }
    Ok(works)
}

fn show(app: &App, findings: &[Finding]) {
    let mut table = Table::new(&["needed by", "what", "state", "saw"]);
    for finding in findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Missing => "missing",
            State::Optional => "optional",
        };
        table.row([finding.needed_by.as_str(), finding.what, state, &finding.saw]);
    }
    app.ui.data(table);
    for finding in findings {
        if let Some(fix) = &finding.fix {
            app.ui.data(format_args!("fix for {}: {fix}", finding.what));
        }
    }
}

fn python(facts: &Facts) -> Finding {
    let (state, saw) = match &facts.python {
        Some(python) if python.fits_ray() => (State::Ok, format!("{} ({})", python.version, python.path)),
        Some(python) => (State::Missing, format!("{} ({}); Ray needs 3.10 to 3.13", python.version, python.path)),
        None => (State::Missing, "none".to_owned()),
    };
    let fix = (state == State::Missing).then(|| "sudo apt-get install python3 python3-venv".to_owned());
    Finding { needed_by: LOCAL.to_owned(), what: "python3", state, saw, fix }
}

/// Whether that Python can make virtual environments. Only running it shows: some systems ship half of `venv`.
async fn venv(facts: &Facts) -> Finding {
    let mut finding =
        Finding { needed_by: LOCAL.to_owned(), what: "venv", state: State::Ok, saw: String::new(), fix: None };
    if facts.uv.is_some() {
        "not needed: uv makes the environment".clone_into(&mut finding.saw);
        return finding;
    }
    let asked = match &facts.python {
        Some(python) => {
            let mut ask = child::async_command(&python.path);
            ask.args(["-B", "-c", "import venv, ensurepip"]).kill_on_drop(true);
            let answer = tokio::time::timeout(std::time::Duration::from_secs(20), ask.output()).await;
            answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status.success()))
        }
        None => false,
    };
    if asked {
        "venv and ensurepip are present".clone_into(&mut finding.saw);
    } else {
        finding.state = State::Missing;
        "venv or ensurepip is missing".clone_into(&mut finding.saw);
        finding.fix = Some("sudo apt-get install python3-venv".to_owned());
    }
    finding
}

fn tools(path: &str) -> Finding {
    let needed = ["sh", "flock", "setsid", "timeout", "base64", "grep", "awk"];
    let missing: Vec<&str> = needed.into_iter().filter(|tool| find(path, tool).is_none()).collect();
    let (state, saw, fix) = if missing.is_empty() {
        (State::Ok, needed.join(", "), None)
    } else {
        let fix = "sudo apt-get install util-linux coreutils grep mawk".to_owned();
        (State::Missing, format!("without {}", missing.join(", ")), Some(fix))
    };
    Finding { needed_by: LOCAL.to_owned(), what: "shell tools", state, saw, fix }
}

fn disk(app: &App, facts: &Facts) -> Finding {
    let enough = facts.disk_free >= ENVIRONMENT_BYTES || !complete(&app.paths.cache.join("environments")).is_empty();
    let folder = nearest_folder(&app.paths.cache);
    Finding {
        needed_by: LOCAL.to_owned(),
        what: "disk",
        state: if enough { State::Ok } else { State::Missing },
        saw: format!("{} free in {}", human::bytes(facts.disk_free), folder.display()),
        fix: (!enough).then(|| format!("df -h {}   # and free 1.5 GiB", folder.display())),
    }
}

/// Whether the file system of the environments takes so many files, and runs programs.
fn file_system(app: &App) -> Vec<Finding> {
    let folder = nearest_folder(&app.paths.cache);
    // What cannot be asked is found out by `up`.
    let Ok(system) = rustix::fs::statvfs(&folder) else { return Vec::new() };
    let is_made = !complete(&app.paths.cache.join("environments")).is_empty();
    let finding = |what, works, saw, fix| Finding {
        needed_by: LOCAL.to_owned(),
        what,
        state: if works { State::Ok } else { State::Missing },
        saw,
        fix: Some(fix).filter(|_| !works),
    };
    let mut findings = Vec::new();
    // Some have no fixed number of files, and say 0.
    if system.f_files > 0 {
        let saw = format!("{} more fit on the file system of {}", system.f_favail, folder.display());
        let fix =
            format!("df -i {}   # and remove files there: Ray's environment has {ENVIRONMENT_FILES}", folder.display());
        findings.push(finding("files", is_made || system.f_favail >= ENVIRONMENT_FILES, saw, fix));
    }
    let runs = !system.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC);
    let saw = match runs {
        true => format!("can be run from {}", folder.display()),
        false => format!("cannot be run from {}: its file system is mounted with `noexec`", folder.display()),
    };
    let fix = "export XDG_CACHE_HOME=FOLDER   # a folder whose programs may be run, for Ray's environment".to_owned();
    findings.push(finding("programs", runs, saw, fix));
    findings
}

fn memory(facts: &Facts) -> Finding {
    // An idle head and one worker take about 1 GiB.
    let Capacity { memory, memory_limit, .. } = facts.capacity(RunAs::Processes);
    let limit = memory_limit.map(|limit| format!(" ({limit})")).unwrap_or_default();
    let enough = memory >= 2 << 30;
    Finding {
        needed_by: LOCAL.to_owned(),
        what: "memory",
        state: if enough { State::Ok } else { State::Missing },
        saw: format!("{}{limit}; {} of shared memory free", human::bytes(memory), human::bytes(facts.shm_free)),
        fix: (!enough).then(|| "free -h   # a head and one worker need 2 GiB".to_owned()),
    }
}

fn environments(folder: &Path) -> Finding {
    let made = complete(folder);
    let (state, saw) = if made.is_empty() {
        (State::Optional, "none yet; the first `gpucl up` makes one".to_owned())
    } else {
        (State::Ok, made.join(", "))
    };
    Finding { needed_by: LOCAL.to_owned(), what: "Ray environment", state, saw, fix: None }
}

fn uv(facts: &Facts) -> Finding {
    let (state, saw) = match &facts.uv {
        Some(version) => (State::Ok, version.clone()),
        None => (State::Optional, "none; venv and pip do the same, but slower".to_owned()),
    };
    Finding { needed_by: LOCAL.to_owned(), what: "uv", state, saw, fix: None }
}

fn gpus(facts: &Facts) -> Finding {
    let names: Vec<String> = facts
        .gpus
        .iter()
        .map(|gpu| {
            let name = gpu.name.clone().unwrap_or_else(|| format!("{:?} {}", gpu.vendor, gpu.device_id));
            let driver = gpu.driver.as_deref().unwrap_or("no driver");
            format!("{name} at {} ({driver})", gpu.pci)
        })
        .collect();
    let (state, saw) = if names.is_empty() {
        (State::Optional, "none on the PCI bus; a spec may declare logical GPUs".to_owned())
    } else {
        (State::Ok, names.join(", "))
    };
    Finding { needed_by: "GPU workers".to_owned(), what: "GPUs", state, saw, fix: None }
}

fn ssh(path: &str) -> Finding {
    let (state, saw, fix) = match find(path, "ssh") {
        Some(path) => (State::Ok, path.display().to_string(), None),
        None => (State::Missing, "none".to_owned(), Some("sudo apt-get install openssh-client".to_owned())),
    };
    Finding { needed_by: "hosts by SSH".to_owned(), what: "ssh client", state, saw, fix }
}

fn docker(facts: &Facts) -> Finding {
    let here = facts.docker.as_ref().map_or_else(|| "none".to_owned(), |version| format!("docker {version}"));
    Finding {
        needed_by: "docker runtime".to_owned(),
        what: "docker",
        state: if facts.docker.is_some() { State::Ok } else { State::Optional },
        // This runtime runs nothing on this machine: `up` installs the engine on hosts that are reached by SSH.
        saw: format!("{here}; not needed here, `up` installs it on SSH hosts"),
        fix: None,
    }
}

/// The environments whose installation is complete.
fn complete(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut names: Vec<String> = entries
        .filter(|path| path.join(".complete").is_file())
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The nearest existing folder: this one, or an ancestor.
fn nearest_folder(folder: &Path) -> PathBuf {
    folder.ancestors().find(|folder| folder.is_dir()).unwrap_or_else(|| Path::new("/")).to_path_buf()
}

/// Finds a command on the PATH.
fn find(path: &str, command: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    std::env::split_paths(path).map(|folder| folder.join(command)).find(|candidate| {
        candidate.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}
