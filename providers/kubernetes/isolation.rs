//! Whether the network keeps other pods away from a cluster's: tried by a pod that is none of its own.
//!
//! An API server keeps a NetworkPolicy whether the network enforces it or not, and does not say which.

use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::Kubernetes;
use super::client::{KubeContext, call, value};
use super::names::{ObjectKind, object_name};
use super::refusal;
use super::resources::id;
use crate::error::Result;
use crate::name::Scope;
use crate::provider::platform::{Isolation, Member};
use crate::util::random;

/// How long the pod may take to begin and to end.
const LIMIT: Duration = Duration::from_secs(20);
/// The pause between two looks at it.
const PAUSE: Duration = Duration::from_millis(300);
/// Ends with 0 if it connects, and with 3 if nobody answers.
const PROGRAM: &str = "import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
except OSError:
    sys.exit(3)
";

impl Kubernetes {
    /// Starts a pod beside the cluster's, which connects to a port of the head.
    pub(super) async fn try_isolation(&self, scope: &Scope, head: &Member, port: u16) -> Result<Isolation> {
        let unknown = |why: &str| Ok(Isolation::Unknown(why.to_owned()));
        if !self.renderer.settings.has_policy() {
            return unknown("the spec has `network_policy: false`");
        }
        let place = self.place().await?;
        let name = object_name(scope);
        let (Some(address), Some(cluster)) = (&head.address, place.get(ObjectKind::RayCluster, &name).await?) else {
            return unknown("the head has no address");
        };
        let pods = place.core_objects("Pod");
        let probe = format!("{name}-probe-{}", random::letters(6)?.to_lowercase());
        let pod = pod_of_probe(&probe, &cluster, head, &[address, &port.to_string()]);
        let doing = format!("make the pod {probe}");
        let made = call(&doing, || async { place.create(pods.resource_url(), &pod).await }).await;
        let seen = match &made {
            Err(error) if refusal::is_forbidden(error) => return unknown("you may not create pods"),
            // It may be there all the same: an answer can be lost.
            Err(_) => Ok(None),
            Ok(_) => code(place, &probe).await,
        };
        // It is gone with the RayCluster at the latest, which owns it.
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        let _ = pods.delete(&probe, &now).await;
        match seen? {
            Some(0) => Ok(Isolation::Open),
            Some(3) => Ok(Isolation::Enforced),
            Some(other) => unknown(&format!("the pod that tried it ended with {other}")),
            None if made.is_err() => unknown("the pod that tries it could not be made"),
            None => unknown("the pod that tries it did not run in time"),
        }
    }
}

fn pod_of_probe(probe: &str, cluster: &Value, head: &Member, arguments: &[&str]) -> Value {
    let own = &cluster["spec"]["headGroupSpec"]["template"]["spec"];
    let command = [&["python", "-c", PROGRAM], arguments].concat();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": probe,
            "ownerReferences": [{
                "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster["metadata"]["name"], "uid": id(cluster),
            }],
        },
        "spec": {
            // Where the image is already.
            "nodeName": head.machine,
            "restartPolicy": "Never", "activeDeadlineSeconds": LIMIT.as_secs(),
            "automountServiceAccountToken": false, "imagePullSecrets": own["imagePullSecrets"],
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "probe", "image": own["containers"][0]["image"], "command": command,
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "resources": {
                    "requests": { "cpu": "10m", "memory": "64Mi" }, "limits": { "cpu": "500m", "memory": "64Mi" },
                },
            }],
        },
    })
}

/// How the pod's program ended; `None` if it did not, in time.
async fn code(place: &KubeContext, probe: &str) -> Result<Option<i64>> {
    let pods = place.core_objects("Pod");
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        let found = call(&format!("look at the pod {probe}"), || pods.get_opt(probe)).await?;
        let Some(found) = found else { return Ok(None) };
        if let Some(code) = value(&found)?["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64()
        {
            return Ok(Some(code));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(None)
}
