//! What Ray knows about why a job waits: its nodes, what is in use there, and what the job asks for in vain.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::client::Client;
use super::jobs::{Job, JobStatus, check_known_form};
use super::nodes::Node;
use super::startup::StartupFailure;
use crate::error::Result;

/// The name of the actor that runs a job's command, as Ray makes it from the job's id.
pub(super) const SUPERVISOR: &str = "_ray_internal_job_actor_";
/// How many waiting tasks and actors are read: a few are enough to say what a job waits for.
const LIMIT: usize = 100;

/// Amounts by the name of the resource: `CPU`, `GPU`, `memory` in bytes, custom ones.
pub type Amounts = BTreeMap<String, f64>;

/// What surrounds a job; empty where nothing is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Situation {
    /// The nodes that Ray knows, dead ones included.
    pub nodes: Vec<Node>,
    /// What is in use, by the node's id.
    pub used: BTreeMap<String, Amounts>,
    /// What the job asks for and does not have.
    pub demands: Vec<Demand>,
    /// The groups that Ray's autoscaler may add nodes to.
    pub growing: Vec<Growing>,
    /// Why worker processes of the job end at their start, if they do.
    pub startup: Option<StartupFailure>,
}

/// A group of nodes that Ray's autoscaler may add to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Growing {
    /// Its name, which its nodes have as a label.
    pub name: String,
    /// What each of its nodes has.
    pub node: Amounts,
    /// The labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// The most nodes that it may have.
    pub max: u32,
}

/// Something that a job asks for and does not have.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// What in the job asks for it.
    pub by: Wanting,
    /// The amounts, each for one node.
    pub bundles: Vec<Amounts>,
    /// The labels that the node must have, in Ray's form of a selector: `!a`, `in(a, b)`.
    pub labels: BTreeMap<String, String>,
}

/// What in a job asks for resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanting {
    /// The job's command itself.
    Command,
    /// An actor, by its class.
    Actor(String),
    /// A task, by its function.
    Task(String),
    /// A placement group.
    Group,
    /// A replica of a deployment of Serve, by the deployment's name.
    Replica(String),
}

#[derive(Deserialize)]
struct Listing<T> {
    data: Data<T>,
}

#[derive(Deserialize)]
struct Data<T> {
    result: Rows<T>,
}

#[derive(Deserialize)]
struct Rows<T> {
    result: Vec<T>,
}

/// A row of Ray's actors, tasks or placement groups; each has a part of these.
#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    class_name: Option<String>,
    #[serde(default)]
    func_or_class_name: Option<String>,
    #[serde(default)]
    required_resources: Option<Amounts>,
    #[serde(default)]
    label_selector: Option<BTreeMap<String, String>>,
    #[serde(default)]
    bundles: Option<Vec<Bundle>>,
}

#[derive(Deserialize)]
struct Bundle {
    #[serde(default)]
    unit_resources: Amounts,
}

/// Used and total amounts by resource.
type InUse = BTreeMap<String, (f64, f64)>;

/// The part of the autoscaler's report that says what is in use: used and total amounts by node.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    #[serde(default)]
    usage_by_node: Option<BTreeMap<String, InUse>>,
}

impl Client {
    /// Reads what surrounds a job that waits or that got no place.
    ///
    /// # Errors
    /// If Ray does not answer or refuses the token.
    pub async fn situation(&self, job: &Job) -> Result<Situation> {
        let nodes = self.nodes().await?;
        let mut demands = Vec::new();
        if job.status != JobStatus::Running {
            demands.extend(self.command_demand(job).await?);
        }
        if let (JobStatus::Running, Some(core)) = (job.status, &job.job_id) {
            check_known_form(core, "read what the job waits for")?;
            let of = |key: &str, state: &str| format!("{}{}", filter(key, core), filter("state", state));
            let actors: Vec<Row> = self.rows("actors", &of("job_id", "PENDING_CREATION"), LIMIT).await?;
            demands.extend(actors.into_iter().filter_map(|row| {
                let class = row.class_name.clone().unwrap_or_default();
                row.demand(Wanting::Actor(class))
            }));
            let groups: Vec<Row> = self.rows("placement_groups", &of("creator_job_id", "PENDING"), LIMIT).await?;
            demands.extend(groups.into_iter().filter_map(|row| row.demand(Wanting::Group)));
            let tasks = format!("{}{}", of("job_id", "PENDING_NODE_ASSIGNMENT"), filter("type", "NORMAL_TASK"));
            let tasks: Vec<Row> = self.rows("tasks", &tasks, LIMIT).await?;
            demands.extend(tasks.into_iter().filter_map(|row| {
                let function = row.func_or_class_name.clone().unwrap_or_default();
                row.demand(Wanting::Task(function))
            }));
        }
        let startup = self.startup_failure(job, &nodes).await;
        let used = if demands.is_empty() { BTreeMap::new() } else { self.used().await? };
        Ok(Situation { nodes, used, demands, growing: Vec::new(), startup })
    }

