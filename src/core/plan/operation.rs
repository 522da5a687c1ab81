//! The plan: a DAG of operations. Each is one mutating call with its cause.

use std::fmt;

use serde::Serialize;

use crate::name::Key;
use crate::provider::{ObservedResource, ResourceRequest};

/// One mutating call, and the wait for its effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "a plan has tens of them, and boxes would be in every pattern")]
pub enum Action {
    /// On a resource at the provider.
    Resource(ResourceAction),
    /// On a host that exists.
    Host(HostAction),
}

/// What is done to a resource. Crash tests count by its discriminant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ResourceAction {
    /// Acquire it from the provider, and wait until it is usable.
    Acquire {
        /// The resource to acquire.
        request: ResourceRequest,
    },
    /// Wait until an existing one is usable.
    Await {
        /// The request that created it.
        request: ResourceRequest,
        /// The provider's id of the resource.
        id: String,
    },
    /// Change an existing one in place.
    Update {
        /// What it should be.
        request: ResourceRequest,
        /// The provider's id of the resource.
        id: String,
    },
    /// Release it.
    Release {
        /// The resource, as observed.
        resource: ObservedResource,
    },
}

/// What is done on a host. Crash tests count by its discriminant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum HostAction {
    /// Bring it to the state that the runtime needs.
    Prepare {
        /// The digest of the host's preparation.
        digest: String,
    },
    /// Open its cluster ports to the other hosts only; the next connection to it confirms that.
    SetFirewall {
        /// The digest of the firewall's rules.
        digest: String,
    },
    /// Fill its data sets, before any node starts.
    Fill {
        /// The digest of the data sets.
        digest: String,
    },
    /// Bring its files, nodes and services to what the spec says, and wait until they are healthy.
    Deploy {
        /// The key of the host.
        host: Key,
        /// The change to each node on it.
        nodes: Vec<NodeChange>,
    },
    /// End the nodes and services of its project; files and volumes stay.
    StopProject {
        /// The key of the host.
        host: Key,
    },
    /// Remove everything of the cluster from it, and leave it as it was found.
    Clean {
        /// The key of the host.
        host: Key,
    },
}

impl Action {
    /// The name in the plan's text.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Resource(action) => action.name(),
            Self::Host(action) => action.name(),
        }
    }

    /// Whether it stops or removes something.
    pub fn removes(&self) -> bool {
        matches!(
            self,
            Self::Resource(ResourceAction::Release { .. })
                | Self::Host(HostAction::StopProject { .. } | HostAction::Clean { .. })
        )
    }
}

impl ResourceAction {
    /// The name in the plan's text.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::Await { .. } => "wait for",
            Self::Update { .. } => "update",
            Self::Release { .. } => "release",
        }
    }
}

impl HostAction {
    /// The name in the plan's text.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Prepare { .. } => "prepare",
            Self::SetFirewall { .. } => "set firewall",
            Self::Fill { .. } => "fill data",
            Self::Deploy { .. } => "deploy",
            Self::StopProject { .. } => "stop project",
            Self::Clean { .. } => "clean host",
        }
    }
}

impl From<ResourceAction> for Action {
    fn from(action: ResourceAction) -> Self {
        Self::Resource(action)
    }
}

impl From<HostAction> for Action {
    fn from(action: HostAction) -> Self {
        Self::Host(action)
    }
}

/// What a deployment does to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It runs as wanted and is left alone.
    Keep,
    /// It does not run and is started.
    Start,
    /// It is ended and started again.
    Restart,
    /// It is ended for good.
    Stop,
}

impl Change {
    /// The name in the plan's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Stop => "stop",
        }
    }
}

/// The change to one node in a deployment, with its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeChange {
    /// The key of the node.
    pub node: Key,
    /// The change that the deployment makes.
    pub change: Change,
    /// Why it is done, as shown to the user.
    pub cause: String,
}

/// One operation of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Operation {
    /// The number, from 1.
    pub id: usize,
    /// The item it changes.
    pub key: Key,
    /// The mutating call.
    #[serde(flatten)]
    pub action: Action,
    /// Why it is done, as shown to the user.
    pub cause: String,
    /// The numbers of the operations that must be done first.
    pub after: Vec<usize>,
}

/// The operations to run. An operation's predecessors have smaller numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// The operations, in a valid sequential order.
    pub operations: Vec<Operation>,
}

impl Plan {
    /// Adds an operation and returns its number.
    pub(super) fn add(
        &mut self,
        key: &Key,
        action: impl Into<Action>,
        cause: impl Into<String>,
        after: Vec<usize>,
    ) -> usize {
        let id = self.operations.len() + 1;
        let (key, action, cause) = (key.clone(), action.into(), cause.into());
        self.operations.push(Operation { id, key, action, cause, after });
        id
    }

    /// Whether there is nothing to do.
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
            if let Action::Host(HostAction::Deploy { nodes, .. }) = &operation.action {
                for NodeChange { node, change, cause } in nodes {
                    writeln!(out, "    {} {}: {cause}", change.name(), node.display_name())?;
                }
            }
        }
        Ok(())
    }
}
