//! The settings, read strictly.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::options;
use crate::host::SshTarget;
use crate::provider::{FieldError, Packages, settings};
use crate::util::duration::SpecDuration;

/// The time of a job, unless the spec sets it, in hours.
const USUAL_HOURS: f64 = 3.0;

/// How a site takes the number of GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GpuOption {
    /// `--gpus-per-node`.
    #[default]
    GpusPerNode,
    /// `--gres=gpu:…`.
    Gres,
    /// `--gpus-per-task`, with one task per node.
    GpusPerTask,
}

/// A number of GPUs, or a type and a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Gpus {
    /// Any GPUs: `2`.
    Count(u32),
    /// GPUs of a type of the site: `a100:2`.
    Typed(String),
}

impl Gpus {
    /// As Slurm takes it: `2`, `a100:2`.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Typed(text) if text.contains(':') => text.clone(),
            Self::Typed(kind) => format!("{kind}:1"),
        }
    }

    /// The type, if given, and the number.
    pub(super) fn parts(&self) -> (Option<String>, u32) {
        match self {
            Self::Count(count) => (None, *count),
            Self::Typed(text) => match text.rsplit_once(':') {
                Some((kind, count)) => (Some(kind.to_owned()), count.parse().unwrap_or(1)),
                None => (Some(text.clone()), 1),
            },
        }
    }
}

/// The settings under `provider:` beside `name`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("moved" = {
    "save": "every cluster has it now: `end: {save: [{from: results, to: ~/run1}]}` beside `provider`",
    "warning": "every cluster has it now: `end: {warning: 5m}` beside `provider`"
}))]
#[schemars(extend("asks_nothing" = ["host", "user", "port", "host_key", "account", "partition", "qos", "constraint", "reservation", "exclusive", "hours", "gpus", "gpu_option", "cpus", "memory", "sbatch", "profile", "allocation", "queue"]))]
pub(super) struct Settings {
    /// The login machine: a name, an address, or an alias of `~/.ssh/config`, also as `USER@NAME`; `local` on that
    /// machine itself.
    pub(super) host: Option<String>,
    /// The user to log in as; from your SSH configuration when absent.
    pub(super) user: Option<String>,
    /// The port of its SSH server; from your SSH configuration when absent.
    #[schemars(range(min = 1, max = 65535))]
    pub(super) port: Option<u16>,
    /// The private key to log in with; your SSH agent and configuration when absent.
    #[schemars(extend("asks" = {"rule": "key"}))]
    pub(super) identity_file: Option<PathBuf>,
    /// The login machine's public key, `ssh-ed25519 AAAA…`, if known before the first connection.
    pub(super) host_key: Option<String>,
    /// The account that is charged: `def-me`.
    pub(super) account: Option<String>,
    /// The partition; the site's default when absent.
    pub(super) partition: Option<String>,
    /// The quality of service.
    pub(super) qos: Option<String>,
    /// Features that the nodes must have: `a100&nvlink`.
    pub(super) constraint: Option<String>,
    /// An existing reservation of the site to run in.
    pub(super) reservation: Option<String>,
    /// Nobody else's job may run on the nodes.
    pub(super) exclusive: bool,
    /// The job's time limit in hours; default: 3.
    #[schemars(range(min = 0.01, max = 720), extend("examples" = [24, 0.5]))]
    pub(super) hours: Option<f64>,
    /// The GPUs of each node: a number, or a type of the site and a number: `2`, `a100:2`.
    pub(super) gpus: Option<Gpus>,
    /// How the site takes that number; default: `gpus-per-node`.
    pub(super) gpu_option: GpuOption,
    /// The processors of each node; the site's default when absent.
    #[schemars(range(min = 1))]
    pub(super) cpus: Option<u32>,
    /// The memory of each node: `32GiB`, or `all`; the site's default when absent.
    pub(super) memory: Option<String>,
    /// The environment modules to load before Python is looked for, in order: `StdEnv/2023`, `python/3.12`, `arrow`.
    #[schemars(extend("asks" = {"rule": "modules"}))]
    pub(super) modules: Vec<String>,
    /// Where Python packages come from: `index` (the network), `site` (the site's own wheels), or a folder of wheels;
    /// default: `index`.
    #[schemars(extend("asks" = {"class": "privilege", "says": "Python packages from the folder {}, run as you on the Slurm cluster", "unless": ["index", "site"]}))]
    pub(super) packages: Option<String>,
    /// Where the Python environment is made: `node` (on each node's own disk, anew for each job), `home` (once, in your
    /// home folder), or a folder on shared storage; default: `node`. A folder that is a Python environment with Ray (conda,
    /// virtualenv) is used as it is.
    #[schemars(extend("asks" = {"rule": "saved_to"}))]
    pub(super) environment: Option<String>,
    /// More options of `sbatch`, each like `--mail-type=END`.
    pub(super) sbatch: Vec<String>,
    /// A site's conventions as defaults for the rest: `alliance`.
    pub(super) profile: Option<String>,
    /// The number of a running allocation of yours (`salloc`) to start in, instead of submitting a job. In a shell of
    /// `salloc`, with `host: local`, it is the shell's own when absent.
    #[schemars(range(min = 1))]
    pub(super) allocation: Option<u64>,
    /// How long `up` waits in the queue; default: 24h. The job stays in the queue after that.
    pub(super) queue: Option<SpecDuration>,
}

