//! The worker nodes of a spec: one group of identical ones, or several groups of different size.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::memory::Memory;

/// The worker nodes: one group of identical ones, or a list of groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Workers {
    /// One group.
    One(WorkerGroup),
    /// Several groups, each with a name.
    Groups(#[schemars(length(min = 1, max = 64))] Vec<WorkerGroup>),
}

impl Default for Workers {
    fn default() -> Self {
        Self::One(WorkerGroup::default())
    }
}

impl Workers {
    /// The groups, in the order of the spec.
    pub fn groups(&self) -> &[WorkerGroup] {
        match self {
            Self::One(group) => std::slice::from_ref(group),
            Self::Groups(groups) => groups,
        }
    }

    /// The path of a group in the spec: `ray.workers`, or `ray.workers[1]`.
    pub fn path(&self, index: usize) -> String {
        match self {
            Self::One(_) => "ray.workers".to_owned(),
            Self::Groups(_) => format!("ray.workers[{index}]"),
        }
    }
}

/// What determines the number of workers when `count` is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// One worker per GPU.
    Gpu,
    /// One worker per host, with all its GPUs.
    Host,
}

/// A group of identical worker nodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["name", "count", "min", "max", "per", "cpus", "gpus", "memory", "object_store_memory", "resources", "labels", "hosts"]))]
pub struct WorkerGroup {
    /// The group's name, which its workers have as the label `gpucl.dev/group`; needed where there are several groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of workers; excludes `per`. One when both are absent.
    #[schemars(range(min = 0, max = 256))]
    pub count: Option<u32>,
    /// The fewest workers, where Ray's autoscaler decides; `count` when absent. Only on a platform, such as Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 256))]
    pub min: Option<u32>,
    /// The most workers: Ray's autoscaler adds and removes some where this is more than `min`. Only on a platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 256))]
    pub max: Option<u32>,
    /// One worker per GPU or host; excludes `count`.
    pub per: Option<Per>,
    /// Logical CPUs per worker; its share of the host when absent.
    #[schemars(range(min = 0, max = 4096))]
    pub cpus: Option<u32>,
    /// GPUs per worker; with `per: gpu` it is 1.
    #[schemars(range(min = 0, max = 1024))]
    pub gpus: Option<u32>,
    /// Memory for tasks, per worker; by its CPUs, of half of the host's memory, when absent.
    pub memory: Option<Memory>,
    /// Shared memory for objects, per worker.
    pub object_store_memory: Option<Memory>,
    /// Custom resources of each worker.
    pub resources: BTreeMap<String, f64>,
    /// Labels of each worker.
    pub labels: BTreeMap<String, String>,
    /// The hosts that the workers run on; all of them when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub hosts: Option<Vec<HostChoice>>,
}

/// One of the spec's hosts: its number from 0 in `hosts`, or its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HostChoice {
    /// Its number, from 0.
    Number(u32),
    /// Its name: the `node` of its entry, the entry itself where that is a text, or `host-0`.
    Name(String),
}

impl HostChoice {
    /// The numbers of the hosts that it means; a right choice means exactly one.
    pub(in crate::spec) fn among(&self, hosts: &[serde_json::Value]) -> Vec<usize> {
        let which = |is_it: &dyn Fn(usize, &serde_json::Value) -> bool| -> Vec<usize> {
            hosts.iter().enumerate().filter(|(number, entry)| is_it(*number, entry)).map(|(number, _)| number).collect()
        };
        match self {
            Self::Number(wanted) => which(&|number, _| u32::try_from(number) == Ok(*wanted)),
            Self::Name(name) => {
                let own =
                    |entry: &serde_json::Value| entry.get("node").unwrap_or(entry).as_str() == Some(name.as_str());
                let named = which(&|_, entry| own(entry));
                match named.is_empty() {
                    false => named,
                    true => which(&|number, _| [format!("host-{number}"), format!("host{number}")].contains(name)),
                }
            }
        }
    }
}

impl WorkerGroup {
    /// How many workers there are at the start, at least and at most, on a platform.
    pub fn limits(&self) -> (u32, u32, u32) {
        let count = self.count.or_else(|| self.min.filter(|min| *min > 0)).unwrap_or(1);
        let (min, max) = (self.min.unwrap_or(count), self.max.unwrap_or(count));
        (count.clamp(min, max.max(min)), min, max)
    }
}
