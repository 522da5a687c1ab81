//! What a person does to one worker, without a change of the spec.

use std::time::Duration;

use serde::Serialize;

use crate::render::quote;

/// What is done to a worker by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ByHand {
    /// It is ended, and stays so until it is started.
    Stop,
    /// It is started again.
    Start,
    /// It is killed without warning, as by a fault. What restarts workers that end restarts it.
    Kill,
}

impl ByHand {
    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Kill => "kill",
        }
    }

    /// The whole command, as the cluster's lock names it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Stop => "worker stop",
            Self::Start => "worker start",
            Self::Kill => "worker kill",
        }
    }

    /// What the worker is afterwards.
    pub fn past(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Start => "running",
            Self::Kill => "killed",
        }
    }

    /// The last line of a script that succeeded.
    pub fn done(self) -> String {
        format!("::worker {}", self.past())
    }

    /// A script that does it: `header` defines what the runtime's `functions` need, and these are named
    /// `stop_worker`, `start_worker` and `kill_worker`.
    pub(crate) fn script(self, header: &str, worker: &str, key: &str, limit: Duration, functions: &str) -> String {
        let (worker, key, limit) = (quote(worker), quote(key), limit.as_secs());
        format!("{header}worker={worker}\nkey={key}\nlimit={limit}\nact={}\n{functions}", self.name())
    }
}
