//! What is rendered, as real API servers take it: of three versions of KubeRay, and in a namespace that admits little.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::testbed::{self, install, kubectl, nothing_is_left, place, testbed, turn};
use crate::support::{TestEnv, until};

/// A spec with everything that a RayCluster can have of it: the guide's pool of GPUs behind a taint, limits, custom
/// resources, a service type, mounts.
fn everything(env: &TestEnv, labels: &Value) -> String {
    let more = json!({
        "service_type": "NodePort",
        "idle_timeout": "2m",
        "pods": {
            "image": testbed()["image"],
            "labels": { "team": "a" },
            "image_pull_secrets": ["registry"],
            "mounts": [{ "path": "/scratch", "empty": "1Gi" }, { "path": "/etc/team", "config_map": "team", "read_only": true }],
        },
        "groups": {
            "gpu": {
                "node_selector": { "nodepool": "gpu-platform" },
                "tolerations": [{ "key": "nodepool", "operator": "Equal", "value": "gpu-platform", "effect": "NoSchedule" }],
                "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": { "matchExpressions": [{ "key": "gpu", "operator": "Exists" }] } }] } },
                "priority_class": "system-node-critical",
                "gpu_resource": "nvidia.com/mig-1g.10gb",
            },
        },
    });
    let gpu = json!({ "name": "gpu", "min": 1, "max": 3, "cpus": 2, "gpus": 1, "memory": "4GiB", "resources": { "accelerator": 2 }, "labels": labels });
    let cpu = json!({ "name": "cpu", "count": 2, "cpus": 1 });
    let head = json!({ "head": { "memory": "2GiB" }, "version": testbed()["ray"], "workers": [gpu, cpu] });
    testbed::spec(env, "all", &testbed::settings("ada", &more), &json!([]), &json!({ "ray": head }))
}

/// Gives a text to `kubectl`; returns whether it was taken, and what was said.
fn given(arguments: &[&str], text: &str) -> (bool, String) {
    let kubectl = concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/kube/kubectl");
    let mut command = Command::new(kubectl);
    let mut child =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), said)
}

/// The CRDs of KubeRay 1.6.2 are there again when this is dropped.
struct Installed;

impl Drop for Installed {
    fn drop(&mut self) {
        install("v1.6.2");
    }
}

#[test]
#[ignore = "testbed"]
fn what_is_rendered_is_taken_by_three_versions_of_kuberay() {
    let _turn = turn();
    let env = TestEnv::new();
    let to = env.root().join("rendered");
    let _installed = Installed;
    for version in ["v1.4.2", "v1.6.2", "v1.7.0"] {
        install(version);
        let mut spec = everything(&env, &json!({ "zone": "a" }));
        if version == "v1.4.2" {
            let words = "the group gpu has `labels`, which its KubeRay operator (1.4) does not know";
            // The API server publishes a changed schema a moment later.
            until("the older schema is known", 30, || env.run(&["plan", &spec]).stderr.contains(words).then_some(()));
            spec = everything(&env, &json!({}));
        }
        env.run(&["render", &spec, "--to", to.to_str().unwrap()]).exits(0);
        let text = std::fs::read_to_string(to.join("cluster.yaml")).unwrap();
        assert!(!text.contains("stringData") && text.contains("auth_token"), "the token is a reference only");
        let dry = ["-n", "team-a", "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
        let (taken, said) = given(&dry, &text);
        assert!(taken && said.contains("raycluster"), "{version}: {said}");
    }
    println!("--dry-run=server: KubeRay 1.4.2, 1.6.2 and 1.7.0 take all that is rendered");
}

/// What the API server keeps of a spec with everything is what the spec says.
#[test]
#[ignore = "testbed"]
fn what_the_spec_says_is_what_the_api_server_keeps() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = everything(&env, &json!({ "zone": "a" }));
    let plan = env.run(&["plan", &spec]).exits(0);
    let open = "service_type NodePort: the dashboard, Ray's client and applications of Serve are open";
    assert!(plan.stdout.contains(open), "{}", plan.stdout);
    let mut up = env.command(&["up", "--yes", "--at", &place("ada"), &spec]);
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let found = until("the cluster is there", 60, || {
        let list: Value =
            serde_json::from_str(&kubectl(&["-n", "team-a", "get", "rayclusters", "-o", "json"])).unwrap();
        list["items"].as_array()?.first().cloned()
    });
    up.kill().unwrap();
    up.wait().unwrap();
    let spec_of = &found["spec"];
    assert_eq!(spec_of["headGroupSpec"]["serviceType"], "NodePort");
    assert_eq!(spec_of["autoscalerOptions"]["idleTimeoutSeconds"], 120);
    let gpu = &spec_of["workerGroupSpecs"][0];
    assert_eq!((&gpu["minReplicas"], &gpu["maxReplicas"]), (&json!(1), &json!(3)));
    assert_eq!(gpu["rayStartParams"]["resources"], "'{\"accelerator\":2}'");
    let pod = &gpu["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["nodepool"], "gpu-platform");
    assert_eq!(pod["tolerations"][0]["value"], "gpu-platform");
    assert_eq!(pod["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.10gb"], "1");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["volumes"][1]["emptyDir"]["sizeLimit"], "1Gi");
    assert_eq!(spec_of["workerGroupSpecs"][1]["replicas"], 2);
    env.run(&["down", "--yes", "-c", "all"]).exits(0);
    nothing_is_left();
}

/// A namespace that enforces the Pod Security Standard `restricted` admits our pods.
#[test]
#[ignore = "testbed"]
fn a_restricted_namespace_runs_a_cluster() {
    let _turn = turn();
    let env = TestEnv::new();
    let settings = testbed::settings("ada", &json!({ "namespace": "strict" }));
    let workers = json!([{ "name": "cpu", "min": 0, "max": 1, "cpus": 1 }]);
    let spec = testbed::spec(&env, "strict", &settings, &workers, &json!({}));
    let there = place("ada").replace("team-a", "strict");
    env.run(&["up", "--yes", "--at", &there, &spec]).exits(0).prints("ready:");
    env.run(&["down", "--yes", "-c", "strict"]).exits(0);
    nothing_is_left();
}
