//! A cluster's objects: found by their labels, made and changed by server-side apply, deleted by their id.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::client::{Apply, KubeContext};
use super::names::{ObjectKind, TOKEN_KEY, object_name, selector, tag_of};
use super::objects::tagged;
use super::status;
use super::{Kubernetes, difference, names, pods};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Owner, Scope, Tag};
use crate::provider::{Acquired, ObservedResource, Recorder, ResourceRequest, ResourceState};

/// The fields that only Ray's autoscaler writes, by a patch of the list that they are in.
const AUTOSCALER: (&str, &str) = ("python-requests", ".spec.workerGroupSpecs");

impl Kubernetes {
    /// The objects of an owner, or of all owners, each with its tag.
    pub(super) async fn labelled(&self, owner: Option<&Owner>) -> Result<Vec<(Tag, ObservedResource)>> {
        let place = self.place().await?;
        let selector = selector(owner);
        let lists = ObjectKind::ALL.map(|kind| {
            let selector = &selector;
            async move { Ok::<_, Error>((kind, place.list(kind, selector).await?)) }
        });
        let mut found = Vec::new();
        for list in futures_util::future::try_join_all(lists).await? {
            let (kind, objects) = list;
            for object in objects {
                let Some(tag) = tag_of(&object) else { continue };
                let pods = match kind {
                    ObjectKind::RayCluster => {
                        self.pods(place, object["metadata"]["name"].as_str().unwrap_or_default()).await?
                    }
                    _ => Vec::new(),
                };
                found.push((tag.clone(), observed(kind, tag, &object, &pods)));
            }
        }
        Ok(found)
    }

    pub(super) async fn make(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        let place = self.place().await?;
        let (kind, name) = named(request)?;
        let doing = format!("make the {} {name}", kind.name());
        if let Some(found) = place.get(kind, &name).await? {
            own(&found, tag, &doing)?;
            if found["metadata"]["deletionTimestamp"].is_null() {
                return Acquired { id: id(&found), was_there: true }.recorded(recorder, tag, &name).await;
            }
            self.wait_gone(place, kind, &name, &id(&found)).await?;
        }
        let made = place.apply(kind, &self.sent(place, tag, request).await?, Apply::Gently).await?;
        Acquired { id: id(&made), was_there: false }.recorded(recorder, tag, &name).await
    }

    /// Changes an object to what is requested now.
    pub(super) async fn change(&self, tag: &Tag, request: &ResourceRequest, before: &str) -> Result<()> {
        self.changed(tag, request, before, false).await.map(drop)
    }

    /// The fields that [`Self::change`] would change, one line each.
    pub(super) async fn difference(&self, tag: &Tag, request: &ResourceRequest, before: &str) -> Result<Vec<String>> {
        let (kind, _) = named(request)?;
        // It is a secret, and does not change.
        if kind == ObjectKind::Token {
            return Ok(Vec::new());
        }
        let (now, then) = self.changed(tag, request, before, true).await?;
        Ok(difference::lines(kind, &now, &then))
    }

    /// The object before and after the change, which is only tried with `dry_run`.
    async fn changed(
        &self,
        tag: &Tag,
        request: &ResourceRequest,
        before: &str,
        dry_run: bool,
    ) -> Result<(Value, Value)> {
        let place = self.place().await?;
        let (kind, name) = named(request)?;
        let doing = format!("change the {} {name}", kind.name());
        let found = place.get(kind, &name).await?.filter(|found| id(found) == before);
        let found = found.ok_or_else(|| {
            Error::new(ErrorKind::Provider, &doing).because("it is gone").hint("gpucl up, which makes it again")
        })?;
        own(&found, tag, &doing)?;
        let mut sent = self.sent(place, tag, request).await?;
        sent["metadata"]["uid"] = json!(before);
        keep_scale(&found, &mut sent);
        // A trial sends no content of files, and what would become of that is known without it.
        let tried = if dry_run { without_content(sent.clone()) } else { sent.clone() };
        let applied = |how: Apply| {
            let sent = &tried;
            async move {
                match dry_run {
                    true => place.dry_run(kind, sent, how).await,
                    false => place.apply(kind, sent, how).await,
                }
            }
        };
        let mut then = match applied(Apply::Gently).await {
            Err(error) if is_autoscaler(&error) => applied(Apply::Force).await?,
            result => result?,
        };
        for key in CONTENT.iter().filter(|_| dry_run) {
            if let (Some(content), Some(tried)) = (sent.get(*key), then.get_mut(*key)) {
                *tried = content.clone();
            }
        }
        Ok((found, then))
    }