/// One entry of `hosts:`: a node of the job. All nodes are alike, so that an entry has no settings.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HostSettings {}

impl Settings {
    /// The time limit in minutes, as Slurm counts; at least one.
    pub(super) fn minutes(&self) -> u64 {
        let hours = self.hours.unwrap_or(USUAL_HOURS);
        ((hours * 60.0).ceil() as u64).max(1)
    }

    /// The login machine; `None` when it is this one.
    pub(super) fn login(&self) -> Option<SshTarget> {
        let host = self.host.as_deref().filter(|host| *host != "local")?;
        // As people write it for `ssh`.
        let (user, node) = host.split_once('@').map_or((None, host), |(user, node)| (Some(user.to_owned()), node));
        Some(SshTarget {
            node: node.to_owned(),
            user: self.user.clone().or(user),
            port: self.port,
            identity_file: self.identity_file.clone(),
            host_key: self.host_key.clone(),
            ..SshTarget::default()
        })
    }

    /// Where Python packages come from.
    pub(super) fn packages(&self) -> Packages {
        match self.packages.as_deref() {
            None | Some("index") => Packages::Index,
            Some("site") => Packages::Site,
            Some(folder) => Packages::Folder(folder.to_owned()),
        }
    }

    /// The memory of a node as Slurm takes it; `None` for the site's default.
    pub(super) fn memory(&self) -> Result<Option<String>, String> {
        match self.memory.as_deref() {
            None => Ok(None),
            // Slurm's word for all memory of a node.
            Some("all") => Ok(Some("0".to_owned())),
            Some(text) => bytes(text).map(|bytes| Some(format!("{}M", bytes.div_ceil(1 << 20)))).ok_or_else(|| {
                format!("`{text}` is not an amount of memory: write it like `32GiB` or `64000MiB`, or `all`")
            }),
        }
    }

    /// Fills in what a profile says and the spec does not.
    fn with_profile(mut self) -> Result<Self, FieldError> {
        match self.profile.as_deref() {
            None => Ok(self),
            // The Digital Research Alliance of Canada: no internet on compute nodes, wheels of its own, and pyarrow from
            // a module that is loaded before the environment is made.
            Some("alliance") => {
                if self.modules.is_empty() {
                    self.modules = ["StdEnv/2023", "gcc", "python/3.12", "arrow"].map(str::to_owned).to_vec();
                }
                self.packages.get_or_insert_with(|| "site".to_owned());
                Ok(self)
            }
            Some(other) => Err(FieldError {
                path: "profile".to_owned(),
                message: format!("`{other}` is not a known profile"),
                known: vec!["alliance".to_owned()],
            }),
        }
    }
}

