//! What a host says of a project: its containers, what else carries its tag, and what its checks saw.

use serde::{Deserialize, Serialize};

use crate::name::Key;

/// One container of a project.
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
}

/// What was seen of one tag on one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Its containers.
    pub containers: Vec<Container>,
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
}

/// The shell text that prints what of this tag is on the host, for [`seen_of`]. Changes nothing; works without Docker.
pub fn look_script(tag: &str) -> String {
    let _ = tag;
    String::new()
}

/// Reads what [`look_script`] printed among these lines.
pub fn seen_of(lines: &[String]) -> Seen {
    let _ = lines;
    Seen::default()
}

/// Reads what checks printed among these lines, a JSON object each behind `::check `.
pub fn checks_of(lines: &[String]) -> Vec<CheckLine> {
    lines.iter().filter_map(|line| serde_json::from_str(line.trim_start().strip_prefix("::check ")?).ok()).collect()
}
