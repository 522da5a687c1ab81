//! What each job holds now, and on which nodes: what its command, its actors, tasks and placement groups have.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::client::Client;
use super::jobs::Job;
use super::situation::{Amounts, SUPERVISOR, filter};
use crate::error::Result;

/// How many rows of each kind are read: as many as Ray gives.
const LIMIT: usize = 10_000;

/// What a job holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Holding {
    /// The amounts, by the node's id.
    pub held: BTreeMap<String, Amounts>,
    /// The nodes that something of it runs on, also where it holds nothing.
    pub nodes: BTreeSet<String>,
}

impl Holding {
    /// The amounts over all nodes.
    pub fn total(&self) -> Amounts {
        let mut total = Amounts::new();
        for (name, amount) in self.held.values().flatten() {
            *total.entry(name.clone()).or_default() += amount;
        }
        total
    }

    fn add(&mut self, node: &str, amounts: &Amounts) {
        self.nodes.insert(node.to_owned());
        // A part of a placement group, which is counted as a whole.
        if amounts.keys().any(|name| name.contains("_group_")) {
            return;
        }
        for (name, amount) in amounts.iter().filter(|(_, amount)| **amount > 0.0) {
            *self.held.entry(node.to_owned()).or_default().entry(name.clone()).or_default() += amount;
        }
    }
}

/// An actor that lives, or a task that runs.
#[derive(Debug, Deserialize)]
struct Running {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    job_id: Option<String>,
    #[serde(default)]
    node_id: Option<String>,
    #[serde(default)]
    required_resources: Option<Amounts>,
}

/// A placement group that has its place.
#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default)]
    creator_job_id: Option<String>,
    #[serde(default)]
    bundles: Option<Vec<Bundle>>,
}

#[derive(Debug, Deserialize)]
struct Bundle {
    #[serde(default)]
    unit_resources: Amounts,
    #[serde(default)]
    node_id: Option<String>,
}

impl Client {
    /// Reads what each of these jobs holds, by the job's id; those that hold nothing and run nowhere are left out.
    ///
    /// # Errors
    /// If Ray does not answer or refuses the token.
    pub async fn holdings(&self, jobs: &[Job]) -> Result<BTreeMap<String, Holding>> {
        if jobs.iter().all(|job| job.status.is_terminal()) {
            return Ok(BTreeMap::new());
        }
        let state = |name: &str| filter("state", name);
        let (alive, created) = (state("ALIVE"), state("CREATED"));
        let running = format!("{}{}", state("RUNNING"), filter("type", "NORMAL_TASK"));
        let (actors, tasks, groups) = tokio::try_join!(
            self.rows("actors", &alive, LIMIT),
            self.rows("tasks", &running, LIMIT),
            self.rows("placement_groups", &created, LIMIT),
        )?;
        Ok(by_job(jobs, &actors, &tasks, &groups))
    }
}

fn by_job(jobs: &[Job], actors: &[Running], tasks: &[Running], groups: &[Group]) -> BTreeMap<String, Holding> {
    let active: Vec<&Job> = jobs.iter().filter(|job| !job.status.is_terminal()).collect();
    // A submitted job is known to actors by the id that its command got when it connected.
    let of_core = |core: &Option<String>| {
        let core = core.as_deref()?;
        active.iter().find(|job| job.job_id.as_deref() == Some(core)).map(|job| job.id().to_owned())
    };
    let of_command = |running: &Running| {
        let id = running.name.as_deref()?.strip_prefix(SUPERVISOR)?;
        active.iter().find(|job| job.submission_id.as_deref() == Some(id)).map(|job| job.id().to_owned())
    };
    let mut found: BTreeMap<String, Holding> = BTreeMap::new();
    for job in &active {
        if let Some(node) = &job.driver_node_id {
            found.entry(job.id().to_owned()).or_default().add(node, &Amounts::new());
        }
    }
    for running in actors.iter().chain(tasks) {
        if let (Some(id), Some(node)) = (of_command(running).or_else(|| of_core(&running.job_id)), &running.node_id) {
            let amounts = running.required_resources.clone().unwrap_or_default();
            found.entry(id).or_default().add(node, &amounts);
        }
    }
    for group in groups {
        let Some(id) = of_core(&group.creator_job_id) else { continue };
        for bundle in group.bundles.iter().flatten() {
            if let Some(node) = &bundle.node_id {
                found.entry(id.clone()).or_default().add(node, &bundle.unit_resources);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn job(id: &str, core: Option<&str>, status: &str) -> Job {
        read(serde_json::json!({"type": "SUBMISSION", "submission_id": id, "job_id": core, "status": status,
            "entrypoint": "x", "driver_node_id": "head"}))
    }

    /// In the form that Ray 2.60.0 was recorded to answer.
    #[test]
    fn a_job_holds_what_its_command_actors_tasks_and_groups_have() {
        let jobs =
            [job("a", Some("07000000"), "RUNNING"), job("b", None, "RUNNING"), job("c", Some("01"), "SUCCEEDED")];
        let actors: Vec<Running> = read(serde_json::json!([
            {"job_id": "07000000", "node_id": "w0", "name": "", "required_resources": {"CPU": 0.25, "GPU": 1.0}},
            // In a placement group: its amounts are the group's.
            {"job_id": "07000000", "node_id": "w1", "name": "", "required_resources": {"CPU_group_7ce3": 4.0}},
            // The command of b, which has no id of its own before it connects.
            {"job_id": "05000000", "node_id": "w1", "name": "_ray_internal_job_actor_b", "required_resources": {"CPU": 2.0}},
            {"job_id": "05000000", "node_id": "w1", "name": "_ray_internal_job_actor_c", "required_resources": {"CPU": 2.0}},
            {"job_id": "01", "node_id": "w1", "name": "", "required_resources": {"CPU": 8.0}},
        ]));
        let tasks: Vec<Running> =
            read(serde_json::json!([{"job_id": "07000000", "node_id": "w0", "required_resources": {"CPU": 0.5}}]));
        let groups: Vec<Group> = read(serde_json::json!([{"creator_job_id": "07000000", "bundles": [
            {"unit_resources": {"CPU": 4.0}, "node_id": "w1"}, {"unit_resources": {"CPU": 4.0}, "node_id": null}]}]));
        let found = by_job(&jobs, &actors, &tasks, &groups);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(found["a"].held["w0"], Amounts::from([("CPU".to_owned(), 0.75), ("GPU".to_owned(), 1.0)]));
        assert_eq!(found["a"].held["w1"], Amounts::from([("CPU".to_owned(), 4.0)]));
        assert_eq!(found["a"].total(), Amounts::from([("CPU".to_owned(), 4.75), ("GPU".to_owned(), 1.0)]));
        assert_eq!(found["a"].nodes, ["head", "w0", "w1"].map(str::to_owned).into());
        assert_eq!(found["b"].total(), Amounts::from([("CPU".to_owned(), 2.0)]));
    }
}
