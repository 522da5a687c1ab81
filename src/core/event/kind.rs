//! The types of the events.

use serde::{Deserialize, Serialize};

/// The version of the event format.
pub(super) const VERSION: u32 = 1;

/// One thing that happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// The version of this format.
    pub v: u32,
    /// The number of this event within its run, from 0.
    pub seq: u64,
    /// When it happened.
    pub at: jiff::Timestamp,
    /// The cluster it concerns, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// How an operation or a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It succeeded.
    Done,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// How a playbook step on a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// It changed something.
    Changed,
    /// Nothing to do: already in the wanted state.
    Skipped,
    /// It failed.
    Failed,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// The expected state was observed.
    Passed,
    /// The expected state was not observed.
    Failed,
    /// The spec declares it; it cannot be checked.
    Declared,
    /// Worth knowing but not a failure, such as an open port and what protects it.
    Noted,
}

/// An address that a user can open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The service at the address: `dashboard`, `client`.
    pub name: String,
    /// The URL.
    pub url: String,
}

/// The GPUs of a worker, with the proof that they belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerGpus {
    /// The host's name: `host-0`.
    pub host: String,
    /// The worker's name: `worker-0`.
    pub worker: String,
    /// The GPU ids, as printed by the driver's tool.
    pub gpus: Vec<String>,
    /// The product name of the GPUs.
    pub product: String,
    /// The result of the call to the driver's library.
    pub proof: String,
}

/// What happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A command that changes something began.
    RunStarted {
        /// `up`, `down`, `stop`.
        verb: String,
        /// The id of the run's record.
        run: String,
    },
    /// The plan was made.
    PlanReady {
        /// The plan as text.
        text: String,
        /// The number of operations.
        operations: usize,
    },
    /// An operation began.
    OperationStarted {
        /// The operation's number in the plan.
        operation: usize,
        /// The action: `start node`.
        action: String,
        /// The target of the action: `worker-0`.
        target: String,
        /// Why the operation is needed.
        cause: String,
    },
    /// An operation ended.
    OperationFinished {
        /// The operation's number in the plan.
        operation: usize,
        /// The action: `start node`.
        action: String,
        /// The target of the action: `worker-0`.
        target: String,
        /// How it ended.
        finish: Finish,
        /// How long it took, in milliseconds.
        milliseconds: u64,
    },
    /// The run waits for something, until the next `Waiting` or `Check` event.
    Waiting {
        /// What it waits for: `worker-0 to join`.
        what: String,
        /// The total timeout, in milliseconds.
        limit_milliseconds: u64,
    },
    /// A playbook step on a host ended.
    Step {
        /// The host's name.
        host: String,
        /// The stage: `prepare`.
        stage: String,
        /// The step's name.
        step: String,
        /// How it ended.
        outcome: StepOutcome,
        /// How long it took, in milliseconds.
        milliseconds: u64,
    },
    /// A line printed by a program on a host.
    HostLine {
        /// The host's name.
        host: String,
        /// The line, without its newline.
        line: String,
    },
    /// The result of a check of the cluster.
    Check {
        /// The check: `node alive`.
        check: String,
        /// The target of the check: `worker-0`.
        target: String,
        /// How it ended.
        outcome: CheckOutcome,
        /// The observation behind the outcome.
        saw: String,
    },
    /// The GPUs that a worker owns, as observed.
    WorkerGpus(WorkerGpus),
    /// A note: worth knowing, no action needed.
    Note {
        /// The text, one sentence.
        message: String,
    },
    /// A warning.
    Warning {
        /// The text, one sentence.
        message: String,
    },
    /// A command that changes something ended.
    RunFinished {
        /// `up`, `down`, `stop`.
        verb: String,
        /// How it ended.
        finish: Finish,
        /// The result in one sentence.
        summary: String,
        /// The addresses that can be opened now.
        endpoints: Vec<Endpoint>,
        /// How long it took, in milliseconds.
        milliseconds: u64,
    },
}
