//! The desired resources, preparations and projects of a spec.

use std::collections::BTreeMap;

use super::machine::Machine;
use super::share::{Placed, Share, task_memory};
use crate::name::Key;
use crate::playbook::Limit;
use crate::provider::ResourceRequest;
use crate::spec::{GROUP_LABEL, GpuProof, NodeRole, NodeSpec, Per, Spec};
use crate::util::human::{bytes, count};

/// The state that a host must have before nodes can run on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation {
    /// The key of the host.
    pub host: Key,
    /// The digest of that state.
    pub digest: String,
    /// The digest of the spec's `setup`, which is installed with it.
    pub setup: Option<String>,
    /// The host that it is reached through, if any.
    pub behind: Option<Key>,
}

/// The firewall of a host towards the others, set once all hosts exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallGoal {
    /// The key of the host.
    pub host: Key,
    /// The digest of the rules; empty while the address of a host is unknown.
    pub digest: String,
}

/// The data sets that a host should have before nodes run on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataGoal {
    /// The key of the host.
    pub host: Key,
    /// The digest of the data sets; empty while the host is unknown.
    pub digest: String,
}

/// The project that a host should run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRequest {
    /// The project's key: `project0`.
    pub key: Key,
    /// The key of the host.
    pub host: Key,
    /// The digest of the deployment, if it is known before the host is prepared.
    pub digest: Option<String>,
    /// Its nodes, the head first.
    pub nodes: Vec<NodeRequest>,
}

/// A node that a host should run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRequest {
    /// The key of the node.
    pub key: Key,
    /// The digest of its settings, if the runtime has one and the host's facts are known.
    pub digest: Option<String>,
}

/// Everything that a spec asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// The resources, in the order of acquisition.
    pub resources: Vec<ResourceRequest>,
    /// The preparation of each host.
    pub preparations: Vec<Preparation>,
    /// The firewall of each host, if that is known only once all hosts exist. Empty for a single host, and for hosts
    /// that exist beforehand: their preparation includes it.
    pub firewalls: Vec<FirewallGoal>,
    /// The data sets of each host; empty when there are none.
    pub data: Vec<DataGoal>,
    /// Hosts open no ports to each other, so that preparing one needs no addresses of the others.
    pub independent_hosts: bool,
    /// The project of each host.
    pub projects: Vec<ProjectRequest>,
}

/// Ray's minimum object store size (ray 2.60.0, `OBJECT_STORE_MINIMUM_MEMORY_BYTES`: 75 MiB).
const LEAST_OBJECT_STORE: u64 = 75 << 20;
/// The default share of a host's memory for all object stores together: Ray's own default is 30 % for each node,
/// which several nodes on one host would take several times.
const OBJECT_STORE_SHARE: f64 = 0.3;

/// The part of `/dev/shm` for all object stores together, as Ray's own default leaves room (ray 2.60.0,
/// `resolve_object_store_memory`).
const SHARED_MEMORY_SHARE: f64 = 0.95;
/// Ray starts no node with a larger object store than this that `/dev/shm` does not hold (ray 2.60.0,
/// `REQUIRE_SHM_SIZE_THRESHOLD`); a smaller one it keeps in files.
const MOST_IN_FILES: u64 = 10_000_000_000;
/// The variable that makes Ray start it all the same.
const ALLOWS_FILES: &str = "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE";

/// A demand that the hosts cannot meet: the field's path in the spec, and the message.
pub(crate) type Impossible = (String, String);

