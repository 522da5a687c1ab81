//! The worker that a drill kills: one of ours, or a pod, of which its group makes another.

use std::sync::Arc;

use crate::cli::app::App;
use crate::cli::commands::worker;
use crate::cli::target::Target;
use crate::cluster::{self, PodHost, Pods};
use crate::error::Result;
use crate::host::Host as _;
use crate::name::Key;
use crate::provider::platform::Member;
use crate::runtime::project::ByHand;
use crate::spec::NodeRole;

/// A worker that can be killed.
#[derive(Clone)]
pub(super) enum Victim {
    /// A worker of ours, which comes back under its name.
    Worker(Key),
    /// A pod: another one takes its place.
    Pod(Arc<Pods>, Member),
}

impl Victim {
    /// The worker that a user has named.
    ///
    /// # Errors
    /// If there is none of that name, or it is the head.
    pub(super) async fn wanted(app: &App, target: &Target, name: &str) -> Result<Self> {
        match target.pods(app).await? {
            Some(pods) => {
                let member = pods.worker(name).await?;
                Ok(Self::Pod(pods, member))
            }
            None => Ok(Self::Worker(cluster::named(&target.known.state, name, "kill")?.key)),
        }
    }

    /// The worker of a Ray node of this name; `None` for the head, and for a node of somebody else's.
    pub(super) async fn of_node(app: &App, target: &Target, name: &str) -> Result<Option<Self>> {
        if let Some(pods) = target.pods(app).await? {
            let is_it = |member: &Member| !member.is_head && PodHost::new(&pods, member).name() == name;
            let found = pods.members().await?.into_iter().find(is_it);
            return Ok(found.map(|member| Self::Pod(pods, member)));
        }
        let nodes = target.known.state.started_nodes();
        let is_it = |node: &&crate::spec::NodeSpec| node.role == NodeRole::Worker && node.key.display_name() == name;
        Ok(nodes.iter().find(is_it).map(|worker| Self::Worker(worker.key.clone())))
    }

    /// Its name in the cluster.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Worker(key) => key.display_name(),
            Self::Pod(pods, member) => PodHost::new(pods, member).name().to_owned(),
        }
    }

    /// Kills it without warning.
    pub(super) async fn kill(&self, app: &App, target: &Target) -> Result<()> {
        match self {
            Self::Worker(key) => worker::by_hand(app, &target.name, key, ByHand::Kill).await.map(|_| ()),
            Self::Pod(pods, member) => pods.platform()?.kill(pods.scope(), &member.name).await,
        }
    }

    /// Starts it again, and says so; `None` where that is the platform's to do.
    pub(super) async fn start(&self, app: &App, target: &Target) -> Result<Option<String>> {
        match self {
            Self::Worker(key) => worker::by_hand(app, &target.name, key, ByHand::Start).await.map(Some),
            Self::Pod(..) => Ok(None),
        }
    }
}
