//! Providers with a deliberate mistake, so that it shows that the matrix would notice.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::name::{Key, Owner, Scope, Tag};
use gpucl::provider::{
    Acquired, Capability, HostPlace, HostRequest, ObservedResource, Offer, Provider, Recorder, Resolved,
    ResourceRequest,
};
use gpucl::sandbox::lambda::Sandbox;
use serde_json::json;

use super::row::held;

/// Mistakes that the matrix must catch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Launches again when the answer is lost.
    SecondOnLostAnswer,
    /// Takes a server's error for "nothing happened", and launches again.
    TakesAnErrorForNothing,
    /// Takes a page of a proxy for "nothing happened", and launches again.
    TakesAPageForNothing,
    /// Knows only the ids that it was told in this process.
    ForgetsIds,
    /// Terminates all whose name begins as ours does.
    TerminatesByPrefix,
}

/// The real provider, with a mistake in how it treats instances.
pub(crate) struct Buggy {
    inner: Box<dyn Provider>,
    bug: Bug,
    sandbox: Arc<Sandbox>,
    ids: Mutex<BTreeSet<String>>,
}

impl Buggy {
    pub(crate) fn new(inner: Box<dyn Provider>, bug: Bug, sandbox: Arc<Sandbox>) -> Self {
        Self { inner, bug, sandbox, ids: Mutex::default() }
    }

    /// Launches without looking; again when that seems to have failed.
    async fn blindly(&self, tag: &Tag, recorder: &dyn Recorder) -> Result<Acquired> {
        let scope = Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() };
        let body = json!({
            "region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "name": tag.to_string(),
            "ssh_key_names": [scope.tag(&"key0".parse::<Key>().unwrap()).to_string()],
            "tags": [{ "key": "gpucl", "value": tag.to_string() }],
        });
        for _ in 0..2 {
            let id = match super::post(&self.sandbox, "/instance-operations/launch", &body).await {
                None if self.bug == Bug::SecondOnLostAnswer => continue,
                Some((500.., answer)) if self.bug == Bug::TakesAnErrorForNothing && answer.is_object() => continue,
                Some((500.., answer)) if self.bug == Bug::TakesAPageForNothing && answer.is_null() => continue,
                Some((_, answer)) => answer["data"]["instance_ids"][0].as_str().map(str::to_owned),
                None => None,
            };
            let Some(id) = id else { break };
            recorder.exists(&tag.key, &id).await?;
            self.ids.lock().unwrap().insert(id.clone());
            return Ok(Acquired { id, was_there: false });
        }
        Err(Error::new(ErrorKind::Provider, "launch an instance"))
    }
}

#[async_trait]
impl Provider for Buggy {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        self.inner.offers().await
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        let mut owned = self.inner.owned(owner).await?;
        if self.bug == Bug::ForgetsIds {
            owned.retain(|(_, found)| found.kind.0 != "instance" || self.ids.lock().unwrap().contains(&found.id));
        }
        Ok(owned)
    }

    async fn tagged(&self) -> Result<Vec<(Tag, ObservedResource)>> {
        self.inner.tagged().await
    }

    async fn resolve(&self, scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
        self.inner.resolve(scope, hosts).await
    }

    async fn observe_adopted(&self, requests: &[ResourceRequest]) -> Result<Vec<ObservedResource>> {
        self.inner.observe_adopted(requests).await
    }

    async fn wait_usable(&self, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
        self.inner.wait_usable(tag, request, id).await
    }

    fn expand(&self, scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        self.inner.expand(scope, request)
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        let launches_blindly = !matches!(self.bug, Bug::None | Bug::TerminatesByPrefix);
        match request.kind.0.as_str() {
            "instance" if launches_blindly => self.blindly(tag, recorder).await,
            _ => self.inner.acquire(tag, request, recorder).await,
        }
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        if self.bug == Bug::TerminatesByPrefix && resource.kind.0 == "instance" {
            let prefix = format!("gpucl-{}-{}", scope.owner, scope.cluster);
            let all = held(&self.sandbox);
            let ids: Vec<&String> = all
                .iter()
                .filter(|thing| thing.kind == "instance" && thing.name.starts_with(&prefix))
                .map(|thing| &thing.id)
                .collect();
            super::post(&self.sandbox, "/instance-operations/terminate", &json!({ "instance_ids": ids })).await;
            return Ok(());
        }
        self.inner.release(scope, resource).await
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        self.inner.place(tag, id).await
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        self.inner.refused_request(key)
    }
}