/// Lays out the nodes of a spec on these hosts: the head, then the workers, numbered over all groups in order.
pub fn desired(spec: &Spec, machines: &[(Key, Machine)]) -> Result<Vec<NodeSpec>, Impossible> {
    let Some((head_host, head_machine)) = machines.first() else {
        return Err(("hosts".to_owned(), "a cluster takes at least one host".to_owned()));
    };
    let placed = place(spec, machines)?;
    let shares = Share::of_hosts(spec, machines, &placed);
    let head = &spec.ray.head;
    let mut nodes = vec![NodeSpec {
        key: Key::head(),
        role: NodeRole::Head,
        host: head_host.clone(),
        ray_version: spec.ray.version.clone(),
        cpus: head.cpus,
        gpus: 0,
        first_gpu: None,
        memory: head.memory.map_or_else(|| task_memory(head_machine), |memory| memory.0),
        object_store_memory: object_store(head.object_store_memory.map(|memory| memory.0), head_machine),
        resources: BTreeMap::new(),
        labels: BTreeMap::new(),
        environment: spec.environment.clone(),
        dashboard_port: head.dashboard_port,
    }];
    let mut next_gpu: BTreeMap<usize, u32> = BTreeMap::new();
    for (index, worker) in placed.iter().enumerate() {
        let group = &spec.ray.workers.groups()[worker.group];
        let ((host, machine), share) = (&machines[worker.host], &shares[worker.host]);
        let first = next_gpu.entry(worker.host).or_default();
        let first_gpu = (worker.gpus > 0 && spec.gpu == GpuProof::Proven).then_some(*first);
        *first += worker.gpus;
        let cpus = group.cpus.unwrap_or(share.cpus);
        let mut labels = group.labels.clone();
        labels.extend(group.name.iter().map(|name| (GROUP_LABEL.to_owned(), name.clone())));
        nodes.push(NodeSpec {
            key: Key::worker(index),
            role: NodeRole::Worker,
            host: host.clone(),
            ray_version: spec.ray.version.clone(),
            cpus,
            gpus: worker.gpus,
            first_gpu,
            memory: group.memory.map_or_else(|| share.memory(cpus, task_memory(machine)), |memory| memory.0),
            object_store_memory: object_store(group.object_store_memory.map(|memory| memory.0), machine),
            resources: group.resources.clone(),
            labels,
            environment: spec.environment.clone(),
            dashboard_port: None,
        });
    }
    check(spec, machines, &placed, &nodes)?;
    Ok(nodes)
}

/// Decides on which host each worker runs, and with how many GPUs. Groups do not affect each other's hosts.
fn place(spec: &Spec, machines: &[(Key, Machine)]) -> Result<Vec<Placed>, Impossible> {
    let mut placed = Vec::new();
    for (index, group) in spec.ray.workers.groups().iter().enumerate() {
        let hosts: Vec<usize> = (0..machines.len()).filter(|host| spec.runs_on(group, *host)).collect();
        let all_gpus = |host: usize| machines[host].1.gpus;
        let put = |host: usize, gpus: u32| Placed { group: index, host, gpus };
        let before = placed.len();
        match (group.per, group.count) {
            (Some(Per::Gpu), _) => {
                placed.extend(hosts.iter().flat_map(|host| (0..all_gpus(*host)).map(move |_| put(*host, 1))));
                if placed.len() == before {
                    return Err((
                        format!("{}.per", spec.ray.workers.path(index)),
                        "there is no GPU for a worker; for logical GPUs set `count`, `gpus` and `gpu: declared`"
                            .to_owned(),
                    ));
                }
            }
            (Some(Per::Host), _) => {
                placed.extend(hosts.iter().map(|host| put(*host, group.gpus.unwrap_or_else(|| all_gpus(*host)))));
            }
            (None, count) => {
                let around = hosts.iter().cycle().take(count.unwrap_or(1) as usize);
                placed.extend(around.map(|host| put(*host, group.gpus.unwrap_or(0))));
            }
        }
    }
    Ok(placed)
}

