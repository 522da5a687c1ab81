//! The events themselves.

use serde::{Deserialize, Serialize};

/// The version of the events' form.
pub(super) const VERSION: u32 = 1;

/// One thing that happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// The version of this form.
    pub v: u32,
    /// The number of this event within its run, from 0.
    pub seq: u64,
    /// When it happened.
    pub at: jiff::Timestamp,
    /// The cluster it is about, if one is known.
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
    /// It did what it was to do.
    Done,
    /// It failed.
    Failed,
    /// It was stopped.
    Cancelled,
}

/// How a step of a program on a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// It changed something.
    Changed,
    /// What it would do was done already.
    Skipped,
    /// It failed.
    Failed,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// What was promised was seen.
    Passed,
    /// What was promised was not seen.
    Failed,
    /// The spec declares it; nothing can be seen of it.
    Declared,
    /// Something to know that is no failure, such as an open port and what protects it.
    Noted,
}

/// An address that a person may open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// What answers there: `dashboard`, `client`.
    pub name: String,
    /// The address.
    pub url: String,
}

/// The GPUs of a worker, and the proof that they are its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerGpus {
    /// The host: `host-0`.
    pub host: String,
    /// The worker: `worker-0`.
    pub worker: String,
    /// Their ids, as the driver's tool gives them.
    pub gpus: Vec<String>,
    /// What they are called.
    pub product: String,
    /// What came of the call of the driver's library.
    pub proof: String,
}

/// What happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A command that changes something has begun.
    RunStarted {
        /// `up`, `down`, `stop`.
        verb: String,
        /// The id of its record.
        run: String,
    },
    /// The plan was made.
    PlanReady {
        /// Its text form.
        text: String,
        /// How many operations it holds.
        operations: usize,
    },
    /// An operation began.
    OperationStarted {
        /// Its number in the plan.
        operation: usize,
        /// What it does: `start node`.
        action: String,
        /// What it does it to: `worker-0`.
        target: String,
        /// Why.
        cause: String,
    },
    /// An operation says what it does or waits for.
    OperationProgress {
        /// Its number in the plan.
        operation: usize,
        /// What it does or waits for.
        message: String,
    },
    /// An operation ended.
    OperationFinished {
        /// Its number in the plan.
        operation: usize,
        /// What it did: `start node`.
        action: String,
        /// What it did it to: `worker-0`.
        target: String,
        /// How it ended.
        finish: Finish,
        /// How long it took, in milliseconds.
        milliseconds: u64,
    },
    /// The run waits for something; it holds until the next event of this kind, or a check.
    Waiting {
        /// What it waits for: `worker-0 to join`.
        what: String,
        /// How long it will wait in all, in milliseconds.
        limit_milliseconds: u64,
    },
    /// A step of a program on a host ended.
    Step {
        /// The host.
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
    /// A line that a program on a host printed.
    HostLine {
        /// The host.
        host: String,
        /// The line.
        line: String,
    },
    /// A check of the cluster.
    Check {
        /// What is checked: `node alive`.
        check: String,
        /// What it is checked on: `worker-0`.
        target: String,
        /// How it ended.
        outcome: CheckOutcome,
        /// What was seen.
        saw: String,
    },
    /// The GPUs that a worker was seen to own.
    WorkerGpus(WorkerGpus),
    /// Something to know.
    Note {
        /// The sentence.
        message: String,
    },
    /// Something to know that may be unwelcome.
    Warning {
        /// The sentence.
        message: String,
    },
    /// A command that changes something has ended.
    RunFinished {
        /// `up`, `down`, `stop`.
        verb: String,
        /// How it ended.
        finish: Finish,
        /// In one sentence.
        summary: String,
        /// What answers now, and where.
        endpoints: Vec<Endpoint>,
        /// How long it took, in milliseconds.
        milliseconds: u64,
    },
}
