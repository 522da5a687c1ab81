//! A provider's capabilities, as data.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a provider supplies hosts or runs the cluster itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// It supplies hosts; the engine prepares them and deploys to them.
    Host,
    /// It accepts a rendered manifest and runs the cluster itself.
    Platform,
}

/// How Ray runs on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// In a virtual environment, as supervised processes.
    #[default]
    Native,
    /// In containers, one compose project per host.
    Docker,
}

impl Runtime {
    /// The runtime's name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker => "docker",
        }
    }
}

/// What a provider can do. The engine and the conformance suite decide by it, never by a provider's name.
#[derive(Debug, Clone, Serialize)]
pub struct Capability {
    /// Whether it supplies hosts or whole clusters.
    pub kind: ProviderKind,
    /// Its resources are billed or charged to an allocation.
    pub costs_money: bool,
    /// A reservation can be extended (`extend`).
    pub extend: bool,
    /// Hosts are reserved by name and time, with `gpucl lease` and `gpucl calendar`.
    pub reserves: bool,
    /// A host is created when acquired and destroyed when released, so it needs no cleanup.
    pub hosts_vanish: bool,
    /// Its hosts are the user's own machine.
    pub is_here: bool,
    /// A host gets its host key by user data, which others can read: it is replaced after the first connection.
    pub host_key_in_user_data: bool,
    /// How long a host may take from its acquisition until it can be connected to.
    #[serde(serialize_with = "seconds")]
    pub boot: Duration,
    /// One host needs several resources (lease, key, server, address), so an acquire can fail half-way.
    pub several_resources: bool,
    /// Other owners may use the same account, project or machine.
    pub shared_account: bool,
    /// Only the first host is reachable directly; the others are reached through it.
    pub behind_first: bool,
    /// The poll interval of a capacity wait.
    #[serde(serialize_with = "seconds")]
    pub poll: Duration,
    /// How long the effect of a call may be missing from `observe`.
    #[serde(serialize_with = "seconds")]
    pub consistency_delay: Duration,
    /// The supported runtimes.
    pub runtimes: &'static [Runtime],
    /// The maximum number of hosts per cluster; `None` for no limit.
    pub most_hosts: Option<usize>,
}

/// The usual poll interval of a capacity wait.
pub const USUAL_POLL: Duration = Duration::from_secs(30);

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
