//! The settings of this provider under `provider:` and `hosts:` of a spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::api;
use crate::host::user_fault;
use crate::money::HourlyPrice;
use crate::name::Key;
use crate::provider::{FieldError, settings};

/// The default parent folder of mounts.
const MOUNTS: &str = "/lambda/nfs";
/// The maximum length of a file system's name. A new one is named by our tag, which leaves this many of 60 characters.
const LONGEST_KEY: usize = 22;

/// The settings under `provider:` beside `name`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["regions", "types", "max_price", "ssh_key", "image", "user", "ssh_port"]))]
pub(super) struct Settings {
    /// Lambda's address; default: LAMBDA_API_URL, or https://cloud.lambda.ai.
    #[schemars(extend("asks" = {"class": "server", "says": "{}, in place of Lambda's own address", "before_plan": true}))]
    pub(super) endpoint: Option<String>,
    /// The acceptable regions, in order of preference; default: any.
    pub(super) regions: Vec<String>,
    /// The acceptable types for hosts that name none, in order of preference.
    pub(super) types: Vec<String>,
    /// The maximum price of one host, in dollars an hour.
    #[schemars(range(min = 0.0))]
    pub(super) max_price: Option<f64>,
    /// The account's SSH key to log in with, by name; default: one of `~/.ssh/*.pub` in the account, or a new key.
    pub(super) ssh_key: Option<String>,
    /// File systems to mount on all hosts.
    pub(super) file_systems: Vec<FileSystemSettings>,
    /// The image of all hosts: a family, a name or an id; default: Lambda Stack.
    pub(super) image: Option<String>,
    /// The login user of the image; default: `ubuntu`. Empty leaves it to `ssh`, as for the hosts of a sandbox.
    pub(super) user: Option<String>,
    /// The port of the hosts' SSH servers; default: 22.
    pub(super) ssh_port: Option<u16>,
}

/// One entry of `file_systems:`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["mount", "create"]))]
pub(super) struct FileSystemSettings {
    /// The name of the file system.
    #[schemars(extend("asks" = {"class": "privilege", "says": "the file system {} of your account, if it is there already"}))]
    pub(super) name: String,
    /// The mount point on the hosts; default: `/lambda/nfs/NAME`.
    pub(super) mount: Option<String>,
    /// Create it if the account has none of that name.
    pub(super) create: bool,
    /// Keep a created one when the cluster is taken down; otherwise it is deleted with all its data.
    #[schemars(extend("asks" = {"class": "privilege", "says": "a file system that is kept, and billed, after `down`"}))]
    pub(super) keep: bool,
}

impl FileSystemSettings {
    /// The mount point on the hosts.
    pub(super) fn mount_point(&self) -> String {
        self.mount.clone().unwrap_or_else(|| format!("{MOUNTS}/{}", self.name))
    }

    /// Its resource key within a cluster: `fsdata`.
    pub(super) fn key(&self) -> Option<Key> {
        let letters: String = self.name.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
        (!letters.is_empty() && letters.len() <= LONGEST_KEY).then(|| format!("fs{letters}").parse().ok()).flatten()
    }
}

/// One entry of `hosts:`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["type"]))]
pub(super) struct HostSettings {
    /// The type: `gpu_1x_a10`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// Any type with such GPUs: the cheapest first, or in the order of `types:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<GpuNeed>,
}

/// The GPUs that a host must have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["model", "count", "memory_gib"]))]
pub(super) struct GpuNeed {
    /// The model: `a100`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    /// The minimum number of GPUs; default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub(super) count: Option<u32>,
    /// The minimum memory of each GPU, in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_gib: Option<u32>,
}

impl Settings {
    /// The user to log in as; `None` leaves it to `ssh`.
    pub(super) fn user(&self) -> Option<&str> {
        Some(self.user.as_deref().unwrap_or("ubuntu")).filter(|user| !user.is_empty())
    }

    /// The maximum price of one host.
    pub(super) fn most(&self) -> Option<HourlyPrice> {
        self.max_price.map(|dollars| HourlyPrice::cents((dollars * 100.0).round().max(0.0) as u64))
    }
}

/// Reads the settings under `provider:`.
pub(super) fn read_settings(value: &Value) -> Result<Settings, Vec<FieldError>> {
    settings::read::<Settings>(value, "")
}

/// Reads one entry of `hosts:`. A plain string is a type.
pub(super) fn read_host(value: &Value, path: &str) -> Result<HostSettings, Vec<FieldError>> {
    if let Value::String(kind) = value {
        return Ok(HostSettings { kind: Some(kind.clone()), gpus: None });
    }
    settings::read::<HostSettings>(value, path)
}

