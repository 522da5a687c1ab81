//! The built-in playbook: failures are distinguished, and an installation is complete or absent.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpucl::error::Result;
use gpucl::playbook::{self, StageReport};
use gpucl::render::Library;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::support::{Home, ShellHost, run, running_program};

struct Place {
    home: Home,
    environments: PathBuf,
    host: ShellHost,
}

impl Place {
    /// A host whose PATH has the usual tools but only the Python that `python3` says to be, if any.
    fn new(python3: Option<&str>) -> Self {
        let home = Home::new();
        let bin = home.folder.path().join("bin");
        fs_err::create_dir(&bin).unwrap();
        for folder in ["/usr/bin", "/bin"] {
            for entry in fs_err::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                if !name.starts_with("python") && name != "uv" && !bin.join(&name).is_symlink() {
                    fs_err::os::unix::fs::symlink(entry.path(), bin.join(name)).unwrap();
                }
            }
        }
        if let Some(text) = python3 {
            fs_err::write(bin.join("python3"), format!("#!/bin/sh\n{text}\n")).unwrap();
            fs_err::set_permissions(bin.join("python3"), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut host = ShellHost::new(&home, &["sh", "-s"]);
        host.path = bin.display().to_string();
        Self { environments: home.folder.path().join("environments"), home, host }
    }

    async fn run(&self, more: &[(&str, &str)]) -> Result<StageReport> {
        let playbook = playbook::load(&Library::default(), "ray-native").unwrap();
        let mut variables = BTreeMap::from([
            ("ray_version".to_owned(), "2.60.0".to_owned()),
            ("environments".to_owned(), self.environments.display().to_string()),
        ]);
        variables.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        run(&self.host, &playbook.stage("prepare", &variables, Duration::from_secs(120)).unwrap()).await
    }
}

/// The real Python of this machine, behind a script.
fn real_python() -> String {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join("python3"))
        .find(|path| path.is_file())
        .expect("these tests need python3");
    format!("exec '{}' \"$@\"", found.display())
}

#[tokio::test]
async fn missing_outdated_and_incomplete_pythons_are_distinguished() {
    let fake = |version: &str| {
        format!("case \"$*\" in *sys.version_info*) echo '{version} /nowhere/python3';; *) exit 1;; esac")
    };
    let cases = [
        (None, "python3 is missing", "sudo apt-get install python3 python3-venv"),
        (
            Some(fake("3.8.10")),
            "python3 is too old (3.8.10): Ray 2.60.0 needs 3.10 to 3.13",
            "sudo apt-get install python3.12",
        ),
        (Some(fake("3.14.0")), "python3 is too new (3.14.0)", "sudo apt-get install python3.13"),
        (
            Some(fake("3.12.3")),
            "python3 (3.12.3) cannot make environments",
            "sudo apt-get install python3 python3-venv",
        ),
    ];
    for (python, says, hint) in cases {
        let place = Place::new(python.as_deref());
        let error = place.run(&[]).await.unwrap_err();
        assert!(error.causes()[0].starts_with(says), "{error}");
        assert!(error.hints()[0].starts_with(hint), "{:?}", error.hints());
        assert!(!place.environments.exists());
    }
}

#[tokio::test]
async fn too_little_disk_space_is_reported_with_path_and_free_space() {
    let place = Place::new(Some(&real_python()));
    let error = place.run(&[("disk_needed_mib", "999999999")]).await.unwrap_err();
    assert!(error.causes()[0].contains("MiB are free in"), "{error}");
    assert!(error.causes()[0].contains(place.environments.to_str().unwrap()), "{error}");
    assert!(error.hints()[0].contains("df -h"), "{:?}", error.hints());
}

