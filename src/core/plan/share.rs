//! What a worker has of its host where the spec gives no numbers.

use super::machine::Machine;
use crate::name::Key;
use crate::provider::Runtime;
use crate::spec::Spec;

/// A host's CPUs for each one that is left to the services on it.
const CPUS_PER_RESERVED: u32 = 8;
/// The most CPUs that are left to services; chosen, not measured.
const MOST_RESERVED: u32 = 4;
/// The most CPUs of a worker that is a process, by default: a node has 88 ports for the processes of its tasks, one for
/// each CPU and some for actors without CPUs and for drivers.
const MOST_OF_PROCESS: u32 = 64;
/// The part of a host's memory that is for tasks; the rest is for the system, Ray itself, objects and services.
const TASK_MEMORY_SHARE: f64 = 0.5;

/// A worker on a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    /// The index of its group in the spec.
    pub(super) group: usize,
    /// The index of its host.
    pub(super) host: usize,
    /// The number of its GPUs.
    pub(super) gpus: u32,
}

/// What the workers of one host have by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// The CPUs of each worker whose group does not say how many; at least 1.
    pub(super) cpus: u32,
    /// The CPUs of the host without those of services; at least 1.
    whole: u32,
}

impl Share {
    /// The share of a worker on each host. The workers that do not say how many CPUs they need have equal parts of what
    /// services, head and the others leave.
    pub(super) fn of_hosts(spec: &Spec, machines: &[(Key, Machine)], placed: &[Placed]) -> Vec<Self> {
        let groups = spec.ray.workers.groups();
        let of_host = |host: usize, machine: &Machine| {
            let here = || placed.iter().filter(|worker| worker.host == host).map(|worker| groups[worker.group].cpus);
            let has_head = host == 0;
            let reserved = if has_head && spec.runs_services() { reserved(machine.cpus) } else { 0 };
            let whole = machine.cpus - reserved;
            let by_head = if has_head { spec.ray.head.cpus } else { 0 };
            let taken = here().flatten().fold(by_head, u32::saturating_add);
            let sharing = u32::try_from(here().filter(Option::is_none).count()).unwrap_or(u32::MAX);
            let cpus = whole.saturating_sub(taken).checked_div(sharing).unwrap_or_default();
            let most = if spec.runtime == Runtime::Native { MOST_OF_PROCESS } else { u32::MAX };
            Self { cpus: cpus.clamp(1, most), whole: whole.max(1) }
        };
        machines.iter().enumerate().map(|(host, (_, machine))| of_host(host, machine)).collect()
    }

    /// The memory for tasks of a worker with so many CPUs: as large a part of `all` as it has of the CPUs. It does not
    /// depend on the other workers, so that one more changes no worker whose CPUs the spec gives.
    pub(super) fn memory(self, cpus: u32, all: u64) -> u64 {
        let part = u128::from(all) * u128::from(cpus.clamp(1, self.whole)) / u128::from(self.whole);
        u64::try_from(part).unwrap_or(all)
    }
}

/// The memory of a host that is for tasks, in bytes.
pub(super) fn task_memory(machine: &Machine) -> u64 {
    (machine.memory as f64 * TASK_MEMORY_SHARE) as u64
}

/// The CPUs of the head's host that are left to services: one for each whole eight, at most four.
fn reserved(cpus: u32) -> u32 {
    (cpus / CPUS_PER_RESERVED).min(MOST_RESERVED)
}
