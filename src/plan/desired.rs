//! What a spec asks for, thing by thing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::Key;
use crate::provider::ResourceRequest;
use crate::spec::{GpuProof, NodeRole, NodeSpec, Per, Spec};
use crate::util::human::{bytes, count};

/// What a host has, as far as it is known before the plan: from the offer, or from the host itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Logical processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// GPUs.
    pub gpus: u32,
}

/// A state that a host must be brought to before nodes can run on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation {
    /// The host.
    pub host: Key,
    /// The digest of the state.
    pub digest: String,
    /// The host that it is reached through, where there is one.
    pub behind: Option<Key>,
}

/// What a host lets in from the others, set once all of them are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallGoal {
    /// The host.
    pub host: Key,
    /// The digest of what it lets in, and from where; empty while a host has not told where it is.
    pub digest: String,
}

/// What a host is to run: its project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRequest {
    /// Its key: `project0`.
    pub key: Key,
    /// The host.
    pub host: Key,
    /// The digest of all that it is, where that can be told before the host is prepared.
    pub digest: Option<String>,
    /// The nodes in it, the head first.
    pub nodes: Vec<NodeRequest>,
}

/// A node that a host is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRequest {
    /// Its key.
    pub key: Key,
    /// The digest of what it is started with, where its runtime tells one and the host has told what that takes.
    pub digest: Option<String>,
}

/// All that a spec asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// What is to be acquired, in an order in which it can be.
    pub resources: Vec<ResourceRequest>,
    /// What hosts are to be prepared for.
    pub preparations: Vec<Preparation>,
    /// What hosts let in from each other, where that is known only once all of them are there. Empty for a single host, and where
    /// all of them stand there from the beginning: then their preparation holds it.
    pub firewalls: Vec<FirewallGoal>,
    /// Hosts open nothing to each other, so that none needs to know where the others are.
    pub apart: bool,
    /// The projects, in which nodes run.
    pub projects: Vec<ProjectRequest>,
}

/// The least shared memory that Ray takes for objects (ray 2.60.0, `OBJECT_STORE_MINIMUM_MEMORY_BYTES`: 75 MiB).
const LEAST_OBJECT_STORE: u64 = 75 << 20;
/// The share of a host's memory that objects may take when the spec does not say: Ray's own default is 30 %
/// for each node, which several nodes on one host would take several times.
const OBJECT_STORE_SHARE: f64 = 0.3;
/// What is held back for the system and for Ray itself when memory for tasks is shared out.
const TASK_MEMORY_SHARE: f64 = 0.5;

/// A promise that the hosts cannot keep: the field's path in the spec, and the sentence.
pub(crate) type Impossible = (String, String);

