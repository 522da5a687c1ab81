//! The head does not come up while the nodes of another host wait for it.

use std::time::Duration;

use async_trait::async_trait;
use gpucl::engine::{Hosts, Ledger, World};
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::name::Key;
use gpucl::plan::{HostAction, NodeRequest, Observed};
use gpucl::provider::{ObservedResource, Recorder as _, ResourceRequest};
use gpucl::state::ClusterState;

use super::harness::{Goalish, Harness, desired_projects};

/// Makes everything but a head, and its workers wait for ever.
struct Headless;

#[async_trait]
impl World for Headless {
    async fn observe(&self, _known: &ClusterState) -> Result<Observed> {
        Ok(Observed::default())
    }

    async fn acquire(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<String> {
        ledger.exists(&request.key, "an id").await?;
        Ok("an id".to_owned())
    }

    async fn wait_usable(&self, _request: &ResourceRequest, _id: &str, _ledger: &Ledger) -> Result<()> {
        Ok(())
    }

    async fn release(&self, _resource: &ObservedResource) -> Result<()> {
        Ok(())
    }

    fn hosts(&self) -> Option<&dyn Hosts> {
        Some(self)
    }

    fn consistency_delay(&self) -> Duration {
        Duration::ZERO
    }
}

#[async_trait]
impl Hosts for Headless {
    async fn perform(&self, _key: &Key, action: &HostAction, _ledger: &Ledger) -> Result<()> {
        match action {
            HostAction::Deploy { nodes, .. } if nodes.iter().any(|change| change.node == Key::head()) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(Error::new(ErrorKind::Provider, "start the nodes").because("head ended with exit code 1"))
            }
            HostAction::Deploy { .. } => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn workers_do_not_wait_for_a_head_that_did_not_come_up() {
    let mut desired = desired_projects("a");
    let worker = NodeRequest { digest: Some("a worker".to_owned()), key: Key::worker(0) };
    desired.projects[1].nodes = vec![worker];
    let run = Harness::new(super::world::Bug::None);
    let goal = Goalish::Up(desired);
    let ran = run.run_in(&Headless, &goal);
    let error = tokio::time::timeout(Duration::from_secs(60), ran).await.expect("it still waits").unwrap_err();
    assert_eq!(error, "start the nodes: head ended with exit code 1");
}
