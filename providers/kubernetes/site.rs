//! What clusters need of a Kubernetes cluster: the operator, the namespace, the rights of the user.

use serde_json::{Value, json};

use super::Kubernetes;
use super::client::{Apply, KubeContext, call};
use super::names::MONITORING_GROUP;
use super::objects::{opened, tagged};
use super::refusal;
use super::resources::{named, without_content};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Scope;
use crate::provider::SiteFinding;
use crate::provider::platform::{ClusterRequest, Site};

/// What a user must be allowed to do in the namespace: group, resource, verbs. `docs/guides/kubernetes-role.yaml` is
/// a Role with exactly these.
const RIGHTS: &[(&str, &str, &[&str])] = &[
    ("ray.io", "rayclusters", &["create", "get", "list", "patch", "delete"]),
    ("", "pods", &["get", "list", "delete"]),
    ("", "pods/log", &["get"]),
    ("", "pods/exec", &["get", "create"]),
    ("", "pods/portforward", &["get", "create"]),
    ("", "secrets", &["create", "get", "list", "patch", "delete"]),
    ("", "configmaps", &["create", "get", "list", "patch", "delete"]),
    ("networking.k8s.io", "networkpolicies", &["create", "get", "list", "patch", "delete"]),
    ("", "events", &["list"]),
];
/// What is needed beside it for `services: {prometheus: existing}`.
const MONITORS: &[(&str, &str, &[&str])] =
    &[(MONITORING_GROUP, "podmonitors", &["create", "get", "list", "patch", "delete"])];
/// Where the API server says what a user may do.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// What is used where the user has it.
#[cfg(test)]
const OPTIONAL: &[(&str, &str, &[&str])] = &[("", "pods", &["create"])];
/// How the operator is installed; it takes the rights of an administrator.
const INSTALL: &str = "an administrator installs it: helm repo add kuberay https://ray-project.github.io/kuberay-helm/ && \
                       helm install kuberay-operator kuberay/kuberay-operator";

/// What is known of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Operator {
    /// The oldest version that has all the fields of its RayClusters.
    since: &'static str,
    /// Whether gpucl knows that version.
    is_known: bool,
}

impl Kubernetes {
    /// Where clusters run, and as whom.
    pub(super) async fn where_and_whom(&self) -> Result<Site> {
        let place = self.place().await?;
        Ok(Site {
            server: place.server.clone(),
            place: format!("{}/{}", place.context, place.namespace),
            user: place.user.clone(),
        })
    }

    /// Refuses what cannot run, before anything is made.
    pub(super) async fn check_cluster(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<Vec<String>> {
        let place = self.place().await?;
        let doing = format!("make a RayCluster in {}/{}", place.context, place.namespace);
        let (operator, missing) =
            futures_util::future::try_join(operator(place), missing(place, cluster.prometheus.is_some())).await?;
        let operator = operator.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, &doing)
                .because("this Kubernetes cluster has no KubeRay operator")
                .hint(INSTALL)
        })?;
        if !operator.is_known {
            return Err(Error::new(ErrorKind::Unsupported, &doing)
                .because("its KubeRay operator is older than 1.4, which gpucl does not know")
                .hint(INSTALL));
        }
        if let Some(group) = cluster.workers.iter().find(|group| !group.labels.is_empty() && operator.since == "1.4") {
            return Err(Error::new(ErrorKind::Unsupported, &doing)
                .because(format!(
                    "the group {} has `labels`, which its KubeRay operator (1.4) does not know",
                    group.name
                ))
                .hint("KubeRay 1.5 or newer knows them; or leave them out"));
        }
        if !missing.is_empty() {
            return Err(Error::new(ErrorKind::Provider, &doing)
                .because(format!("you may not: {}", missing.join(", ")))
                .hint("somebody with rights gives you the Role in docs/guides/kubernetes-role.yaml"));
        }
        let mut notes = vec![format!("KubeRay {} or newer, in {} as {}", operator.since, place.server, place.user)];
        notes.extend(opened(self.renderer.settings.service_type));
        if let Some(prometheus) = &cluster.prometheus {
            notes.push(format!("metrics: {}, from the namespace {}", prometheus.name, prometheus.namespace));
        }
        // What is new is tried: the namespace, quotas, other people's rules for objects.
        for request in self.renderer.requests(scope, cluster)? {
            let (kind, name) = named(&request)?;
            if place.get(kind, &name).await?.is_none() {
                // It may be tried before the user has agreed to the place: files of this machine stay here until then.
                let object = without_content(tagged(&request, &scope.tag(&request.key)));
                place.dry_run(kind, &object, Apply::Gently).await?;
            }
        }
        Ok(notes)
    }

    /// For `gpucl doctor`.
    pub(super) async fn look(&self) -> Result<Vec<SiteFinding>> {
        let place = self.place().await?;
        let found = |what, works, saw: String, fix: Option<String>| SiteFinding { what, works, saw, fix };
        let version = call("ask for the version", || place.client.apiserver_version()).await?;
        let mut findings =
            vec![found("API server", Some(true), format!("{}, {}", place.server, version.git_version), None)];
        findings.push(match operator(place).await? {
            Some(operator) if operator.is_known => {
                found("KubeRay", Some(true), format!("{} or newer", operator.since), None)
            }
            Some(_) => found("KubeRay", Some(false), "older than 1.4".to_owned(), Some(INSTALL.to_owned())),
            None => found("KubeRay", Some(false), "not there".to_owned(), Some(INSTALL.to_owned())),
        });
        let missing = missing(place, false).await?;
        let who = if place.user.is_empty() { "this account" } else { &place.user };
        findings.push(match missing.is_empty() {
            true => {
                found("rights", Some(true), format!("{who} has those that are needed in {}", place.namespace), None)
            }
            false => found(
                "rights",
                Some(false),
                format!("in {}, {who} may not: {}", place.namespace, missing.join(", ")),
                Some("somebody with rights gives the Role in docs/guides/kubernetes-role.yaml".to_owned()),
            ),
        });
        let offers = self.machines().await?;
        let gpus: u32 = offers.iter().flat_map(|offer| &offer.gpus).filter_map(|gpu| gpu.count).sum();
        findings.push(found("GPUs", None, format!("{gpus}, on {} machines: gpucl offers", offers.len()), None));
        Ok(findings)
    }
}

