//! Waiting for a cluster, and saying meanwhile why it is not there yet.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, ListParams, Preconditions};
use serde_json::Value;

use super::Kubernetes;
use super::client::{KubeContext, call, values};
use super::names::ObjectKind;
use super::pods::{Pod, Trouble, ready_by_group};
use super::refusal;
use super::resources::id;
use super::status::{Standing, finalizers};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::Bus;
use crate::provider::Outage;
use crate::util::duration::SpecDuration;
use crate::util::human;

/// How long pods may take to run, unless the settings say it: a machine that is added for them takes minutes.
const USUAL_WAIT: Duration = Duration::from_secs(15 * 60);
/// How long what waiting does not help may go on before it counts.
const LASTING: Duration = Duration::from_secs(20);
/// How long an object may take to be gone.
const GONE: Duration = Duration::from_secs(120);
/// How long an API server that has just started refuses everybody: it has not read the roles yet.
const STARTING: Duration = Duration::from_secs(30);
/// The first pause until an object is gone: most go at once.
const FIRST_PAUSE: Duration = Duration::from_millis(30);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

impl Kubernetes {
    /// Waits until a cluster has come as far as its object says; removes pods of an earlier template.
    pub(super) async fn wait_as_wanted(&self, name: &str, id_before: &str) -> Result<()> {
        let place = self.place().await?;
        let doing = format!("wait for the raycluster {name}");
        let limit = self.renderer.settings.wait.map_or(USUAL_WAIT, |SpecDuration(wait)| wait);
        let (begun, mut lasting, mut said) = (Instant::now(), None::<Instant>, BTreeSet::new());
        let mut absence = Absence::none(&self.context.events);
        let mut taints = None;
        loop {
            let looked = async { Ok((place.get(ObjectKind::RayCluster, name).await?, self.pods(place, name).await?)) };
            let is_over = begun.elapsed() >= limit;
            let Some((cluster, pods)) = absence.outlast(looked.await, is_over).await? else { continue };
            let cluster = cluster.filter(|found| id(found) == id_before).ok_or_else(|| {
                Error::new(ErrorKind::Provider, &doing).because("it was deleted while it was waited for")
            })?;
            let standing = Standing::of(&cluster, &ready_by_group(&pods));
            let stale: Vec<&Pod> = pods.iter().filter(|pod| pod.is_stale(&cluster)).collect();
            if stale.is_empty() && standing.is_as_wanted() {
                return Ok(());
            }
            for pod in stale {
                self.context.events.note(format!("{}: made again, since its settings have changed", pod.name()));
                let deleted = delete_pod(place, pod, None).await;
                absence.outlast(deleted, begun.elapsed() >= limit).await?;
            }
            let mut troubles = self.troubles(place, &cluster, &pods).await;
            for (_, trouble) in troubles.iter_mut().filter(|(_, trouble)| trouble.is_of_unnamed_taints()) {
                if taints.is_none() {
                    taints = Some(self.taints(place).await);
                }
                trouble.hint = taints.as_ref().and_then(|found| found.first().cloned());
            }
            for (who, trouble) in &troubles {
                if said.insert((who.clone(), trouble.text.clone())) {
                    self.context.events.note(format!("{who}: {}", trouble.text));
                    trouble.hint.iter().for_each(|hint| self.context.events.note(format!("{who}: {hint}")));
                }
            }
            let broken = troubles.iter().find(|(_, trouble)| trouble.lasts);
            let since = broken.map(|_| *lasting.get_or_insert_with(Instant::now));
            lasting = since;
            let failed = |error: Error| {
                let error = troubles
                    .iter()
                    .fold(error, |error, (who, trouble)| error.because(format!("{who}: {}", trouble.text)));
                troubles.iter().filter_map(|(_, trouble)| trouble.hint.as_ref()).fold(error, Error::hint)
            };
            if since.is_some_and(|since| since.elapsed() >= LASTING) {
                return Err(failed(Error::new(ErrorKind::Provider, &doing)));
            }
            if begun.elapsed() >= limit {
                let waited =
                    format!("it was not ready within {}: {}", human::short_duration(limit), standing.describe());
                return Err(failed(Error::new(ErrorKind::Timeout, &doing).because(waited)).hint(
                    "it stays, and may come later: the next `gpucl up` goes on waiting, and `gpucl down` removes it",
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Why a cluster is not ready: of each pod, and where there is none, of the cluster.
    async fn troubles(&self, place: &KubeContext, cluster: &Value, pods: &[Pod]) -> Vec<(String, Trouble)> {
        let mut troubles: Vec<(String, Trouble)> =
            pods.iter().filter(|pod| !pod.member().ready).map(|pod| (pod.name(), pod.trouble())).collect();
        if troubles.is_empty() {
            let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
            let standing = Standing::of(cluster, &ready_by_group(pods));
            if let Some(event) = last_warning(place, name).await {
                let hint = event.contains("exceeded quota").then(|| {
                    "kubectl describe resourcequota   # what the namespace may use, and what it uses".to_owned()
                });
                troubles.push((name.to_owned(), Trouble { text: event, lasts: true, hint }));
            } else if !standing.reason().is_empty() {
                let text = standing.reason().to_owned();
                troubles.push((name.to_owned(), Trouble { text, lasts: false, hint: None }));
            }
        }
        troubles
    }

    /// Waits until an object of this id is gone.
    pub(super) async fn wait_gone(
        &self,
        place: &KubeContext,
        kind: ObjectKind,
        name: &str,
        id_before: &str,
    ) -> Result<()> {
        let begun = Instant::now();
        let mut absence = Absence::none(&self.context.events);
        let mut pause = FIRST_PAUSE;
        loop {
            let looked = place.get(kind, name).await;
            let Some(found) = absence.outlast(looked, begun.elapsed() >= GONE).await? else { continue };
            let Some(found) = found.filter(|found| id(found) == id_before) else { return Ok(()) };
            if begun.elapsed() >= GONE {
                let error = Error::new(ErrorKind::Provider, format!("delete the {} {name}", kind.name()))
                    .because(format!("it is still there after {}", human::short_duration(GONE)))
                    .status(Status::Persistent);
                let waits = finalizers(&found);
                return Err(match waits.is_empty() {
                    true => error.hint(format!("kubectl describe {} {name}", kind.name())),
                    false => error
                        .because(format!("it waits for its finalizers: {}", waits.join(", ")))
                        .hint("who added a finalizer must remove it: the operator that it belongs to, if that runs"),
                });
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE);
        }
    }
}

/// An API server that goes away while something is waited for, and comes back.
struct Absence {
    outage: Outage,
    /// When it last answered.
    answered: Instant,
}

impl Absence {
    /// Creates one for a server that has just answered.
    fn none(events: &Bus) -> Self {
        Self { outage: Outage::after_success(events), answered: Instant::now() }
    }

    /// What was seen; `None`, after a pause, if it may be seen the next time.
    ///
    /// # Errors
    /// If it cannot pass, or the wait is over.
    async fn outlast<T>(&mut self, looked: Result<T>, is_over: bool) -> Result<Option<T>> {
        let refused = matches!(&looked, Err(error) if refusal::is_forbidden(error));
        if looked.is_ok() {
            self.answered = Instant::now();
        }
        // A server that has just started has not read the roles yet.
        let looked = looked.map_err(|error| if refused { error.status(Status::Temporary) } else { error });
        let is_over = is_over || refused && self.answered.elapsed() >= STARTING;
        let seen = self.outage.outlast(looked, || is_over)?;
        if seen.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(seen)
    }
}

/// Deletes a pod if it is still the same; its programs have so many seconds to end, or as many as its settings say.
pub(super) async fn delete_pod(place: &KubeContext, pod: &Pod, grace: Option<u32>) -> Result<()> {
    let api = place.core_objects("Pod");
    let name = pod.name();
    let only = Preconditions { uid: Some(pod.id()), resource_version: None };
    let mut params = DeleteParams::default().preconditions(only);
    params.grace_period_seconds = grace;
    let once = || async {
        match api.delete(&name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error),
        }
    };
    call(&format!("delete the pod {name}"), once).await
}

/// The last warning that Kubernetes has written about a RayCluster; `None` if it has none, or they may not be read.
async fn last_warning(place: &KubeContext, name: &str) -> Option<String> {
    let api = place.core_objects("Event");
    let params = ListParams::default().fields(&format!("involvedObject.name={name},type=Warning"));
    let events = values(&api.list(&params).await.ok()?).ok()?;
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().trim().to_owned();
    // RFC 3339 in UTC, which sorts as text.
    let last = events.into_iter().max_by_key(|event| text(event, "lastTimestamp"))?;
    Some(format!("{}: {}", text(&last, "reason"), text(&last, "message")))
}