impl Place {
    /// Puts a stand-in in the place of a tool of this machine.
    fn tool(&self, name: &str, text: &str) {
        let path = self.home.folder.path().join("bin").join(name);
        fs_err::remove_file(&path).unwrap();
        fs_err::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// What `df -Pi` prints of a file system, and otherwise the real one.
fn df_of_files(line: &str) -> String {
    format!(
        "case \"$*\" in *-Pi*) echo 'Filesystem Inodes IUsed IFree IUse% Mounted on'; echo '{line}' ;; *) exec /bin/df \"$@\" ;; esac"
    )
}

#[tokio::test]
async fn a_file_system_without_room_for_the_files_is_reported_before_the_download() {
    let place = Place::new(Some(&real_python()));
    place.tool("df", &df_of_files("tmpfs 6000 12 5988 1% /home/my 50% disk"));
    let error = place.run(&[]).await.unwrap_err();
    assert_eq!(error.doing(), "prepare here: step `check the disk`");
    let folder = place.environments.display();
    assert_eq!(
        error.causes(),
        [format!("only 5988 more files fit on the file system of {folder}, and the Ray environment has 21000")]
    );
    assert!(error.hints()[0].contains("df -i"), "{:?}", error.hints());
}

#[tokio::test]
async fn a_file_system_that_does_not_count_files_is_no_obstacle() {
    // btrfs, and what busybox prints of it.
    for line in ["/dev/sda1 0 0 0 - /", "/dev/sda1 0 0 0 0% /"] {
        let place = Place::new(Some(&real_python()));
        place.tool("df", &df_of_files(line));
        // The next step is reached: its lock cannot be a folder.
        fs_err::create_dir_all(place.environments.join(".lock-ray-2.60.0")).unwrap();
        let error = place.run(&[]).await.unwrap_err();
        assert_eq!(error.doing(), "prepare here: step `create the Ray environment`", "{line}: {error}");
    }
}

#[tokio::test]
async fn a_folder_whose_programs_cannot_be_run_is_reported_before_the_download() {
    let place = Place::new(Some(&real_python()));
    // As on a file system that is mounted with `noexec`: the file is there, and cannot be run.
    place.tool("chmod", "exec /bin/chmod 600 \"$2\"");
    let error = place.run(&[]).await.unwrap_err();
    assert_eq!(error.doing(), "prepare here: step `check the disk`");
    assert!(error.causes()[0].starts_with(&format!("programs in {} cannot be run", place.environments.display())));
    assert!(error.hints()[0].starts_with("how it is mounted: findmnt -T "), "{:?}", error.hints());
    assert_eq!(fs_err::read_dir(&place.environments).unwrap().count(), 0, "something is left");
}

/// The list of packages that pip is about to install has a name like that of a known failure.
#[tokio::test]
async fn a_disk_that_fills_up_is_the_reason_whatever_pip_printed_before() {
    // A Python whose environments have a pip that fails like this.
    let python = "case \"$*\" in *sys.version_info*) echo \"3.12.3 $0\"; exit ;; *ensurepip*) exit ;; esac\n\
                  for environment; do :; done\nmkdir -p \"$environment/bin\"\n\
                  cat >\"$environment/bin/python\" <<'END'\n#!/bin/sh\n\
                  case \"$*\" in *'pip install'*ray*) ;; *) exit 1 ;; esac\n\
                  echo 'Installing collected packages: pyarrow, pyasn1-modules, ray'\n\
                  echo \"ERROR: Could not install packages due to an OSError: [Errno $failure: '/x/arrow module'\" >&2\n\
                  exit 1\nEND\nchmod 700 \"$environment/bin/python\"";
    for (failure, says) in [
        ("28] No space left on device", "the disk is full, in bytes or in number of files"),
        ("122] Disk quota exceeded", "the disk quota is used up, in bytes or in number of files"),
    ] {
        let place = Place::new(Some(&python.replace("$failure", failure)));
        let error = place.run(&[]).await.unwrap_err();
        assert_eq!(error.causes()[0], says, "{error}");
    }
}

#[tokio::test]
async fn an_unreachable_index_is_reported_and_leaves_no_environment() {
    let mut place = Place::new(Some(&real_python()));
    // The environment's own pip must meet the dead index, too: the variables come with the shell.
    let shell = place.home.folder.path().join("shell");
    let text = "export PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_FIND_LINKS=\nexec sh -s";
    fs_err::write(&shell, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs_err::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).unwrap();
    place.host.shell = vec![shell.display().to_string()];
    let begun = Instant::now();
    let error = place.run(&[]).await.unwrap_err();
    assert_eq!(error.causes()[0], "the package index cannot be reached", "{error}");
    assert!(error.hints()[0].contains("PIP_INDEX_URL"), "{:?}", error.hints());
    assert!(begun.elapsed() < Duration::from_secs(90));
    let left: Vec<_> = fs_err::read_dir(&place.environments).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".lock-ray-2.60.0"]);
}

