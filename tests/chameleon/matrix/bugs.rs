//! Providers with a deliberate mistake, so that it shows that the matrix would notice.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::name::{Key, Owner, Scope, Tag};
use gpucl::provider::{
    Acquired, Capability, HostPlace, HostRequest, ObservedResource, Offer, Provider, Recorder, Reservations, Resolved,
    ResourceRequest,
};

use super::services::Services;

/// Mistakes that the matrix must catch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Sends a request again whose answer was lost.
    SecondOnLostAnswer,
    /// Takes a server's error for "nothing happened", and sends it again.
    TakesAnErrorForNothing,
    /// Knows only the ids that it was told in this process.
    ForgetsIds,
    /// Deletes all whose label begins as ours does.
    DeletesByPrefix,
}

/// The real provider, with a mistake in how it treats addresses.
pub(crate) struct Buggy {
    pub(crate) inner: Box<dyn Provider>,
    pub(crate) bug: Bug,
    pub(crate) services: Arc<Services>,
    ids: Mutex<BTreeSet<String>>,
}

impl Buggy {
    pub(crate) fn new(inner: Box<dyn Provider>, bug: Bug, services: Arc<Services>) -> Self {
        Self { inner, bug, services, ids: Mutex::default() }
    }

    /// Makes an address without looking; again when that seems to have failed.
    async fn blindly(&self, tag: &Tag, recorder: &dyn Recorder) -> Result<Acquired> {
        let body = self.services.new_address(&tag.to_string()).await;
        for _ in 0..2 {
            let id = match self.services.post_blindly("/network/v2.0/floatingips", &body).await {
                None if self.bug == Bug::SecondOnLostAnswer => continue,
                Some((500.., _)) if self.bug == Bug::TakesAnErrorForNothing => continue,
                Some((_, answer)) => answer["floatingip"]["id"].as_str().map(str::to_owned),
                None => None,
            };
            let Some(id) = id else { break };
            recorder.exists(&tag.key, &id).await?;
            return Ok(Acquired { id, was_there: false });
        }
        Err(Error::new(ErrorKind::Provider, "take an address"))
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
            owned.retain(|(_, found)| self.ids.lock().unwrap().contains(&found.id));
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

    fn reservations(&self) -> Option<&dyn Reservations> {
        self.inner.reservations()
    }

    fn expand(&self, scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        self.inner.expand(scope, request)
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        match (self.bug, request.kind.0.as_str()) {
            (Bug::SecondOnLostAnswer | Bug::TakesAnErrorForNothing, "floating_ip") => self.blindly(tag, recorder).await,
            (Bug::ForgetsIds, "floating_ip") => {
                let body = self.services.new_address(&tag.to_string()).await;
                let answer = self.services.post_blindly("/network/v2.0/floatingips", &body).await;
                let id = answer.and_then(|(_, answer)| answer["floatingip"]["id"].as_str().map(str::to_owned));
                let id = id.ok_or_else(|| Error::new(ErrorKind::Provider, "take an address"))?;
                recorder.exists(&tag.key, &id).await?;
                self.ids.lock().unwrap().insert(id.clone());
                Ok(Acquired { id, was_there: false })
            }
            _ => self.inner.acquire(tag, request, recorder).await,
        }
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        if self.bug == Bug::DeletesByPrefix && resource.kind.0 == "floating_ip" {
            let prefix = format!("gpucl-{}-{}", scope.owner, scope.cluster);
            for thing in self.services.held().await {
                if thing.kind == "floating_ip" && thing.label.starts_with(&prefix) {
                    self.services.remove(&thing).await;
                }
            }
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