    /// Reads the nodes, and what of them is in use, for these demands.
    pub(super) async fn situation_of(&self, demands: Vec<Demand>) -> Result<Situation> {
        let (nodes, used) = (self.nodes().await?, self.used().await?);
        Ok(Situation { nodes, used, demands, ..Situation::default() })
    }

    /// What the job's command asks for.
    async fn command_demand(&self, job: &Job) -> Result<Option<Demand>> {
        let Some(id) = &job.submission_id else { return Ok(None) };
        check_known_form(id, "read what the job waits for")?;
        // One that has its place no longer waits; of a job that failed, what it asked for is still known.
        let waiting =
            if job.status == JobStatus::Pending { filter("state", "PENDING_CREATION") } else { String::new() };
        let name = filter("name", &format!("{SUPERVISOR}{id}"));
        let actors: Vec<Row> = self.rows("actors", &format!("{waiting}{name}"), LIMIT).await?;
        Ok(actors.into_iter().find_map(|row| row.demand(Wanting::Command)))
    }

    /// Lists rows of Ray's state that match the filters.
    pub(super) async fn rows<T: DeserializeOwned>(&self, what: &str, filters: &str, limit: usize) -> Result<Vec<T>> {
        let doing = format!("list Ray's {}", what.replace('_', " "));
        let listing: Listing<T> = self.read(&format!("/api/v0/{what}?detail=1&limit={limit}{filters}"), &doing).await?;
        Ok(listing.data.result.result)
    }

    /// What is in use on each node. Ray renames custom resources here, so they are left out.
    async fn used(&self) -> Result<BTreeMap<String, Amounts>> {
        #[derive(Deserialize)]
        struct Answer {
            data: Report,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Report {
            #[serde(default)]
            cluster_status: Option<Cluster>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cluster {
            #[serde(default)]
            load_metrics_report: Option<Usage>,
        }
        let answer: Answer = self.read("/api/cluster_status", "ask Ray what is in use").await?;
        let report = answer.data.cluster_status.and_then(|cluster| cluster.load_metrics_report);
        let Some(nodes) = report.and_then(|report| report.usage_by_node) else { return self.held().await };
        let known = ["CPU", "GPU", "memory"];
        Ok(nodes
            .into_iter()
            .map(|(node, amounts)| {
                let amounts = amounts.into_iter().filter(|(name, _)| known.contains(&name.as_str()));
                (node, amounts.map(|(name, (used, _))| (name, used)).collect())
            })
            .collect())
    }

    /// What jobs hold on each node. Where an autoscaler of version 2 runs, Ray reports no other use (ray 2.60.0).
    async fn held(&self) -> Result<BTreeMap<String, Amounts>> {
        let mut used: BTreeMap<String, Amounts> = BTreeMap::new();
        for (node, amounts) in self.holdings(&self.jobs().await?).await?.into_values().flat_map(|holding| holding.held)
        {
            let of_node = used.entry(node).or_default();
            for (name, amount) in amounts {
                *of_node.entry(name).or_default() += amount;
            }
        }
        Ok(used)
    }
}

impl Row {
    /// The demand of a row; `None` for one that has its place reserved in a placement group, which waits for that.
    fn demand(self, by: Wanting) -> Option<Demand> {
        let bundles: Vec<Amounts> = match self.bundles {
            Some(bundles) => bundles.into_iter().map(|bundle| bundle.unit_resources).collect(),
            None => vec![self.required_resources.unwrap_or_default()],
        };
        if bundles.iter().flat_map(BTreeMap::keys).any(|name| name.contains("_group_")) {
            return None;
        }
        Some(Demand { by, bundles, labels: self.label_selector.unwrap_or_default() })
    }
}

/// One filter of a request to Ray's state.
pub(super) fn filter(key: &str, value: &str) -> String {
    format!("&filter_keys={key}&filter_predicates=%3D&filter_values={value}")
}
