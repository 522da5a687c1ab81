//! The bench that the cases run on: calls with a timeout, waits, and the cleanup afterwards.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::recorders::Notebook;
use super::subject::Subject;
use super::verdict::{Stop, Verdict, broken, ensure};
use crate::error::Error;
use crate::name::{ClusterName, Key, Owner, Scope};
use crate::provider::{Acquired, Capability, HostRequest, ObservedResource, ProviderKind, Recorder, ResourceRequest};

/// The timeout of one call, in addition to the subject's patience.
const CALL_MARGIN: Duration = Duration::from_secs(60);

/// The provider under test and the scopes that the cases used.
pub(super) struct Bench<'a> {
    pub(super) subject: &'a Subject<'a>,
    /// Every scope handed to a case. They outlive the case, which may be dropped at any point.
    scopes: Mutex<BTreeSet<Scope>>,
    /// The scopes that may have resources.
    dirty: Mutex<BTreeSet<Scope>>,
    clusters: AtomicUsize,
}

impl<'a> Bench<'a> {
    pub(super) fn new(subject: &'a Subject<'a>) -> Self {
        Self { subject, scopes: Mutex::default(), dirty: Mutex::default(), clusters: AtomicUsize::new(0) }
    }

    pub(super) fn capability(&self) -> Capability {
        self.subject.provider.capability()
    }

    /// A scope with a new cluster name.
    pub(super) fn fresh_scope(&self) -> Verdict<Scope> {
        let number = self.clusters.fetch_add(1, Ordering::Relaxed);
        self.scope(&self.subject.owner, &format!("check-{number}"))
    }

