//! Ray's dashboards for the Grafana of a Kubernetes cluster: a ConfigMap that Grafana's sidecar finds by its label.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::Kubernetes;
use super::client::{MANAGER, call};
use super::names::{DIGEST, ObjectKind, object_name};
use super::resources::id;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::ExecEnd;
use crate::name::Scope;
use crate::provider::platform::{Part, Running};
use crate::util::digest;

/// The label that Grafana's sidecar selects by, in all namespaces, as kube-prometheus-stack installs it (its
/// `grafana.sidecar.dashboards`).
const LABEL: (&str, &str) = ("grafana_dashboard", "1");
/// Prints what Ray has written when its head started, once it has: an object with the files by name.
const PROGRAM: &str = "import glob, json, os, sys, time
folder = os.environ.get('RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR')
folder = folder or '/tmp/ray/session_latest/metrics/grafana/dashboards'
for _ in range(50):
    found = glob.glob(os.path.join(folder, '*.json'))
    if found:
        break
    time.sleep(0.2)
json.dump({os.path.basename(one): json.load(open(one)) for one in found}, sys.stdout)
";
/// How long it may take to read them.
const LIMIT: Duration = Duration::from_secs(20);
/// The most that is read, in bytes.
const MOST: u64 = 8 << 20;

impl Kubernetes {
    /// Shows the dashboards of this version of Ray in Grafana, or removes them where there is no version.
    pub(super) async fn publish_dashboards(&self, scope: &Scope, version: Option<&str>) -> Result<()> {
        let place = self.place().await?;
        let cluster = object_name(scope);
        let name = format!("{cluster}-dashboards");
        let maps = place.core_objects("ConfigMap");
        let found = call(&format!("look at the configmap {name}"), || maps.get_opt(&name)).await?;
        let found = found.map(|found| found.metadata.annotations.unwrap_or_default().remove(DIGEST));
        match (version, found) {
            (None, None) => return Ok(()),
            (Some(version), Some(Some(there))) if there == version => return Ok(()),
            (_, Some(None)) => {
                return Err(Error::new(ErrorKind::Provider, "show Ray's dashboards in Grafana")
                    .because(format!("there is a configmap {name} that is not this cluster's; it is left alone")));
            }
            (None, Some(Some(_))) => {
                let once = || async {
                    match maps.delete(&name, &DeleteParams::default()).await {
                        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                        deleted => deleted.map(drop),
                    }
                };
                return call(&format!("delete the configmap {name}"), once).await;
            }
            (Some(_), _) => {}
        }
        let pods = self.pods(place, &cluster).await?;
        let head = pods.iter().map(super::pods::Pod::member).find(|member| member.is_head);
        let (Some(head), Some(secret)) = (head, place.get(ObjectKind::Token, &cluster).await?) else { return Ok(()) };
        let files = tokio::time::timeout(LIMIT, self.dashboards_in(&head.name)).await;
        let files = files.doing(ErrorKind::Timeout, || format!("read Ray's dashboards in {}", head.name))??;
        let data: BTreeMap<String, String> = files
            .into_iter()
            .map(|(file, dashboard)| (format!("{cluster}-{file}"), of_cluster(&cluster, dashboard).to_string()))
            .collect();
        let (key, value) = LABEL;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "labels": { key: value }, "annotations": { DIGEST: version },
                // It is gone with the Secret.
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Secret", "name": cluster, "uid": id(&secret) }],
            },
            "data": data,
        });
        let (params, patch) = (PatchParams::apply(MANAGER), Patch::Apply(&map));
        call(&format!("apply the configmap {name}"), || maps.patch(&name, &params, &patch)).await.map(drop)
    }

    /// The dashboards that Ray has written in this pod, by the names of their files.
    async fn dashboards_in(&self, pod: &str) -> Result<BTreeMap<String, Value>> {
        let doing = || format!("read Ray's dashboards in {pod}");
        let Running { input, output, mut errors, resize: _resize, ended } =
            self.run(pod, Part::Ray, &["python", "-c", PROGRAM], None).await?;
        drop(input);
        let (mut bytes, mut said) = (Vec::new(), Vec::new());
        let mut output = output.take(MOST);
        let (read, _) = tokio::join!(output.read_to_end(&mut bytes), errors.read_to_end(&mut said));
        read.doing(ErrorKind::Provider, doing)?;
        match (ended.await, serde_json::from_slice::<BTreeMap<String, Value>>(&bytes)) {
            (ExecEnd::Exited(0), Ok(files)) if !files.is_empty() => Ok(files),
            (ExecEnd::Exited(0), Ok(_)) => Err(Error::new(ErrorKind::Provider, doing()).because("it has none")),
            _ => Err(Error::new(ErrorKind::Provider, doing())
                .because(String::from_utf8_lossy(&said).lines().next_back().unwrap_or("it ended").to_owned())),
        }
    }
}

/// The dashboard as that of one cluster, which it shows first: several clusters have theirs in one Grafana.
fn of_cluster(cluster: &str, mut dashboard: Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (title, own) = (text(&dashboard["title"]), text(&dashboard["uid"]));
    dashboard["title"] = json!(format!("Ray {title} ({cluster})"));
    // Grafana takes 40 characters.
    dashboard["uid"] = json!(format!("ray-{}", digest::short(format!("{cluster}/{own}").as_bytes())));
    dashboard["id"] = Value::Null;
    let variables = dashboard.pointer_mut("/templating/list").and_then(Value::as_array_mut);
    for variable in variables.into_iter().flatten().filter(|variable| variable["name"] == "Cluster") {
        let several = variable["multi"] == json!(true);
        let choice = if several { json!([cluster]) } else { json!(cluster) };
        variable["current"] = json!({ "selected": true, "text": choice, "value": choice });
    }
    dashboard
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dashboard_is_that_of_one_cluster() {
        let variables = json!([{ "name": "datasource" }, { "name": "Cluster", "multi": true, "current": {} }]);
        let ray = json!({
            "id": 7, "uid": "rayDefaultDashboard", "title": "Default Dashboard", "templating": { "list": variables },
        });
        let one = of_cluster("demo-abc", ray.clone());
        assert_eq!((&one["title"], &one["id"]), (&json!("Ray Default Dashboard (demo-abc)"), &Value::Null));
        assert_eq!(one["templating"]["list"][1]["current"]["value"], json!(["demo-abc"]));
        assert_eq!(one["templating"]["list"][0], json!({ "name": "datasource" }));
        let uid = one["uid"].as_str().unwrap();
        assert!(uid.len() <= 40, "{uid}");
        assert_ne!(one["uid"], of_cluster("other-abc", ray)["uid"]);
    }
}