/// The operator, by the fields that its RayClusters have; `None` if there is none. Every user may ask for that.
async fn operator(place: &KubeContext) -> Result<Option<Operator>> {
    let doing = "look for the KubeRay operator";
    let request = || http_get("/openapi/v3/apis/ray.io/v1");
    let schema = call(doing, || async { place.client.request::<Value>(request()?).await }).await;
    let schema = match schema {
        Ok(schema) => schema,
        Err(error) if refusal::is_no_kind(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(version_of(&schema))
}

fn http_get(path: &str) -> kube::Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)
}

/// The oldest version that has all the fields of this schema.
fn version_of(schema: &Value) -> Option<Operator> {
    let schemas = schema["components"]["schemas"].as_object()?;
    let (_, cluster) = schemas.iter().find(|(name, _)| name.ends_with(".RayCluster"))?;
    let fields = &cluster["properties"]["spec"]["properties"];
    // The fields that came with a version, in its custom resource's definition.
    let known = [("networkPolicy", "1.7"), ("upgradeStrategy", "1.6"), ("authOptions", "1.5"), ("managedBy", "1.4")];
    let since = known.into_iter().find(|(field, _)| fields[*field].is_object()).map(|(_, version)| version);
    Some(Operator { since: since.unwrap_or("1.0"), is_known: since.is_some() })
}

/// The rights that the user lacks: `create rayclusters.ray.io`.
async fn missing(place: &KubeContext, monitors: bool) -> Result<Vec<String>> {
    let asked = RIGHTS
        .iter()
        .chain(if monitors { MONITORS } else { &[] })
        .flat_map(|(group, resource, verbs)| verbs.iter().map(move |verb| (group, resource, verb)));
    let answers = asked.map(|(group, resource, verb)| async move {
        let (name, sub) = resource.split_once('/').map_or((*resource, None), |(name, sub)| (name, Some(sub)));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "namespace": place.namespace, "group": group, "resource": name, "subresource": sub, "verb": verb,
            } },
        });
        let answer = call("ask what you may do", || place.create(REVIEWS, &review)).await?;
        let is_allowed = answer["status"]["allowed"] == true;
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        Ok::<_, Error>((!is_allowed).then(|| format!("{verb} {resource}{group}")))
    });
    Ok(futures_util::future::try_join_all(answers).await?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_version_is_known_by_its_fields() {
        let of = |fields: Value| {
            let cluster = json!({ "properties": { "spec": { "properties": fields } } });
            version_of(&json!({ "components": { "schemas": { "io.ray.v1.RayCluster": cluster } } }))
        };
        let since = |fields: Value| of(fields).map(|operator| operator.since);
        assert_eq!(since(json!({ "managedBy": {}, "authOptions": {}, "upgradeStrategy": {} })), Some("1.6"));
        assert_eq!(since(json!({ "managedBy": {} })), Some("1.4"));
        assert!(!of(json!({ "suspend": {} })).unwrap().is_known);
        assert_eq!(version_of(&json!({ "components": { "schemas": {} } })), None);
    }

    #[test]
    fn the_role_in_the_documentation_has_exactly_the_rights_that_are_needed() {
        let role = include_str!("../../docs/guides/kubernetes-role.yaml");
        let role: Value = serde_saphyr::from_str(role).unwrap();
        let mut written: Vec<String> = Vec::new();
        for rule in role["rules"].as_array().unwrap() {
            let list = |field: &str| rule[field].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned());
            for group in list("apiGroups") {
                for resource in list("resources") {
                    written.extend(list("verbs").map(|verb| format!("{verb} {resource} {group}")));
                }
            }
        }
        let mut needed: Vec<String> = RIGHTS
            .iter()
            .chain(MONITORS)
            .chain(OPTIONAL)
            .flat_map(|(group, resource, verbs)| verbs.iter().map(move |verb| format!("{verb} {resource} {group}")))
            .collect();
        written.sort();
        needed.sort();
        assert_eq!(written, needed);
    }
}
