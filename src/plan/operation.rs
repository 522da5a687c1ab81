//! The plan: a DAG of operations, each one mutating call, with its cause.

use std::fmt;

use serde::Serialize;

use crate::name::Key;
use crate::provider::{ObservedResource, ResourceRequest};

/// One mutating call. Its discriminant is what crash tests count by.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Acquire one resource from the provider.
    Acquire {
        /// What is asked for.
        request: ResourceRequest,
    },
    /// Wait until a resource that is there is usable.
    Await {
        /// What was asked for.
        request: ResourceRequest,
        /// Its id.
        id: String,
    },
    /// Bring a host to the state that the runtime needs.
    Prepare {
        /// The digest of that state.
        digest: String,
    },
    /// Open the cluster's ports of a host to its other hosts alone; the host's next connection keeps it so.
    SetFirewall {
        /// The digest of what is opened, and to whom.
        digest: String,
    },
    /// Bring what runs on a host to what the spec says: its files, its nodes and services, healthy.
    Deploy {
        /// The host.
        host: Key,
        /// What becomes of each node on it.
        nodes: Vec<NodeChange>,
    },
    /// End the containers of a host's project; files and volumes stay.
    StopProject {
        /// The host.
        host: Key,
    },
    /// Leave a host as it was found: remove all that is on it of this cluster.
    Clean {
        /// The host.
        host: Key,
    },
    /// Release one resource.
    Release {
        /// What `observe` told of it.
        resource: ObservedResource,
    },
}

impl Action {
    /// What it does, in the words of the plan.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::Await { .. } => "wait for",
            Self::Prepare { .. } => "prepare",
            Self::SetFirewall { .. } => "set firewall",
            Self::Deploy { .. } => "deploy",
            Self::StopProject { .. } => "stop project",
            Self::Clean { .. } => "clean host",
            Self::Release { .. } => "release",
        }
    }

    /// It removes something.
    pub fn removes(&self) -> bool {
        matches!(self, Self::StopProject { .. } | Self::Clean { .. } | Self::Release { .. })
    }
}

/// What a deployment does to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It runs as it should, and is left alone.
    Keep,
    /// It does not run, and is started.
    Start,
    /// It is ended, and started anew.
    Restart,
    /// It is ended.
    Stop,
}

impl Change {
    /// What it does, in the words of the plan.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Stop => "stop",
        }
    }
}

/// What becomes of one node in a deployment, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeChange {
    /// The node.
    pub node: Key,
    /// What is done to it.
    pub change: Change,
    /// Why.
    pub cause: String,
}

/// One operation of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Operation {
    /// Its number, from 1.
    pub id: usize,
    /// The thing it is done to.
    pub key: Key,
    /// What is done.
    #[serde(flatten)]
    pub action: Action,
    /// Why.
    pub cause: String,
    /// What must be done first.
    pub after: Vec<usize>,
}

/// All that is to be done. An operation's predecessors have smaller numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// The operations, in an order in which they could be done one by one.
    pub operations: Vec<Operation>,
}

impl Plan {
    /// Adds an operation; hands back its number.
    pub(super) fn add(&mut self, key: &Key, action: Action, cause: impl Into<String>, after: Vec<usize>) -> usize {
        let id = self.operations.len() + 1;
        self.operations.push(Operation { id, key: key.clone(), action, cause: cause.into(), after });
        id
    }

    /// There is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for operation in &self.operations {
            if !operation.after.is_empty() {
                let after: Vec<String> = operation.after.iter().map(ToString::to_string).collect();
                write!(out, "[{}] -> ", after.join(","))?;
            }
            writeln!(
                out,
                "#{} {}, {}: {}",
                operation.id,
                operation.key.display_name(),
                operation.action.name(),
                operation.cause
            )?;
            if let Action::Deploy { nodes, .. } = &operation.action {
                for NodeChange { node, change, cause } in nodes {
                    writeln!(out, "    {} {}: {cause}", change.name(), node.display_name())?;
                }
            }
        }
        Ok(())
    }
}
