//! What a host says of a project: its nodes and services, what else carries its tag, and what its checks saw.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::Key;
use crate::util::human;

/// One part of a project: a node or a service, which is a container, or a process with its children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its name, which is its tag.
    pub name: String,
    /// What it is within the cluster: `head`, `worker0`, `grafana`.
    pub key: Key,
    /// `running`, `exited`, `restarting`, `created`, `dead`.
    pub state: String,
    /// `healthy`, `unhealthy`, `starting`; none where it has no health check.
    pub health: Option<String>,
    /// When it was started, as the engine says.
    pub started_at: String,
    /// How it ended last, where it did not run.
    pub exit_code: Option<i32>,
    /// Its process on the host, where it is one and runs.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The digest of what it was started with, where it carries one.
    #[serde(default)]
    pub digest: Option<String>,
}

/// What was seen of one tag on one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Its containers.
    pub containers: Vec<Container>,
    /// How many processes carry the tag, where nodes are processes: also those that no part is known to have.
    #[serde(default)]
    pub processes: usize,
    /// All that carries the tag, in words, such as `volume gpucl-…`, `folder /var/lib/gpucl/…`, `nftables table gpucl_…`.
    pub remains: Vec<String>,
}

/// What a host's check saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckLine {
    /// What was checked: `gpu`, `bucket`, `grafana`.
    pub check: String,
    /// On what: `worker-0`.
    pub target: String,
    /// Whether it passed.
    pub ok: bool,
    /// What was seen.
    pub saw: String,
    /// The ids of the GPUs that were seen, where it is about GPUs; no two workers may have one in common.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// What the GPUs are called, as the driver's tool says; several names by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// What came of the call of the driver's library: `CUDA: 1 MiB written and read back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

/// A container as the engine tells of it.
#[derive(Deserialize)]
struct ContainerLine {
    name: String,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    service: Option<String>,
    state: String,
    health: Option<String>,
    started_at: String,
    exit_code: Option<i32>,
    #[serde(default)]
    pid: Option<u32>,
    #[serde(default)]
    digest: Option<String>,
}

/// Reads what [`super::ProjectRuntime::inspect_script`] printed among these lines.
pub fn parse_observation(lines: &[String]) -> Observation {
    let mut seen = Observation::default();
    for line in lines.iter().map(|line| line.trim_start()) {
        if let Some(text) = line.strip_prefix("::remains ") {
            seen.remains.push(text.trim_end().to_owned());
        } else if let Some(count) = line.strip_prefix("::alive ") {
            seen.processes = count.trim().parse().unwrap_or_default();
            seen.remains.push(human::count(seen.processes, "process"));
        } else if let Some((kind, told)) = part(line) {
            let container = container(told);
            seen.remains.push(format!("{kind} {}", container.name));
            seen.containers.push(container);
        }
    }
    seen.containers.sort_by(|a, b| a.name.cmp(&b.name));
    seen
}

/// What a line tells of one part of a project: a container, or a process with its children.
fn part(line: &str) -> Option<(&'static str, ContainerLine)> {
    ["container", "process"].into_iter().find_map(|kind| {
        let told = line.strip_prefix("::")?.strip_prefix(kind)?.strip_prefix(' ')?;
        Some((kind, serde_json::from_str(told).ok()?))
    })
}

/// A container of the user's own compose file has no key of ours: its service's name stands in.
fn container(told: ContainerLine) -> Container {
    let words = [told.key, told.service].into_iter().flatten().find(|word| !word.is_empty()).unwrap_or_default();
    let plain: String = words.chars().filter(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit()).collect();
    Container {
        name: told.name.trim_start_matches('/').to_owned(),
        key: plain.parse().unwrap_or_else(|_| Key::service("other")),
        state: told.state,
        health: told.health,
        started_at: told.started_at,
        exit_code: told.exit_code,
        pid: told.pid,
        digest: told.digest,
    }
}

/// Reads what the deploy stage's last step handed back of its checks.
pub fn checks_in_values(values: &BTreeMap<String, String>) -> Vec<CheckLine> {
    let told = values.iter().filter(|(name, _)| name.starts_with("check"));
    told.filter_map(|(_, json)| serde_json::from_str(json).ok()).collect()
}

/// Reads what checks printed among these lines, a JSON object each behind `::check `.
pub fn checks_of(lines: &[String]) -> Vec<CheckLine> {
    lines.iter().filter_map(|line| serde_json::from_str(line.trim_start().strip_prefix("::check ")?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_read_as_the_engine_tells_them() {
        let lines = [
            r#"::container {"name":"/gpucl-abcd1234-c-head","key":"head","service":"head","state":"running","health":"healthy","started_at":"2026-11-21T12:00:00Z","exit_code":null}"#,
            r#"::container {"name":"/c-my_db-1","key":"","service":"my_db","state":"exited","health":null,"started_at":"x","exit_code":137}"#,
            "noise",
            "::remains volume gpucl-abcd1234-c-host0_objects",
        ];
        let seen = parse_observation(&lines.map(str::to_owned));
        assert_eq!(seen.containers.len(), 2);
        assert_eq!((seen.containers[0].key.as_str(), seen.containers[0].exit_code), ("mydb", Some(137)));
        assert_eq!(
            (seen.containers[1].name.as_str(), seen.containers[1].health.as_deref()),
            ("gpucl-abcd1234-c-head", Some("healthy"))
        );
        assert_eq!(seen.remains.len(), 3);
    }
}