/// Refuses demands that a host cannot meet.
fn check(spec: &Spec, machines: &[(Key, Machine)], placed: &[Placed], nodes: &[NodeSpec]) -> Result<(), Impossible> {
    for (number, (host, machine)) in machines.iter().enumerate() {
        let here = || nodes.iter().filter(|node| node.host == *host);
        // The last group there is the one to reduce, as it was added to the others.
        let last = |takes: &dyn Fn(&Placed) -> bool| {
            let last = placed.iter().rev().find(|worker| worker.host == number && takes(worker));
            last.map(|worker| spec.ray.workers.path(worker.group))
        };
        let of_last = |key: &str| format!("{}.{key}", last(&|_| true).as_deref().unwrap_or("ray.head"));
        let gpus: u32 = here().map(|node| node.gpus).sum();
        if spec.gpu == GpuProof::Proven && gpus > machine.gpus {
            return Err((
                format!("{}.gpus", last(&|worker| worker.gpus > 0).as_deref().unwrap_or("ray.workers")),
                format!(
                    "the workers need {}, but {} has {}; for logical GPUs set `gpu: declared`",
                    count(gpus as usize, "GPU"),
                    host.display_name(),
                    machine.gpus
                ),
            ));
        }
        let too_large = |node: &&NodeSpec| {
            node.object_store_memory > machine.shared_memory.max(MOST_IN_FILES)
                && machine.shared_memory > 0
                && !spec.environment.contains_key(ALLOWS_FILES)
        };
        if let Some(node) = here().find(too_large) {
            return Err((
                if node.role == NodeRole::Head {
                    "ray.head.object_store_memory".to_owned()
                } else {
                    of_last("object_store_memory")
                },
                format!(
                    "{} needs {} for objects, but /dev/shm of {} holds {}, and Ray refuses to keep so much in files; ask \
                     for less, or enlarge it",
                    node.key.display_name(),
                    bytes(node.object_store_memory),
                    host.display_name(),
                    bytes(machine.shared_memory)
                ),
            ));
        }
        if spec.oversubscribe {
            continue;
        }
        let cpus: u32 = here().map(|node| node.cpus).sum();
        if cpus > machine.cpus {
            let path = if spec.ray.head.cpus > machine.cpus { "ray.head.cpus".to_owned() } else { of_last("cpus") };
            return Err((
                path,
                format!(
                    "the nodes need {}, but {} has {}{}; ask for less, or set `oversubscribe: true`",
                    count(cpus as usize, "CPU"),
                    host.display_name(),
                    machine.cpus,
                    reason(machine.cpus_limit.as_ref())
                ),
            ));
        }
        let stores: u64 = here().map(|node| node.object_store_memory).sum();
        if stores > machine.memory {
            return Err((
                of_last("object_store_memory"),
                format!(
                    "the nodes need {} for objects, but {} has {}{}; ask for less, or set `oversubscribe: true`",
                    bytes(stores),
                    host.display_name(),
                    bytes(machine.memory),
                    reason(machine.memory_limit.as_ref())
                ),
            ));
        }
    }
    Ok(())
}

fn object_store(asked: Option<u64>, machine: &Machine) -> u64 {
    asked.unwrap_or_else(|| {
        // A tenth of the share of all nodes, so that ten nodes fit.
        let by_memory = machine.memory as f64 * OBJECT_STORE_SHARE / 10.0;
        let share = match machine.shared_memory {
            0 => by_memory,
            all => by_memory.min(all as f64 * SHARED_MEMORY_SHARE / 10.0),
        };
        (share as u64).clamp(LEAST_OBJECT_STORE, 8 << 30)
    })
}

/// ` (limit of the cgroup /user.slice)`, or nothing.
fn reason(limit: Option<&Limit>) -> String {
    limit.map(|limit| format!(" ({limit})")).unwrap_or_default()
}

/// What limits the processors and the memory of the hosts, one sentence for each host.
pub fn limits(machines: &[(Key, Machine)]) -> Vec<String> {
    let of_host = |(host, machine): &(Key, Machine)| {
        let memory =
            machine.memory_limit.as_ref().map(|limit| format!("{} of memory ({limit})", bytes(machine.memory)));
        let cpus =
            machine.cpus_limit.as_ref().map(|limit| format!("{} ({limit})", count(machine.cpus as usize, "CPU")));
        let parts: Vec<String> = memory.into_iter().chain(cpus).collect();
        (!parts.is_empty()).then(|| format!("{} has {} for the cluster", host.display_name(), parts.join(" and ")))
    };
    machines.iter().filter_map(of_host).collect()
}

/// Warns of object stores that `/dev/shm` does not hold, one sentence for each host.
pub fn small_shared_memory(machines: &[(Key, Machine)], nodes: &[NodeSpec]) -> Vec<String> {
    let of_host = |(host, machine): &(Key, Machine)| {
        let stores: Vec<u64> =
            nodes.iter().filter(|node| node.host == *host).map(|node| node.object_store_memory).collect();
        let (all, room) = (stores.iter().sum::<u64>(), machine.shared_memory);
        if room == 0 || all <= room {
            return None;
        }
        let effect = match stores.iter().any(|store| *store > room) {
            true => "Ray keeps such a store in files on the disk, which is slow",
            false => "a node ends when objects fill it",
        };
        Some(format!(
            "/dev/shm of {} holds {}, and its nodes have {} of object stores: {effect}; enlarge it (`docker run \
             --shm-size`, `mount -o remount,size=`), or set `object_store_memory`",
            host.display_name(),
            bytes(room),
            bytes(all)
        ))
    };
    machines.iter().filter_map(of_host).collect()
}
