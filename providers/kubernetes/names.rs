//! The names of a cluster's objects, and the labels by which they are found again.

use serde_json::{Map, Value, json};

use crate::name::{ClusterName, Key, Owner, Scope, Tag};

/// The label with the owner.
pub(super) const OWNER: &str = "gpucl.dev/owner";
/// The label with the cluster.
const CLUSTER: &str = "gpucl.dev/cluster";
/// The label with the key within the cluster.
const KEY: &str = "gpucl.dev/key";
/// The annotation with the whole tag.
const TAG: &str = "gpucl.dev/tag";
/// The annotation with the digest of the request.
pub(super) const DIGEST: &str = "gpucl.dev/digest";
/// The label of pods with the digest of the template that they were made from.
pub(super) const PODS: &str = "gpucl.dev/pods";
/// The label that KubeRay gives the pods of a cluster, with the cluster's name.
pub(super) const RAY_CLUSTER: &str = "ray.io/cluster";
/// The label that it gives them with the group's name.
pub(super) const RAY_GROUP: &str = "ray.io/group";
/// The label that it gives them with `head` or `worker`.
pub(super) const RAY_TYPE: &str = "ray.io/node-type";

/// The container of the head's pod in which the guard of the end runs.
pub(super) const GUARD_CONTAINER: &str = "guard";

/// The key of the token in its Secret; it is KubeRay's own.
pub(super) const TOKEN_KEY: &str = "auth_token";

/// The group of the Prometheus Operator's objects.
pub(super) const MONITORING_GROUP: &str = "monitoring.coreos.com";

/// The kinds of objects, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    /// The Secret with the token.
    Token,
    /// The NetworkPolicy.
    Policy,
    /// The PodMonitor, by which a Prometheus of the Kubernetes cluster finds the pods.
    Monitor,
    /// The ConfigMap with what nodes do before their Ray starts.
    Preparation,
    /// The RayCluster.
    RayCluster,
}

impl ObjectKind {
    /// All of them, in the order in which they are made.
    pub(super) const ALL: [Self; 5] = [Self::Token, Self::Policy, Self::Monitor, Self::Preparation, Self::RayCluster];

    /// The kind as gpucl shows it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Token => "secret",
            Self::Policy => "networkpolicy",
            Self::Monitor => "podmonitor",
            Self::Preparation => "configmap",
            Self::RayCluster => "raycluster",
        }
    }

    /// The key of the only object of this kind.
    pub(super) fn key(self) -> Key {
        match self {
            Self::Token => Key::service("token"),
            Self::Policy => Key::service("policy"),
            Self::Monitor => Key::service("monitor"),
            Self::Preparation => Key::service("preparation"),
            Self::RayCluster => Key::service("raycluster"),
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The name of a cluster's objects: two users' clusters of the same name have others. At most 29 characters, while
/// KubeRay takes 50.
pub(super) fn object_name(scope: &Scope) -> String {
    format!("{}-{}", scope.cluster, scope.owner)
}

pub(super) fn labels(tag: &Tag) -> Map<String, Value> {
    let labels = [(OWNER, tag.owner.as_str()), (CLUSTER, tag.cluster.as_str()), (KEY, tag.key.as_str())];
    labels.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

/// The annotations of an object that is made by a request of this digest.
pub(super) fn annotations(tag: &Tag, digest: &str) -> Map<String, Value> {
    [(TAG, tag.to_string()), (DIGEST, digest.to_owned())]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect()
}

/// The tag of an object, by its labels; `None` for one that is not ours.
pub(super) fn tag_of(object: &Value) -> Option<Tag> {
    let label = |name: &str| object["metadata"]["labels"][name].as_str();
    let owner: Owner = label(OWNER)?.parse().ok()?;
    let cluster: ClusterName = label(CLUSTER)?.parse().ok()?;
    let key: Key = label(KEY)?.parse().ok()?;
    Some(Tag { owner, cluster, key })
}

/// The selector of an owner's objects, or of all that gpucl made.
pub(super) fn selector(owner: Option<&Owner>) -> String {
    owner.map_or_else(|| OWNER.to_owned(), |owner| format!("{OWNER}={owner}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_recognised_by_its_labels_alone() {
        let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo-2".parse().unwrap() };
        let tag = scope.tag(&ObjectKind::RayCluster.key());
        let object = json!({ "metadata": { "name": object_name(&scope), "labels": labels(&tag) } });
        assert_eq!(tag_of(&object), Some(tag));
        assert_eq!(object["metadata"]["name"], "demo-2-abcd1234");
        for labels in [json!({}), json!({ OWNER: "abcd1234" }), json!({ OWNER: "x", CLUSTER: "demo-2", KEY: "token" })]
        {
            assert_eq!(tag_of(&json!({ "metadata": { "labels": labels } })), None);
        }
    }
}
