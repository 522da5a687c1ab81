//! The observation of a project on a host: its nodes and services, whatever else carries its tag, and its check
//! results.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ContainerHealth, ContainerState};
use crate::name::Key;
use crate::plan::{NamedRemnant, Remnant};
use crate::playbook::Step;

/// A node or service of a project: a container, or a process with its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The name, which is the tag.
    pub name: String,
    /// The key within the cluster: `head`, `worker0`, `grafana`.
    pub key: Key,
    /// What it does now.
    pub state: ContainerState,
    /// The result of its health check; `None` without one.
    pub health: Option<ContainerHealth>,
    /// The start time, as the engine reports it.
    pub started_at: String,
    /// The last exit code, if it is not running.
    pub exit_code: Option<i32>,
    /// The pid on the host, if it is a running process.
    pub pid: Option<u32>,
    /// The digest of its start parameters, if recorded.
    pub digest: Option<String>,
    /// How often it was started again by itself after it had ended.
    pub restarts: u32,
    /// When it last ended, if that is known.
    pub ended_at: Option<jiff::Timestamp>,
}

impl Container {
    /// Whether it runs, healthy or not.
    pub fn is_running(&self) -> bool {
        self.state == ContainerState::Running
    }
}

/// Everything found on one host with one tag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// The nodes and services.
    pub containers: Vec<Container>,
    /// How many processes carry the tag, where nodes are processes; includes those of no known node.
    pub processes: usize,
    /// Everything with the tag.
    pub remains: Vec<Remnant>,
}

/// The result of a host's check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckLine {
    /// What was checked: `gpu`, `bucket`, `grafana`.
    pub check: String,
    /// The target: `worker-0`.
    pub target: String,
    /// Whether it passed.
    pub ok: bool,
    /// What was found, in words.
    pub saw: String,
    /// For a GPU check, the ids of the GPUs found; no two workers may share one.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// The product names of the GPUs from the driver's tool, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// The result of a call to the driver's library: `CUDA: 1 MiB written and read back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

/// A container or process as the inspect script prints it.
#[derive(Deserialize)]
struct ContainerLine {
    name: String,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    service: Option<String>,
    state: ContainerState,
    health: Option<ContainerHealth>,
    started_at: String,
    exit_code: Option<i32>,
    #[serde(default)]
    pid: Option<u32>,
    #[serde(default)]
    digest: Option<String>,
}

/// How a container or process ended before, as the inspect script prints it.
#[derive(Deserialize)]
struct EndedLine {
    key: String,
    restarts: u32,
    /// Empty where it is not known; Docker's for one that never ended is in the year 1.
    at: String,
}

/// Parses the output of [`super::ProjectRuntime::inspect_script`]; other lines are ignored.
pub fn parse_observation(lines: &[String]) -> Observation {
    let mut seen = Observation::default();
    let mut ended: Vec<EndedLine> = Vec::new();
    for line in lines.iter().map(|line| line.trim_start()) {
        if let Some(text) = line.strip_prefix("::remains ") {
            seen.remains.push(Remnant::parse(text.trim_end()));
        } else if let Some(count) = line.strip_prefix("::alive ") {
            seen.processes = count.trim().parse().unwrap_or_default();
            seen.remains.push(Remnant::Processes(seen.processes));
        } else if let Some(json) = line.strip_prefix("::ended ") {
            ended.extend(serde_json::from_str::<EndedLine>(json).ok());
        } else if let Some((kind, parsed)) = part(line) {
            let container = container(parsed);
            seen.remains.push(kind(container.name.clone()));
            seen.containers.push(container);
        }
    }
    for EndedLine { key, restarts, at } in ended {
        for container in seen.containers.iter_mut().filter(|container| container.key.as_str() == key) {
            container.restarts = restarts;
            container.ended_at = at.parse().ok().filter(|at| *at > jiff::Timestamp::UNIX_EPOCH);
        }
    }
    seen.containers.sort_by(|a, b| a.name.cmp(&b.name));
    seen
}

