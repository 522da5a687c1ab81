//! Providers with a deliberate bug, to prove that the matrix would notice it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::name::{Key, Owner, Scope, Tag};
use gpucl::provider::{
    Acquired, Capability, HostPlace, HostRequest, ObservedResource, Offer, Provider, Recorder, Reservations, Resolved,
    ResourceRequest,
};

use super::cloud::Cloud;

/// Bugs that the matrix must catch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Sends a request again whose answer was lost.
    SecondOnLostAnswer,
    /// Takes a server's error for "nothing happened", and sends it again.
    TakesAnErrorForNothing,
    /// Takes a page of a proxy for "nothing happened", and sends it again.
    TakesAPageForNothing,
    /// Knows only the ids that were returned in this process.
    ForgetsIds,
    /// Deletes all whose label begins as ours does.
    DeletesByPrefix,
    /// The same, at a cloud that terminates what it deletes.
    TerminatesByPrefix,
}

/// The real provider, with a mistake in how it treats things of the kind of [`Cloud::VICTIM`].
pub(super) struct Buggy<C> {
    inner: Box<dyn Provider>,
    bug: Bug,
    cloud: Arc<C>,
    ids: Mutex<BTreeSet<String>>,
}

impl<C: Cloud> Buggy<C> {
    pub(super) fn new(inner: Box<dyn Provider>, bug: Bug, cloud: Arc<C>) -> Self {
        Self { inner, bug, cloud, ids: Mutex::default() }
    }

    fn removes_by_prefix(&self) -> bool {
        matches!(self.bug, Bug::DeletesByPrefix | Bug::TerminatesByPrefix)
    }

    /// Creates a resource without checking for an existing one; retries an apparent failure.
    async fn blindly(&self, tag: &Tag, recorder: &dyn Recorder) -> Result<Acquired> {
        for _ in 0..2 {
            let id = match self.cloud.make_blindly(tag).await {
                None if self.bug == Bug::SecondOnLostAnswer => continue,
                Some((500.., answer)) if self.bug == Bug::TakesAnErrorForNothing && answer.is_object() => continue,
                Some((500.., answer)) if self.bug == Bug::TakesAPageForNothing && answer.is_null() => continue,
                Some((_, answer)) => answer.pointer(C::VICTIM.id).and_then(|id| id.as_str()).map(str::to_owned),
                None => None,
            };
            let Some(id) = id else { break };
            recorder.exists(&tag.key, &id).await?;
            self.ids.lock().unwrap().insert(id.clone());
            return Ok(Acquired { id, was_there: false });
        }
        Err(Error::new(ErrorKind::Provider, format!("make {tag} without looking")))
    }
}

#[async_trait]
impl<C: Cloud> Provider for Buggy<C> {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        self.inner.offers().await
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        let mut owned = self.inner.owned(owner).await?;
        if self.bug == Bug::ForgetsIds {
            let ids = self.ids.lock().unwrap();
            owned.retain(|(_, found)| !C::VICTIM.forgotten.contains(&found.kind.0.as_str()) || ids.contains(&found.id));
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
        if self.removes_by_prefix() || request.kind.0 != C::VICTIM.kind {
            return self.inner.acquire(tag, request, recorder).await;
        }
        self.blindly(tag, recorder).await
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        if self.removes_by_prefix() && resource.kind.0 == C::VICTIM.kind {
            self.cloud.remove_by_prefix(&format!("gpucl-{}-{}", scope.owner, scope.cluster)).await;
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
