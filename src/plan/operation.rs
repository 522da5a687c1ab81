//! The plan: a DAG of operations, each one mutating call, with its cause.

use std::fmt;

use serde::Serialize;

use super::NodeSpec;
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
    Guard {
        /// The digest of what is opened, and to whom.
        digest: String,
    },
    /// Start the cluster's agent.
    StartAgent,
    /// Start a node.
    StartNode {
        /// The node.
        node: Box<NodeSpec>,
    },
    /// End a node, and whatever is left of it.
    StopNode,
    /// End the agent.
    StopAgent,
    /// Bring a host's compose project to what the spec says: its files, its containers, healthy.
    Deploy {
        /// The host.
        host: Key,
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
            Self::Guard { .. } => "guard",
            Self::StartAgent => "start agent",
            Self::StartNode { .. } => "start node",
            Self::StopNode => "stop node",
            Self::StopAgent => "stop agent",
            Self::Deploy { .. } => "deploy",
            Self::StopProject { .. } => "stop project",
            Self::Clean { .. } => "clean host",
            Self::Release { .. } => "release",
        }
    }

    /// It removes something.
    pub fn removes(&self) -> bool {
        matches!(
            self,
            Self::StopNode | Self::StopAgent | Self::StopProject { .. } | Self::Clean { .. } | Self::Release { .. }
        )
    }
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
        }
        Ok(())
    }
}