/// Works out the nodes of a spec on these hosts.
pub fn desired(spec: &Spec, machines: &[(Key, Machine)]) -> Result<Vec<NodeSpec>, Impossible> {
    let workers = &spec.ray.workers;
    let Some((head_host, head_machine)) = machines.first() else {
        return Err(("hosts".to_owned(), "a cluster takes at least one host".to_owned()));
    };
    let mut placed: Vec<(&Key, &Machine, u32)> = Vec::new();
    match (workers.per, workers.count) {
        (Some(Per::Gpu), _) => {
            for (host, machine) in machines {
                placed.extend((0..machine.gpus).map(|_| (host, machine, 1)));
            }
            if placed.is_empty() {
                return Err((
                    "ray.workers.per".to_owned(),
                    "there is no GPU to make a worker for; for logical ones say `count`, `gpus` and `gpu: declared`"
                        .to_owned(),
                ));
            }
        }
        (Some(Per::Host), _) => {
            placed.extend(machines.iter().map(|(host, machine)| (host, machine, workers.gpus.unwrap_or(machine.gpus))));
        }
        (None, count) => {
            for index in 0..count.unwrap_or(1) as usize {
                let (host, machine) = &machines[index % machines.len()];
                placed.push((host, machine, workers.gpus.unwrap_or(0)));
            }
        }
    }
    let head = &spec.ray.head;
    let mut nodes = vec![NodeSpec {
        key: Key::head(),
        role: NodeRole::Head,
        host: head_host.clone(),
        ray_version: spec.ray.version.clone(),
        cpus: head.cpus,
        gpus: 0,
        first_gpu: None,
        memory: task_memory(head.memory.map(|memory| memory.0), head_machine),
        object_store_memory: object_store(head.object_store_memory.map(|memory| memory.0), head_machine),
        resources: BTreeMap::new(),
        labels: BTreeMap::new(),
        environment: spec.environment.clone(),
        dashboard_port: head.dashboard_port,
    }];
    let mut next_gpu: BTreeMap<&Key, u32> = BTreeMap::new();
    for (index, (host, machine, gpus)) in placed.iter().enumerate() {
        let first = next_gpu.entry(*host).or_default();
        let first_gpu = (*gpus > 0 && spec.gpu == GpuProof::Proven).then_some(*first);
        *first += gpus;
        nodes.push(NodeSpec {
            key: Key::worker(index),
            role: NodeRole::Worker,
            host: (*host).clone(),
            ray_version: spec.ray.version.clone(),
            cpus: workers.cpus.unwrap_or(1),
            gpus: *gpus,
            first_gpu,
            memory: task_memory(workers.memory.map(|memory| memory.0), machine),
            object_store_memory: object_store(workers.object_store_memory.map(|memory| memory.0), machine),
            resources: workers.resources.clone(),
            labels: workers.labels.clone(),
            environment: spec.environment.clone(),
            dashboard_port: None,
        });
    }
    check(spec, machines, &nodes)?;
    Ok(nodes)
}

/// Refuses promises that a host cannot keep.
fn check(spec: &Spec, machines: &[(Key, Machine)], nodes: &[NodeSpec]) -> Result<(), Impossible> {
    for (host, machine) in machines {
        let here = || nodes.iter().filter(|node| node.host == *host);
        let gpus: u32 = here().map(|node| node.gpus).sum();
        if spec.gpu == GpuProof::Proven && gpus > machine.gpus {
            return Err((
                "ray.workers.gpus".to_owned(),
                format!(
                    "the workers are promised {} and {} has {}; for logical ones say `gpu: declared`",
                    count(gpus as usize, "GPU"),
                    host.display_name(),
                    machine.gpus
                ),
            ));
        }
        if spec.oversubscribe {
            continue;
        }
        let cpus: u32 = here().map(|node| node.cpus).sum();
        if cpus > machine.cpus {
            let path = if spec.ray.head.cpus > machine.cpus { "ray.head.cpus" } else { "ray.workers.cpus" };
            return Err((
                path.to_owned(),
                format!(
                    "the nodes are promised {} and {} has {}; ask for less, or say `oversubscribe: true`",
                    count(cpus as usize, "CPU"),
                    host.display_name(),
                    machine.cpus
                ),
            ));
        }
        let stores: u64 = here().map(|node| node.object_store_memory).sum();
        if stores > machine.memory {
            return Err((
                "ray.workers.object_store_memory".to_owned(),
                format!(
                    "the nodes are promised {} for objects and {} has {}; ask for less, or say `oversubscribe: true`",
                    bytes(stores),
                    host.display_name(),
                    bytes(machine.memory)
                ),
            ));
        }
    }
    Ok(())
}

/// Memory for tasks when the spec does not say. It does not depend on how many nodes there are: one more worker must
/// not change those that run.
fn task_memory(asked: Option<u64>, machine: &Machine) -> u64 {
    asked.unwrap_or((machine.memory as f64 * TASK_MEMORY_SHARE) as u64)
}

fn object_store(asked: Option<u64>, machine: &Machine) -> u64 {
    asked.unwrap_or_else(|| {
        // A tenth of what all nodes may take, so that ten nodes fit.
        ((machine.memory as f64 * OBJECT_STORE_SHARE / 10.0) as u64).clamp(LEAST_OBJECT_STORE, 8 << 30)
    })
}