    /// The object as it is sent.
    async fn sent(&self, place: &KubeContext, tag: &Tag, request: &ResourceRequest) -> Result<Value> {
        let mut object = tagged(request, tag);
        // Who loses the right to see it would leave it: so the Secret owns it, and Kubernetes deletes it with that.
        if request.kind.0 == ObjectKind::Monitor.name() {
            // All objects of a cluster have one name.
            let (_, name) = named(request)?;
            if let Some(secret) = place.get(ObjectKind::Token, &name).await? {
                let owner = json!({ "apiVersion": "v1", "kind": "Secret", "name": name, "uid": id(&secret) });
                object["metadata"]["ownerReferences"] = json!([owner]);
            }
        }
        if request.kind.0 == ObjectKind::Token.name() {
            let folder = self.context.clusters_dir.join(tag.cluster.as_str());
            let token = crate::secret::ensure_ray_token(&folder)?;
            object["stringData"][TOKEN_KEY] = json!(token.expose_secret().trim());
        }
        Ok(object)
    }

    /// Keeps a job's secrets in the cluster's Secret under this key, or removes them from it.
    pub(super) async fn keep_in_secret(&self, scope: &Scope, key: &str, text: Option<&SecretString>) -> Result<()> {
        let place = self.place().await?;
        let (kind, name) = (ObjectKind::Token, object_name(scope));
        let doing = format!("keep the secrets of a job in the {} {name}", kind.name());
        let Some(found) = place.get(kind, &name).await? else {
            return match text {
                None => Ok(()),
                Some(_) => Err(Error::new(ErrorKind::NotFound, doing).because("it is gone").hint("gpucl up")),
            };
        };
        own(&found, &scope.tag(&kind.key()), &doing)?;
        let value = text.map(|text| STANDARD.encode(text.expose_secret()));
        place.merge(kind, &name, &json!({ "metadata": { "uid": id(&found) }, "data": { key: value } })).await
    }

    /// Deletes an object, and waits until it is gone.
    pub(super) async fn delete(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        let Some(kind) = ObjectKind::of(&resource.kind.0) else { return Ok(()) };
        let place = self.place().await?;
        let name = object_name(scope);
        let Some(found) = place.get(kind, &name).await?.filter(|found| id(found) == resource.id) else { return Ok(()) };
        own(&found, &scope.tag(&resource.key), &format!("delete the {} {name}", kind.name()))?;
        place.delete(kind, &name, &resource.id).await?;
        self.wait_gone(place, kind, &name, &resource.id).await
    }
}

/// The kind and name of a requested object.
pub(super) fn named(request: &ResourceRequest) -> Result<(ObjectKind, String)> {
    let name = request.settings["metadata"]["name"].as_str();
    ObjectKind::of(&request.kind.0).zip(name.map(str::to_owned)).ok_or_else(|| {
        Error::new(ErrorKind::Provider, format!("make a {}", request.kind.0)).because("it is no such object")
    })
}

