//! The end of a cluster: what happens in the last minutes of a lease, a wall clock, a deadline or a budget, and when nobody
//! uses it any more.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExternalStore, OutputPath};
use crate::util::duration::SpecDuration;

/// How long before the end it begins, unless the spec says otherwise.
const USUAL_WARNING: Duration = Duration::from_secs(10 * 60);
/// How long nobody must have used a cluster, unless the spec says otherwise.
const USUAL_IDLE: Duration = Duration::from_secs(30 * 60);

/// What happens before a cluster ends, whatever ends it: a lease, a wall clock, `deadline`, `max_cost`, or `idle`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["warning", "save", "then"]))]
pub struct EndSpec {
    /// How long before the end jobs are asked to save and what `save` names is copied; default: 10m.
    pub warning: Option<SpecDuration>,
    /// What is saved, most important first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub save: Vec<SaveSpec>,
    /// The object store that `to: s3://…` means, and whose keys the hosts get for it; `services.object_store.external` when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"rule": "store"}))]
    pub store: Option<ExternalStore>,
    /// What happens once everything is saved.
    pub then: Then,
}

/// What happens at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The cluster is taken down, with its hosts.
    #[default]
    Down,
    /// Its nodes are stopped; hosts stay as long as the provider leaves them.
    Stop,
    /// The lease is extended, if the calendar, the policy and `max_cost` allow it; otherwise the cluster is taken down.
    Extend,
}

/// One thing to save.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["from"]))]
pub struct SaveSpec {
    /// A path in the data folder (`$GPUCL_DATA`) of every host, or a bucket of the cluster's object store: `results`,
    /// `s3://ray/runs`.
    pub from: SaveFrom,
    /// Where to: a bucket of the store that outlives the cluster (`s3://bucket/run1`), a folder that outlives it on every
    /// host (`/project/me/run1`, `~/run1`), or one on this machine in the spec's own folder (`here:results`), while this
    /// machine is on.
    #[schemars(extend("asks" = {"rule": "saved_to"}))]
    pub to: SaveTo,
}

/// A bucket and a prefix in it, which may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// The bucket.
    pub name: String,
    /// The prefix of keys, without slashes at its ends.
    pub prefix: String,
}

impl Bucket {
    /// `s3://bucket/prefix`; `None` if the text is no such URL.
    fn parse(text: &str) -> Option<Self> {
        let (name, prefix) = text.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")))?;
        let is_name = (3..=63).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte));
        let prefix = prefix.trim_matches('/');
        let is_prefix = prefix.is_empty()
            || (prefix.len() <= 512
                && !prefix.chars().any(char::is_control)
                && prefix.split('/').all(|part| !matches!(part, "" | "." | "..")));
        (is_name && is_prefix).then(|| Self { name: name.to_owned(), prefix: prefix.to_owned() })
    }
}

impl std::fmt::Display for Bucket {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(out, "s3://{}{slash}{}", self.name, self.prefix)
    }
}

/// Where something to save is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SaveFrom {
    /// A path in the data folder of every host.
    Data(OutputPath),
    /// A bucket of the cluster's object store.
    Bucket(Bucket),
}

/// Where something is saved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SaveTo {
    /// A bucket of a store that outlives the cluster.
    Bucket(Bucket),
    /// A folder of every host that outlives the cluster: absolute, or `~/…`.
    Host(String),
    /// A folder on the user's machine, by its path in the spec's own folder.
    Here(OutputPath),
}

impl TryFrom<String> for SaveFrom {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with("s3:") {
            let wrong = || format!("`{text}` is not a bucket: use a form such as `s3://ray/runs`");
            return Bucket::parse(&text).map(Self::Bucket).ok_or_else(wrong);
        }
        text.parse().map(Self::Data).map_err(|_| {
            format!(
                "`{text}` cannot be saved: use a path in the cluster's data folder, such as `results`, or a bucket, such as \
                 `s3://ray/runs`"
            )
        })
    }
}

impl From<SaveFrom> for String {
    fn from(from: SaveFrom) -> String {
        match from {
            SaveFrom::Data(path) => path.to_string(),
            SaveFrom::Bucket(bucket) => bucket.to_string(),
        }
    }
}

impl TryFrom<String> for SaveTo {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no place to save to: use a bucket (`s3://bucket/run1`), an absolute path or `~/…` on the hosts, \
                 or `here:results`, a folder beside the spec"
            )
        };
        if text.starts_with("s3:") {
            return Bucket::parse(&text).map(Self::Bucket).ok_or_else(wrong);
        }
        if let Some(path) = text.strip_prefix("here:") {
            return path.parse().map(Self::Here).map_err(|_| wrong());
        }
        let inside = text.strip_prefix("~/").or_else(|| text.strip_prefix('/')).ok_or_else(wrong)?;
        let is_path = !inside.is_empty()
            && text.len() <= 1024
            && !text.chars().any(char::is_control)
            && inside.split('/').all(|part| !matches!(part, "." | ".."));
        if is_path { Ok(Self::Host(text)) } else { Err(wrong()) }
    }
}

impl From<SaveTo> for String {
    fn from(to: SaveTo) -> String {
        match to {
            SaveTo::Bucket(bucket) => bucket.to_string(),
            SaveTo::Host(path) => path,
            SaveTo::Here(path) => format!("here:{path}"),
        }
    }
}

impl JsonSchema for SaveFrom {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SaveFrom".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["results", "s3://ray/runs"] })
    }
}

impl JsonSchema for SaveTo {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SaveTo".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["s3://my-bucket/run1", "/project/me/run1", "here:results"] })
    }
}

impl EndSpec {
    /// How long before the end it begins.
    pub fn warning(&self) -> Duration {
        self.warning.map_or(USUAL_WARNING, |warning| warning.0)
    }

    /// What the host does alone: everything but copies to the user's machine.
    pub fn saved_by_hosts(&self) -> impl Iterator<Item = &SaveSpec> {
        self.save.iter().filter(|save| !matches!(save.to, SaveTo::Here(_)))
    }
}

/// What happens when nobody uses a cluster: no job runs or waits, no kernel is at work, no shell is open, no GPU is in use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["after", "then"]))]
pub struct IdleSpec {
    /// After how long; default: 30m. The warning comes 5 minutes before.
    pub after: Option<SpecDuration>,
    /// What happens then: `down` or `stop`.
    pub then: Then,
}

impl IdleSpec {
    /// After how long.
    pub fn after(&self) -> Duration {
        self.after.map_or(USUAL_IDLE, |after| after.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_named_one_way() {
        let from = |text: &str| SaveFrom::try_from(text.to_owned());
        let to = |text: &str| SaveTo::try_from(text.to_owned());
        for text in ["results", "out/model.pt", "s3://ray", "s3://ray/runs/r1"] {
            assert_eq!(String::from(from(text).unwrap()), text);
        }
        for text in ["s3://bucket/run1", "s3://bucket", "/project/me", "~/run1", "here:out/results"] {
            assert_eq!(String::from(to(text).unwrap()), text);
        }
        assert_eq!(String::from(from("s3://ray/runs/").unwrap()), "s3://ray/runs");
        for wrong in ["", "/results", "../x", "s3://", "s3://A/b", "s3://ray/../x", "s3:/ray"] {
            assert!(from(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "results", "~", "/", "/a/../b", "here:", "here:/etc", "here:../x", "s3://x", "file:///x"] {
            assert!(to(wrong).is_err(), "{wrong}");
        }
    }
}