/// `32GiB`, `32GB`, `64000MiB`, `64000M`, `32G` in bytes. As Slurm counts, a G is 1024 M.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "M" | "MB" | "MiB" => 20,
        "G" | "GB" | "GiB" => 30,
        "T" | "TB" | "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_shl(shift).filter(|bytes| *bytes > 0)
}

/// The keys that an earlier gpucl had here, and every provider has now in `end`.
const MOVED: [&str; 2] = ["save", "warning"];

/// Reads the settings under `provider:`, with those of a profile. A cluster of an earlier gpucl can still be taken down: what
/// has moved is left out.
pub(super) fn read(value: &Value) -> Result<Settings, Vec<FieldError>> {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.retain(|key, _| !MOVED.contains(&key.as_str()));
    }
    settings::read::<Settings>(&value, "")?.with_profile().map_err(|error| vec![error])
}

/// Returns every mistake in these settings; offline.
pub(super) fn check(value: &Value, hosts: &[Value]) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = Vec::new();
    for (index, host) in hosts.iter().enumerate() {
        errors.extend(settings::read::<HostSettings>(host, &format!("hosts[{index}]")).err().unwrap_or_default());
    }
    let settings = match read(value) {
        Ok(settings) => settings,
        Err(wrong) => {
            errors.extend(wrong);
            return errors;
        }
    };
    let mut refuse = |path: &str, message: String| {
        errors.push(FieldError { path: path.to_owned(), message, known: Vec::new() });
    };
    if settings.host.is_none() {
        refuse("host", "is missing: the cluster's login machine, or `local` on that machine itself".to_owned());
    }
    if let Some(login) = settings.login() {
        for (key, message) in login.faults() {
            refuse(if key == "node" { "host" } else { key }, message.to_owned());
        }
    }
    for (key, text) in [
        ("account", &settings.account),
        ("partition", &settings.partition),
        ("qos", &settings.qos),
        ("constraint", &settings.constraint),
        ("reservation", &settings.reservation),
    ] {
        if let Some(text) = text.as_deref().filter(|text| !is_word(text)) {
            refuse(key, format!("`{}` is not one word that Slurm takes", text.escape_debug()));
        }
    }
    if let Some(gpus) = &settings.gpus {
        let (kind, count) = gpus.parts();
        let is_typed = matches!(gpus, Gpus::Typed(_));
        if count == 0 || (is_typed && !kind.as_deref().is_some_and(is_word)) || gpus.text().matches(':').count() > 1 {
            refuse("gpus", format!("`{}` is not a number of GPUs: write it like `2` or `a100:2`", gpus.text()));
        }
    }
    if let Some(hours) = settings.hours.filter(|hours| !(0.01..=720.0).contains(hours)) {
        refuse("hours", format!("{hours} is not between 0.01 and 720"));
    }
    if let Err(message) = settings.memory() {
        refuse("memory", message);
    }
    for (index, module) in settings.modules.iter().enumerate() {
        if !is_word(module) {
            refuse(&format!("modules[{index}]"), format!("`{}` is not the name of a module", module.escape_debug()));
        }
    }
    for (key, text) in [("packages", &settings.packages), ("environment", &settings.environment)] {
        let words: &[&str] = if key == "packages" { &["index", "site"] } else { &["node", "home"] };
        if let Some(text) = text.as_deref().filter(|text| !words.contains(text) && !is_path(text)) {
            let words = words.join("`, `");
            refuse(key, format!("`{}` is neither `{words}` nor an absolute path", text.escape_debug()));
        }
    }
    for (index, line) in settings.sbatch.iter().enumerate() {
        if let Err(message) = options::check(line) {
            refuse(&format!("sbatch[{index}]"), message);
        }
    }
    errors
}

/// Whether Slurm and a shell read it as one word.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-+/:&|()*[],=@".contains(letter))
}

/// An absolute path or one below the home folder, without anything that a shell would change.
fn is_path(text: &str) -> bool {
    let rest = text.strip_prefix('~').unwrap_or(text);
    rest.starts_with('/')
        && !rest.contains("/../")
        && rest.chars().all(|letter| letter.is_alphanumeric() || "._-+/@".contains(letter))
}