/// Parses a line that describes a container, or a process with its children.
fn part(line: &str) -> Option<(NamedRemnant, ContainerLine)> {
    let kinds: [(&str, NamedRemnant); 2] = [("::container ", Remnant::Container), ("::process ", Remnant::Process)];
    kinds.into_iter().find_map(|(mark, kind)| Some((kind, serde_json::from_str(line.strip_prefix(mark)?).ok()?)))
}

/// A container from the user's own compose file has no gpucl key: its service name replaces it.
fn container(line: ContainerLine) -> Container {
    let words = [line.key, line.service].into_iter().flatten().find(|word| !word.is_empty()).unwrap_or_default();
    let plain: String = words.chars().filter(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit()).collect();
    Container {
        name: line.name.trim_start_matches('/').to_owned(),
        key: plain.parse().unwrap_or_else(|_| Key::service("other")),
        state: line.state,
        health: line.health,
        started_at: line.started_at,
        exit_code: line.exit_code,
        pid: line.pid,
        digest: line.digest,
        restarts: 0,
        ended_at: None,
    }
}

/// The last step: it returns the check results as values of the stage, which saves an exec.
pub(in crate::runtime) fn look_inside(checks: &str) -> Step {
    Step {
        name: "check everything from inside".to_owned(),
        // Earlier results prove nothing now.
        unless: Some("false".to_owned()),
        run: format!(
            "grep -v '^check' \"$gpucl_values\" >\"$gpucl_values.new\" || :\nmv -f \"$gpucl_values.new\" \"$gpucl_values\"\n\
             set +eu\nrecent=60\nsame_stage=1\n(\n{checks}\n) | {{\n    count=0\n    while IFS= read -r line; do\n        case $line in\n            \
             '::check '*) count=$((count + 1)); value \"check$count\" \"${{line#::check }}\" ;;\n            \
             *) printf '%s\\n' \"$line\" ;;\n        esac\n    done\n}}"
        ),
        timeout: Some(Duration::from_secs(300)),
        ..Step::default()
    }
}

/// Parses the check results among the values of the deploy stage.
pub fn checks_in_values(values: &BTreeMap<String, String>) -> Vec<CheckLine> {
    let checks = values.iter().filter(|(name, _)| name.starts_with("check"));
    checks.filter_map(|(_, json)| serde_json::from_str(json).ok()).collect()
}

/// Parses check results, one JSON object per line after `::check `; other lines are ignored.
pub fn checks_of(lines: &[String]) -> Vec<CheckLine> {
    lines.iter().filter_map(|line| serde_json::from_str(line.trim_start().strip_prefix("::check ")?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_parsed_from_the_output_of_the_engine() {
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
            (seen.containers[1].name.as_str(), &seen.containers[1].health),
            ("gpucl-abcd1234-c-head", &Some(ContainerHealth::Healthy))
        );
        assert_eq!(seen.remains.len(), 3);
    }

    #[test]
    fn what_ended_and_what_never_did_are_distinguished() {
        let of = |key: &str| {
            let line = serde_json::json!({
                "name": format!("x-{key}"), "key": key, "state": "running", "health": null, "started_at": "x",
                "exit_code": null,
            });
            format!("::process {line}")
        };
        let ended = |key: &str, restarts: u32, at: &str| {
            format!("::ended {}", serde_json::json!({"key": key, "restarts": restarts, "at": at}))
        };
        let lines = [
            ended("head", 0, "0001-01-01T00:00:00Z"),
            of("head"),
            of("worker0"),
            of("worker1"),
            ended("worker0", 2, "2026-11-21T12:00:00.123456789Z"),
            ended("worker1", 1, ""),
            "::ended {".to_owned(),
        ];
        let seen = parse_observation(&lines).containers;
        let seen: Vec<_> = seen.iter().map(|one| (one.restarts, one.ended_at.map(|at| at.to_string()))).collect();
        assert_eq!(seen, [(0, None), (2, Some("2026-11-21T12:00:00.123456789Z".to_owned())), (1, None)]);
    }
}