/// Returns every mistake in these settings; offline.
pub(super) fn check(value: &Value, hosts: &[Value]) -> Vec<FieldError> {
    let settings = match read_settings(value) {
        Ok(settings) => settings,
        Err(wrong) => return wrong,
    };
    let (mut errors, mut unread) = (Vec::new(), Vec::new());
    let mut refuse = |path: String, message: String| errors.push(FieldError { path, message, known: Vec::new() });
    if let Some(why) = settings.endpoint.as_deref().and_then(|text| api::endpoint(text).err()) {
        refuse("endpoint".to_owned(), why.causes().join(": "));
    }
    if settings.max_price.is_some_and(|price| !price.is_finite() || price < 0.0) {
        refuse("max_price".to_owned(), "is not a price: it takes dollars an hour, such as 3.50".to_owned());
    }
    if let Some(fault) = settings.user().and_then(user_fault) {
        refuse("user".to_owned(), fault.to_owned());
    }
    if settings.ssh_port == Some(0) {
        refuse("ssh_port".to_owned(), "is not a port".to_owned());
    }
    for (index, one) in settings.file_systems.iter().enumerate() {
        check_file_system(&settings.file_systems[..index], one, &format!("file_systems[{index}]"), &mut refuse);
    }
    for (index, host) in hosts.iter().enumerate() {
        let path = format!("hosts[{index}]");
        match read_host(host, &path) {
            Err(wrong) => unread.extend(wrong),
            Ok(HostSettings { kind: Some(_), gpus: Some(_) }) => {
                refuse(path, "names its type, so `gpus` does not apply".to_owned());
            }
            Ok(HostSettings { kind: None, gpus: None }) if settings.types.is_empty() => {
                let ways = "must describe a host: `type:`, `gpus:`, or `types:` under `provider:`";
                refuse(path, ways.to_owned());
            }
            Ok(_) => {}
        }
    }
    errors.extend(unread);
    errors
}

fn check_file_system(
    earlier: &[FileSystemSettings],
    one: &FileSystemSettings,
    path: &str,
    refuse: &mut impl FnMut(String, String),
) {
    let begins_well = one.name.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let is_name = begins_well && one.name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let Some(key) = one.key().filter(|_| is_name) else {
        let takes = format!("takes 1 to {LONGEST_KEY} letters, digits and -, beginning with a letter");
        return refuse(format!("{path}.name"), takes);
    };
    if earlier.iter().any(|other| other.key().as_ref() == Some(&key)) {
        refuse(format!("{path}.name"), "is the same as another one's".to_owned());
    }
    let mount = one.mount_point();
    let inside = ["/home", "/lambda/nfs", "/data"].iter().any(|top| mount.starts_with(top));
    if !inside
        || mount.len() > 256
        || !mount.chars().all(|letter| letter.is_ascii_alphanumeric() || "/-".contains(letter))
    {
        let takes = "takes a path below /lambda/nfs, /data or /home, of letters, digits and -";
        refuse(format!("{path}.mount"), takes.to_owned());
    }
    if one.keep && !one.create {
        let why = "needs `create: true`: an existing file system is always kept";
        refuse(format!("{path}.keep"), why.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::Factory as _;

    fn wrong(settings: Value, hosts: &[Value]) -> Vec<String> {
        check(&settings, hosts).into_iter().map(|error| format!("{}: {}", error.path, error.message)).collect()
    }

    #[test]
    fn correct_settings_pass() {
        let settings = json!({
            "regions": ["us-east-1"], "types": ["gpu_1x_a10"], "max_price": 3.5,
            "file_systems": [{"name": "data", "create": true, "keep": true}],
        });
        let hosts = [
            json!("gpu_1x_a10"),
            json!({"type": "gpu_1x_h100"}),
            json!({"gpus": {"model": "a100", "count": 8}}),
            json!({}),
        ];
        assert_eq!(wrong(settings, &hosts), Vec::<String>::new());
    }

    #[test]
    fn a_file_system_is_mounted_where_lambda_mounts_it() {
        let settings = json!({"file_systems": [{"name": "sets"}, {"name": "b", "mount": "/data/b"}]});
        let at = |name: &str| crate::lambda::FACTORY.file_system(&settings, name);
        assert_eq!(at("sets").as_deref(), Some("/lambda/nfs/sets"));
        assert_eq!(at("b").as_deref(), Some("/data/b"));
        assert_eq!(at("c"), None);
    }

    #[test]
    fn each_mistake_is_reported_at_its_place() {
        let settings = json!({
            "endpoint": "http://cloud.example", "max_price": -1.0, "user": "x\nProxyCommand=touch /tmp/x",
            "file_systems": [{"name": "9"}, {"name": "a", "mount": "/etc"}, {"name": "a", "keep": true}],
        });
        let mistakes = wrong(settings, &[json!({}), json!({"type": "x", "gpus": {}})]);
        let places: Vec<&str> = mistakes.iter().map(|text| text.split(':').next().unwrap()).collect();
        let expected = [
            "endpoint",
            "max_price",
            "user",
            "file_systems[0].name",
            "file_systems[1].mount",
            "file_systems[2].name",
            "file_systems[2].keep",
            "hosts[0]",
            "hosts[1]",
        ];
        assert_eq!(places, expected, "{mistakes:#?}");
        assert_eq!(check(&json!({"region": "x"}), &[])[0].path, "region");
    }
}