/// Every path below a folder, without what lies below one of these.
fn paths_but(folder: &Path, but: &[&Path]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if but.contains(&path.as_path()) {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            found.extend(paths_but(&path, but));
        }
        found.push(path);
    }
    found
}

impl Place {
    /// Gives the shell an empty HOME and TMPDIR of its own; returns both.
    fn with_own_home(mut self) -> (Self, PathBuf) {
        let own = self.home.folder.path().join("own");
        fs_err::create_dir_all(own.join("tmp")).unwrap();
        let shell = self.home.folder.path().join("shell");
        let text = format!("export HOME='{0}' TMPDIR='{0}/tmp'\nexec sh -s", own.display());
        fs_err::write(&shell, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs_err::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.host.shell = vec![shell.display().to_string()];
        (self, own)
    }
}

fn check_environment(report: &StageReport, environments: &Path) {
    let environment = PathBuf::from(&report.values["ray_env"]);
    assert_eq!(environment.parent(), Some(environments));
    assert_eq!(
        fs_err::read_to_string(environment.join(".complete")).unwrap(),
        "ray 2.60.0\nextras default,train,tune,serve\n"
    );
    assert!(!environment.join(".tmp").exists());
    assert!(report.values["python"].starts_with("3.1"), "{:?}", report.values);
}

/// The real thing, from the package index that this machine is set up for. A testbed's, for its minute and a half of
/// installing; `.ci/run` runs it.
#[tokio::test]
#[ignore = "testbed"]
async fn an_interrupted_install_is_repeated_once_for_two_clusters() {
    let (place, own) = Place::new(Some(&real_python())).with_own_home();
    let cut = async {
        let begun = Instant::now();
        let installed = || {
            let environment = fs_err::read_dir(&place.environments).ok()?.find_map(|entry| {
                let path = entry.ok()?.path();
                path.is_dir().then_some(path)
            })?;
            let library = fs_err::read_dir(environment.join("lib")).ok()?.next()?.ok()?.path();
            Some(fs_err::read_dir(library.join("site-packages")).ok()?.count())
        };
        while installed().unwrap_or(0) < 8 {
            assert!(begun.elapsed() < Duration::from_secs(120), "the installation never began");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        kill_process(running_program(&place.home).1, Signal::KILL).unwrap();
    };
    let (first, ()) = tokio::join!(place.run(&[]), cut);
    assert!(first.unwrap_err().to_string().contains("disappeared without a result"));

    // Two clusters of one user, at the same time.
    let (mut other, _) = Place::new(Some(&real_python())).with_own_home();
    other.environments.clone_from(&place.environments);
    let (one, two) = tokio::join!(place.run(&[]), other.run(&[]));
    let (one, two) = (one.unwrap(), two.unwrap());
    check_environment(&one, &place.environments);
    assert_eq!(one.values, two.values);
    let again = place.run(&[]).await.unwrap();
    assert!(again.skipped_as_unchanged && again.values == one.values);
    assert_eq!(paths_but(&own, &[]), [own.join("tmp")], "something was written outside the environments");
}

/// `uv`, when it is there, makes the same. A testbed's, since it installs `uv` and Ray; `.ci/run` runs it.
#[tokio::test]
#[ignore = "testbed"]
async fn uv_creates_the_same_environment() {
    let (place, own) = Place::new(Some(&real_python())).with_own_home();
    let folder = place.home.folder.path().join("uv");
    let python = std::process::Command::new("python3").args(["-m", "venv"]).arg(&folder).status().unwrap();
    assert!(python.success());
    let pip = std::process::Command::new(folder.join("bin/pip")).args(["install", "-q", "uv"]).status().unwrap();
    assert!(pip.success());
    fs_err::os::unix::fs::symlink(folder.join("bin/uv"), place.home.folder.path().join("bin/uv")).unwrap();
    let report = place.run(&[]).await.unwrap();
    assert!(report.facts.uv.is_some());
    check_environment(&report, &place.environments);
    assert_eq!(paths_but(&own, &[]), [own.join("tmp")], "something was written outside the environments");
}

/// An index may hold anything under uv's name and version: only what gpucl knows is run.
#[test]
fn another_uv_than_the_known_one_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let wheel = "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1] + '/uv-0.13.9-py3-none-any.whl', 'w') as wheel:\n    \
                 meta = 'uv-0.13.9.dist-info/'\n    \
                 wheel.writestr(meta + 'METADATA', 'Metadata-Version: 2.1\\nName: uv\\nVersion: 0.13.9\\n')\n    \
                 wheel.writestr(meta + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n    \
                 wheel.writestr(meta + 'RECORD', '')\n    \
                 wheel.writestr('uv-0.13.9.data/scripts/uv', '#!/bin/sh\\n')\n";
    fs_err::create_dir(at("index")).unwrap();
    let made = std::process::Command::new("python3").args(["-c", wheel]).arg(at("index")).status().unwrap();
    assert!(made.success());
    assert!(std::process::Command::new("python3").args(["-m", "venv"]).arg(at("env")).status().unwrap().success());
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/playbooks/lib/uv.sh");
    let fetch = |library: &Path| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", ". \"$0\"; fetch_uv \"$1\" \"$2\""]).arg(library).arg(at("env")).arg(at("uv"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PIP_")) {
            shell.env_remove(name);
        }
        shell.env("HOME", folder.path()).env("PIP_FIND_LINKS", at("index"));
        shell.env("PIP_INDEX_URL", "file:///nowhere").status().unwrap().success()
    };
    assert!(!fetch(Path::new(library)) && !at("uv/bin/uv").exists(), "what the index has was taken");
    // With its own digest it is: nothing else stood in the way.
    let program = "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())";
    let mut python = std::process::Command::new("python3");
    let digest = python.args(["-c", program]).arg(at("index/uv-0.13.9-py3-none-any.whl")).output().unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap();
    let text = fs_err::read_to_string(library).unwrap();
    let (before, after) = text.split_once("uv_digests=\"").unwrap();
    fs_err::write(at("uv.sh"), format!("{before}uv_digests=\"{}{after}", digest.trim())).unwrap();
    assert!(fetch(&at("uv.sh")) && at("uv/bin/uv").exists());
}

