//! What a provider can do, as data.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a provider hands over hosts or runs the cluster itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// It hands over hosts; the engine prepares them and deploys.
    Host,
    /// It takes a rendered manifest and runs the cluster itself.
    Platform,
}

/// How Ray runs on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// A virtual environment and supervised processes.
    #[default]
    Native,
    /// Containers of one compose project per host.
    Docker,
}

impl Runtime {
    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker => "docker",
        }
    }
}

/// What a provider can do. The engine and the conformance suite read it; nobody asks for a name.
#[derive(Debug, Clone, Serialize)]
pub struct Capability {
    /// Hosts or whole clusters.
    pub kind: ProviderKind,
    /// What it hands over is billed or counted.
    pub costs_money: bool,
    /// A reservation can be made longer (`extend`).
    pub extend: bool,
    /// Hosts are reserved by name and time: `gpucl lease`, `gpucl calendar`.
    pub reserves: bool,
    /// A host is made when it is acquired and is no more when it is released: nothing on it needs to be cleaned.
    pub hosts_vanish: bool,
    /// How long a host may take from its acquisition until it answers.
    #[serde(serialize_with = "seconds")]
    pub boot: Duration,
    /// A host's console can be read.
    pub console: bool,
    /// One host takes several resources (lease, key, server, address), so an acquire can end half-way.
    pub several_resources: bool,
    /// Who else's resources could be there: other owners use the same account, project or machine.
    pub shared_account: bool,
    /// Only the first host is reached from here; the others are reached through it.
    pub behind_first: bool,
    /// How often it may be asked again for what it has none of now.
    #[serde(serialize_with = "seconds")]
    pub poll: Duration,
    /// How long after a call its effect may still be missing from `observe`.
    #[serde(serialize_with = "seconds")]
    pub consistency_delay: Duration,
    /// The runtimes that can be deployed on it.
    pub runtimes: &'static [Runtime],
    /// The most hosts one cluster may have; `None` is no limit.
    pub most_hosts: Option<usize>,
}

/// How often most providers may be asked again for what they have none of now.
pub const USUAL_POLL: Duration = Duration::from_secs(30);

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
