//! The settings of this provider under `provider:` and `hosts:` of a spec.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::user_fault;
use crate::provider::{EndAsk, FieldError, HostFilter, LeaseAsk, StartAsk, settings};
use crate::util::when;

/// The length of a lease that `up` makes, unless the spec sets it.
const USUAL_HOURS: f64 = 3.0;

/// The settings under `provider:` beside `name`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["site", "cloud", "project", "lease", "hours", "until", "start", "shorten", "image", "flavor", "network", "public_network", "floating_ip", "user"]))]
pub(super) struct Settings {
    /// The site, such as `CHI@TACC`; default: OS_REGION_NAME, OS_CLOUD, or where the hosts are free first.
    pub(super) site: Option<String>,
    /// The cloud in `clouds.yaml` whose credentials to use.
    pub(super) cloud: Option<String>,
    /// The project, by name or id; default: OS_PROJECT_NAME, or the credential's project.
    pub(super) project: Option<String>,
    /// An existing lease to use, by name or id; `down` keeps it.
    pub(super) lease: Option<String>,
    /// The length of a lease that `up` makes, in hours; default: 3.
    #[schemars(range(min = 0.1, max = 168), extend("examples" = [24, 0.5]))]
    pub(super) hours: Option<f64>,
    /// When a lease that `up` makes ends, in local time: `14:00`, `2026-11-22 14:00`. Excludes `hours`.
    pub(super) until: Option<String>,
    /// When it begins: `next` (as soon as the hosts are free; the default), `now`, or a time.
    pub(super) start: Option<String>,
    /// Accept a shorter lease if the full length is not free.
    pub(super) shorten: bool,
    /// The image of all hosts, by name or id.
    pub(super) image: Option<String>,
    /// The flavor of all hosts; default: `baremetal`.
    pub(super) flavor: Option<String>,
    /// The network of the hosts; default: `sharednet1`.
    pub(super) network: Option<String>,
    /// The network that floating IPs come from; default: `public`.
    pub(super) public_network: Option<String>,
    /// An existing floating IP of yours for the head; `down` keeps it. Default: a new one is allocated.
    pub(super) floating_ip: Option<String>,
    /// The login user of the image; default: `cc`.
    pub(super) user: Option<String>,
}

/// One entry of `hosts:`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["node", "type", "gpu", "gpus", "image"]))]
pub(super) struct HostSettings {
    /// One specific host, by name: `liqid01`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    /// Any host of this type: `gpu_mi100`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// Any host with a GPU whose model contains this: `a100`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpu: Option<String>,
    /// Any host with at least this many GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub(super) gpus: Option<u32>,
    /// The image of this host, by name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
}

/// Reads the settings under `provider:`.
pub(super) fn read_settings(value: &Value) -> Result<Settings, Vec<FieldError>> {
    settings::read::<Settings>(value, "")
}

/// Reads one entry of `hosts:`.
pub(super) fn read_host(value: &Value, path: &str) -> Result<HostSettings, Vec<FieldError>> {
    if let Value::String(node) = value {
        return Ok(HostSettings { node: Some(node.clone()), ..HostSettings::default() });
    }
    settings::read::<HostSettings>(value, path)
}