pub(super) fn id(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Refuses an object that is not this cluster's.
fn own(found: &Value, tag: &Tag, doing: &str) -> Result<()> {
    if tag_of(found).as_ref() == Some(tag) {
        return Ok(());
    }
    let name = found["metadata"]["name"].as_str().unwrap_or_default();
    Err(Error::new(ErrorKind::Provider, doing)
        .because(format!("there is an object of the name {name} that is not this cluster's; it is left alone"))
        .hint("give the cluster another `name:`, or use another namespace"))
}

/// An object as the engine sees it.
fn observed(kind: ObjectKind, tag: Tag, object: &Value, pods: &[pods::Pod]) -> ObservedResource {
    let mut found = ObservedResource::existing(tag.key, kind.name(), id(object));
    let going = !object["metadata"]["deletionTimestamp"].is_null();
    found.digest = object["metadata"]["annotations"][names::DIGEST].as_str().map(str::to_owned);
    if going {
        let finalizers = status::finalizers(object);
        found.state = ResourceState::Unusable;
        found.detail = match finalizers.is_empty() {
            true => "it is being deleted".to_owned(),
            false => format!("it is being deleted, and waits for its finalizers: {}", finalizers.join(", ")),
        };
    } else if kind == ObjectKind::RayCluster {
        let standing = status::Standing::of(object, &pods::ready_by_group(pods));
        let stale = pods.iter().filter(|pod| pod.is_stale(object)).count();
        (found.state, found.detail) = match (standing.is_as_wanted(), stale) {
            (true, 0) => (ResourceState::Usable, String::new()),
            (true, count) => (ResourceState::Coming, format!("{count} of its pods are from before the last change")),
            (false, _) => (ResourceState::Coming, standing.describe()),
        };
    }
    found
}

/// Keeps how many workers there are in groups that Ray's autoscaler decides on.
fn keep_scale(found: &Value, sent: &mut Value) {
    let before = found["spec"]["workerGroupSpecs"].as_array().cloned().unwrap_or_default();
    let groups = sent.pointer_mut("/spec/workerGroupSpecs").and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten() {
        let live = before.iter().find(|live| live["groupName"] == group["groupName"]);
        if let (true, Some(live)) = (group["replicas"].is_null(), live.and_then(|live| live["replicas"].as_u64())) {
            let (min, max) =
                (group["minReplicas"].as_u64().unwrap_or(0), group["maxReplicas"].as_u64().unwrap_or(live));
            group["replicas"] = json!(live.clamp(min, max.max(min)));
        }
    }
}

/// Whether a conflict is only with Ray's autoscaler, which sets how many workers there are.
fn is_autoscaler(error: &Error) -> bool {
    let (manager, field) = AUTOSCALER;
    let mut conflicts = error.causes().iter().flat_map(|cause| cause.split("conflict with ").skip(1)).peekable();
    conflicts.peek().is_some() && conflicts.all(|one| one.contains(manager) && one.contains(field))
}

/// The keys of a ConfigMap that hold files.
const CONTENT: &[&str] = &["data", "binaryData"];

/// An object whose files are empty, if it has any.
pub(super) fn without_content(mut object: Value) -> Value {
    for key in CONTENT {
        for (_, content) in object.get_mut(*key).and_then(Value::as_object_mut).into_iter().flatten() {
            *content = Value::String(String::new());
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_conflict_with_the_autoscaler_is_overridden() {
        let error = |cause: &str| Error::new(ErrorKind::Provider, "x").because(cause);
        let of = |manager: &str, field: &str| {
            format!("Apply failed with 1 conflict: conflict with \"{manager}\" using ray.io/v1: {field}")
        };
        assert!(is_autoscaler(&error(&of("python-requests", ".spec.workerGroupSpecs"))));
        assert!(!is_autoscaler(&error(&of("kubectl-edit", ".spec.workerGroupSpecs"))));
        assert!(!is_autoscaler(&error(&of("python-requests", ".spec.rayVersion"))));
        assert!(!is_autoscaler(&error("conflict")));
    }

    #[test]
    fn the_autoscalers_number_of_workers_stays_within_the_new_limits() {
        let group = |replicas: Value, min: u64, max: u64| json!({ "spec": { "workerGroupSpecs": [{ "groupName": "a", "replicas": replicas, "minReplicas": min, "maxReplicas": max }] } });
        let mut sent = group(Value::Null, 0, 3);
        keep_scale(&group(json!(5), 0, 9), &mut sent);
        assert_eq!(sent["spec"]["workerGroupSpecs"][0]["replicas"], 3);
        // What has no groups gets none.
        let mut policy = json!({ "spec": { "podSelector": {} } });
        keep_scale(&policy.clone(), &mut policy);
        assert_eq!(policy, json!({ "spec": { "podSelector": {} } }));
        let mut fixed = group(json!(2), 2, 2);
        keep_scale(&group(json!(5), 0, 9), &mut fixed);
        assert_eq!(fixed["spec"]["workerGroupSpecs"][0]["replicas"], 2);
    }
}