/// A job's client of the cluster's own store would ask the proxy for it: that of the spec, or of the shell of `up`.
#[test]
fn nodes_reach_the_clusters_own_servers_past_a_proxy() {
    let program = "import json, sys; sys.path.insert(0, sys.argv[1]); import host\n\
                   environment = json.loads(sys.argv[2]); host.past_proxy(environment, sys.argv[3:]); print(json.dumps(environment))";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/ray-native");
    let passed = |environment: &serde_json::Value, own: &[&str]| -> serde_json::Value {
        let output = std::process::Command::new("python3")
            .args(["-B", "-c", program, folder, &environment.to_string(), "ray", "start"])
            .args(own)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let words = ["--address", "10.0.0.1:6379", "--node-ip-address", "10.0.0.2"];
    let got = passed(&json!({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.org"}), &words);
    assert_eq!(got["no_proxy"], "example.org,localhost,127.0.0.1,::1,10.0.0.1,10.0.0.2");
    assert_eq!(got["no_proxy"], got["NO_PROXY"]);
    let got = passed(&json!({"http_proxy": "x"}), &["--address", "[fd00::1]:6379", "--node-ip-address", "fd00::2"]);
    assert_eq!(got["no_proxy"], "localhost,127.0.0.1,::1,fd00::1,fd00::2");
    assert_eq!(passed(&json!({"HOME": "/x"}), &words), json!({"HOME": "/x"}));
}