/// Returns every mistake in these settings; offline.
pub(super) fn check(value: &Value, hosts: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut refuse = |path: String, message: &str| {
        errors.push(FieldError { path, message: message.to_owned(), known: Vec::new() });
    };
    match read_settings(value) {
        Err(wrong) => return wrong,
        Ok(settings) => {
            if settings.hours.is_some() && settings.until.is_some() {
                refuse("until".to_owned(), "excludes `hours`");
            }
            if let Some(fault) = settings.user.as_deref().and_then(user_fault) {
                refuse("user".to_owned(), fault);
            }
            let now = Timestamp::now();
            let zone = jiff::tz::TimeZone::UTC;
            for (path, text) in [("until", &settings.until), ("start", &settings.start)] {
                let Some(text) = text.as_deref().filter(|text| path == "until" || !["next", "now"].contains(text))
                else {
                    continue;
                };
                if let Err(why) = when::parse(text, now, &zone) {
                    refuse(path.to_owned(), &why);
                }
            }
        }
    }
    let mut read = Vec::new();
    for (index, host) in hosts.iter().enumerate() {
        let path = format!("hosts[{index}]");
        match read_host(host, &path) {
            Ok(host) => read.push((path, host)),
            Err(wrong) => errors.extend(wrong),
        }
    }
    let mut refuse = |path: String, message: String| errors.push(FieldError { path, message, known: Vec::new() });
    for (index, (path, host)) in read.iter().enumerate() {
        let filtered = host.kind.is_some() || host.gpu.is_some() || host.gpus.is_some();
        match (&host.node, filtered) {
            (None, false) => {
                refuse(path.clone(), "must name a host (`node:`) or describe one: `type:`, `gpu:`, `gpus:`".to_owned())
            }
            (Some(_), true) => {
                refuse(path.clone(), "names a host, so `type`, `gpu` and `gpus` do not apply".to_owned())
            }
            (Some(node), false) => {
                if let Some(first) = read[..index].iter().position(|(_, other)| other.node.as_ref() == Some(node)) {
                    refuse(format!("{path}.node"), format!("is the same host as hosts[{first}]"));
                }
            }
            (None, true) => {}
        }
    }
    let named = read.iter().filter(|(_, host)| host.node.is_some()).count();
    let same = |a: &HostSettings, b: &HostSettings| a.kind == b.kind && a.gpu == b.gpu && a.gpus == b.gpus;
    if errors.is_empty() && named != 0 && named != read.len() {
        errors.push(FieldError {
            path: String::new(),
            message: "either all `hosts` are named, or none: one lease holds them all".to_owned(),
            known: Vec::new(),
        });
    } else if errors.is_empty() && read.windows(2).any(|pair| !same(&pair[0].1, &pair[1].1)) {
        errors.push(FieldError {
            path: String::new(),
            message: "`hosts` without a name must all be the same: one lease holds them all".to_owned(),
            known: Vec::new(),
        });
    }
    errors
}

impl Settings {
    /// The lease request for these hosts.
    pub(super) fn ask(&self, hosts: &[HostSettings], zone: &jiff::tz::TimeZone) -> Result<LeaseAsk, String> {
        let now = Timestamp::now();
        let start = match self.start.as_deref() {
            None | Some("next") => StartAsk::Next,
            Some("now") => StartAsk::Now,
            Some(text) => StartAsk::At(when::parse(text, now, zone)?),
        };
        let end = match &self.until {
            Some(text) => EndAsk::At(when::parse(text, now, zone)?),
            None => {
                let seconds = self.hours.unwrap_or(USUAL_HOURS) * 3600.0;
                EndAsk::After(SignedDuration::from_secs(seconds as i64))
            }
        };
        Ok(LeaseAsk {
            hosts: filter(hosts),
            count: u32::try_from(hosts.len()).unwrap_or(u32::MAX),
            start,
            end,
            name: None,
            shorten: self.shorten,
        })
    }

    /// The image of a host: its own, else the cluster's, else the default for its GPUs.
    pub(super) fn image(&self, host: &HostSettings, has_amd: bool) -> String {
        let usual = if has_amd { "CC-Ubuntu24.04-ROCm" } else { "CC-Ubuntu24.04-CUDA" };
        host.image.clone().or_else(|| self.image.clone()).unwrap_or_else(|| usual.to_owned())
    }

    pub(super) fn flavor(&self) -> &str {
        self.flavor.as_deref().unwrap_or("baremetal")
    }

    pub(super) fn network(&self) -> &str {
        self.network.as_deref().unwrap_or("sharednet1")
    }

    pub(super) fn public_network(&self) -> &str {
        self.public_network.as_deref().unwrap_or("public")
    }

    pub(super) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("cc")
    }
}

/// The filter for these entries, which are either all named or all the same.
pub(super) fn filter(hosts: &[HostSettings]) -> HostFilter {
    let first = hosts.first().cloned().unwrap_or_default();
    HostFilter {
        nodes: hosts.iter().filter_map(|host| host.node.clone()).collect(),
        kind: first.kind,
        gpu: first.gpu,
        gpus: first.gpus,
    }
}
