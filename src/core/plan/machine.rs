//! The capacity of a host.

use serde::{Deserialize, Serialize};

use crate::playbook::{Capacity, Facts, Limit, RunAs};
use crate::provider::Runtime;

/// The capacity of a host, as known before the plan: from the provider's offer or from the host's facts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The number of logical processors.
    pub cpus: u32,
    /// The memory in bytes.
    pub memory: u64,
    /// The number of GPUs.
    pub gpus: u32,
    /// The bytes that `/dev/shm` can hold, where nodes use the machine's own; else 0.
    #[serde(default)]
    pub shared_memory: u64,
    /// What limits the processors to less than the machine has.
    #[serde(default)]
    pub cpus_limit: Option<Limit>,
    /// What limits the memory to less than the machine has.
    #[serde(default)]
    pub memory_limit: Option<Limit>,
}

impl Machine {
    /// The capacity of a host with these facts for the nodes of a runtime.
    pub fn of(facts: &Facts, runtime: Runtime) -> Self {
        let (run_as, shared_memory) = match runtime {
            Runtime::Native => (RunAs::Processes, facts.shm_size),
            // Each container has a `/dev/shm` of its own.
            Runtime::Docker => (RunAs::Containers, 0),
        };
        let Capacity { cpus, memory, cpus_limit, memory_limit } = facts.capacity(run_as);
        let gpus = u32::try_from(facts.gpus.len()).unwrap_or(u32::MAX);
        Self { cpus, memory, gpus, shared_memory, cpus_limit, memory_limit }
    }
}