    /// The scope of this owner and cluster name.
    pub(super) fn scope(&self, owner: &Owner, cluster: &str) -> Verdict<Scope> {
        let cluster: ClusterName = cluster.parse().or_else(|error| broken(format!("{error}")))?;
        let scope = Scope { owner: owner.clone(), cluster };
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner).insert(scope.clone());
        Ok(scope)
    }

    /// Every scope of this run.
    pub(super) fn scopes(&self) -> Vec<Scope> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The resources of the first host, in order.
    pub(super) fn chain(&self, scope: &Scope) -> Verdict<Vec<ResourceRequest>> {
        self.expand(scope, 0)
    }

    /// The resources of the n-th host, in order.
    pub(super) fn expand(&self, scope: &Scope, host: usize) -> Verdict<Vec<ResourceRequest>> {
        let request = HostRequest::new(Key::host(host), self.subject.host.clone());
        verdict("expand a host", self.subject.provider.expand(scope, &request))
    }

    pub(super) async fn observe(&self, scope: &Scope) -> Verdict<Vec<ObservedResource>> {
        verdict("observe", self.limited("observe", self.subject.provider.observe(scope)).await?)
    }

    /// Acquires; an error from the provider fails the case.
    pub(super) async fn acquire(
        &self,
        scope: &Scope,
        request: &ResourceRequest,
        recorder: &dyn Recorder,
    ) -> Verdict<Acquired> {
        let what = format!("acquire {}", request.key);
        verdict(&what, self.try_acquire(scope, request, recorder).await?)
    }

    /// Acquires; an error from the provider is returned.
    pub(super) async fn try_acquire(
        &self,
        scope: &Scope,
        request: &ResourceRequest,
        recorder: &dyn Recorder,
    ) -> Verdict<crate::error::Result<Acquired>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).insert(scope.clone());
        let tag = scope.tag(&request.key);
        self.limited("acquire", self.subject.provider.acquire(&tag, request, recorder)).await
    }

    pub(super) async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Verdict {
        let what = format!("release {} ({})", resource.key, resource.id);
        verdict(&what, self.limited("release", self.subject.provider.release(scope, resource)).await?)
    }

    /// Fails the case if a call does not end within its timeout.
    pub(super) async fn limited<T>(&self, what: &str, call: impl Future<Output = T>) -> Verdict<T> {
        let limit = self.subject.patience + CALL_MARGIN;
        let ended = tokio::time::timeout(limit, call).await;
        ended.or_else(|_| broken(format!("{what} did not end within {} s", limit.as_secs())))
    }

    /// Acquires one resource and waits until it is usable; returns its id.
    pub(super) async fn acquire_usable(&self, scope: &Scope, request: &ResourceRequest) -> Verdict<String> {
        let id = self.acquire(scope, request, &Notebook::default()).await?.id;
        self.until_usable(scope, request, &id).await?;
        Ok(id)
    }

    /// Acquires all resources of a host in order, each once the previous is usable; returns requests and ids.
    pub(super) async fn acquire_all(&self, scope: &Scope) -> Verdict<Vec<(ResourceRequest, String)>> {
        let mut acquired = Vec::new();
        for request in self.chain(scope)? {
            let id = self.acquire_usable(scope, &request).await?;
            acquired.push((request, id));
        }
        Ok(acquired)
    }

    /// Waits as the engine does; then this id must show within the consistency delay and be usable within the patience.
    pub(super) async fn until_usable(
        &self,
        scope: &Scope,
        request: &ResourceRequest,
        id: &str,
    ) -> Verdict<ObservedResource> {
        let tag = scope.tag(&request.key);
        let what = format!("wait until {} is usable", request.key);
        verdict(&what, self.limited(&what, self.subject.provider.wait_usable(&tag, request, id)).await?)?;
        let delay = self.subject.consistency_delay;
        let begun = Instant::now();
        loop {
            // Read before the call, so that one observation comes after each deadline, however slow the machine.
            let elapsed = begun.elapsed();
            let seen = self.observe(scope).await?;
            match seen.iter().find(|resource| resource.id == id && resource.key == request.key) {
                Some(resource) if resource.is_usable() => return Ok(resource.clone()),
                Some(resource) if elapsed >= self.subject.patience => {
                    let waited = self.subject.patience.as_secs_f64();
                    return broken(format!("{} was not usable after {waited} s: {}", request.key, resource.detail));
                }
                None if elapsed >= delay => {
                    let shown = list(&seen);
                    return broken(format!("{} was acquired as {id}, but observe shows {shown}", request.key));
                }
                _ => self.pause().await,
            }
        }
    }

    /// Observes until a resource with this key shows or the consistency delay is over; returns the resources with it.
    pub(super) async fn observe_after_delay(&self, scope: &Scope, key: &Key) -> Verdict<Vec<ObservedResource>> {
        let delay = self.subject.consistency_delay;
        let begun = Instant::now();
        loop {
            let elapsed = begun.elapsed();
            let seen = of_key(self.observe(scope).await?, key);
            if !seen.is_empty() || elapsed >= delay {
                ensure(seen.len() <= 1, || format!("two resources have the key {key}: {}", list(&seen)))?;
                return Ok(seen);
            }
            self.pause().await;
        }
    }

    /// Observes for the whole consistency delay: never two resources with this key, and one at the end.
    pub(super) async fn exactly_one(&self, scope: &Scope, key: &Key) -> Verdict<ObservedResource> {
        let delay = self.subject.consistency_delay;
        let begun = Instant::now();
        loop {
            let elapsed = begun.elapsed();
            let mut seen = of_key(self.observe(scope).await?, key);
            ensure(seen.len() <= 1, || format!("two resources have the key {key}: {}", list(&seen)))?;
            if elapsed >= delay {
                return seen.pop().map_or_else(|| broken(format!("nothing has the key {key}")), Ok);
            }
            self.pause().await;
        }
    }

    /// Waits until nothing shows, and keeps observing until the consistency delay is over.
    pub(super) async fn until_empty(&self, scope: &Scope) -> Verdict {
        let delay = self.subject.consistency_delay;
        let begun = Instant::now();
        loop {
            let elapsed = begun.elapsed();
            let seen = self.observe(scope).await?;
            if seen.is_empty() && elapsed >= delay {
                return Ok(());
            }
            if !seen.is_empty() && elapsed >= self.subject.patience.max(delay) {
                return broken(format!("observe still shows {}", list(&seen)));
            }
            self.pause().await;
        }
    }

    /// Waits until no resource with this key shows.
    pub(super) async fn until_gone(&self, scope: &Scope, key: &Key) -> Verdict {
        let begun = Instant::now();
        loop {
            let elapsed = begun.elapsed();
            let seen = of_key(self.observe(scope).await?, key);
            if seen.is_empty() {
                return Ok(());
            }
            ensure(elapsed < self.subject.patience, || format!("observe still shows {}", list(&seen)))?;
            self.pause().await;
        }
    }

    /// Releases every resource that shows, the last acquired first, and waits until they are gone.
    pub(super) async fn release_all(&self, scope: &Scope) -> Verdict {
        let seen = self.observe(scope).await?;
        for resource in self.last_first(scope, seen) {
            self.release(scope, &resource).await?;
        }
        self.until_empty(scope).await
    }

    /// Orders resources so that none is released before the ones that need it.
    pub(super) fn last_first(&self, scope: &Scope, mut seen: Vec<ObservedResource>) -> Vec<ObservedResource> {
        let order = self.chain(scope).unwrap_or_default();
        let place = |resource: &ObservedResource| order.iter().position(|request| request.key == resource.key);
        seen.sort_by_key(|resource| std::cmp::Reverse(place(resource)));
        seen
    }

    /// Releases what the previous case left, on a best-effort basis. The suite's last case finds what remains.
    pub(super) async fn clean(&self) {
        let dirty = std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner));
        for scope in dirty {
            for resource in self.observe(&scope).await.map(|seen| self.last_first(&scope, seen)).unwrap_or_default() {
                let _ = self.release(&scope, &resource).await;
            }
            // The effect of a dropped call may show only now.
            if self.until_empty(&scope).await.is_err() {
                let _ = self.release_all(&scope).await;
            }
        }
    }

    /// Pauses before the next observation.
    async fn pause(&self) {
        let delay = self.subject.consistency_delay;
        let pause = (delay / 4).clamp(Duration::from_millis(5), Duration::from_secs(5));
        let patient = self.subject.patience / 20;
        tokio::time::sleep(pause.max(patient.min(Duration::from_secs(5)))).await;
    }
}

/// Turns an error from the provider into a failure of the case.
pub(super) fn verdict<T>(what: &str, result: Result<T, Error>) -> Verdict<T> {
    result.map_err(|error| Stop::Broken(format!("{what} failed: {error}")))
}

fn of_key(seen: Vec<ObservedResource>, key: &Key) -> Vec<ObservedResource> {
    seen.into_iter().filter(|resource| resource.key == *key).collect()
}

/// Resources as one line of text.
pub(super) fn list(seen: &[ObservedResource]) -> String {
    if seen.is_empty() {
        return "nothing".to_owned();
    }
    let texts = seen.iter().map(|resource| format!("{} {} ({})", resource.kind.0, resource.key, resource.id));
    texts.collect::<Vec<_>>().join(", ")
}

/// Ends a case as not applicable unless the provider supplies hosts.
pub(super) fn hosts_only(bench: &Bench<'_>) -> Verdict {
    match bench.capability().kind {
        ProviderKind::Host => Ok(()),
        ProviderKind::Platform => Err(Stop::NotApplicable("kind")),
    }
}
