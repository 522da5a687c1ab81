//! The testbed, started once; and what is left on it.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::{TestEnv, until_or};

/// The output of `testbed/kube/up`.
pub(super) fn testbed() -> &'static Value {
    static UP: OnceLock<Value> = OnceLock::new();
    UP.get_or_init(|| {
        let output = Command::new(folder().join("up")).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let end: Vec<&str> = stderr.lines().rev().take(30).collect();
        assert!(output.status.success(), "testbed/kube/up: {end:#?}");
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    })
}

fn folder() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/kube").into()
}

/// The namespaces of the testbed's users.
const NAMESPACES: [&str; 3] = ["team-a", "team-b", "strict"];
/// The kinds of objects that gpucl makes, or that follow from them.
const KINDS: &str =
    "rayclusters,podmonitors,secrets,networkpolicies,configmaps,pods,services,serviceaccounts,roles,rolebindings";

/// One test at a time has the cluster, of all checkouts.
pub(super) struct Turn(File);

/// Takes the cluster, without objects of an aborted test.
pub(super) fn turn() -> Turn {
    let _ = testbed();
    let file = File::create(std::env::temp_dir().join("gpucl-kube-tests.lock")).unwrap();
    file.lock().unwrap();
    clear();
    Turn(file)
}

impl Drop for Turn {
    fn drop(&mut self) {
        clear();
        let _ = self.0.unlock();
    }
}

fn clear() {
    for namespace in NAMESPACES {
        let arguments = [
            "-n",
            namespace,
            "delete",
            "rayclusters,podmonitors,secrets,networkpolicies,resourcequotas,limitranges",
            "--all",
            "--timeout=60s",
        ];
        let _ = Command::new(folder().join("kubectl")).args(arguments).output();
        // Not all of them: Kubernetes keeps one of its own in every namespace.
        let ours = ["-n", namespace, "delete", "configmaps", "-l", "gpucl.dev/owner"];
        let _ = Command::new(folder().join("kubectl")).args(ours).output();
    }
}

/// Runs `kubectl` as the administrator; returns what it printed.
#[track_caller]
pub(super) fn kubectl(arguments: &[&str]) -> String {
    let output = Command::new(folder().join("kubectl")).args(arguments).output().unwrap();
    assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is left of anybody's clusters.
pub(super) fn left() -> Vec<String> {
    let mut left = Vec::new();
    for namespace in NAMESPACES {
        let found = kubectl(&["-n", namespace, "get", KINDS, "-o", "name"]);
        let kubernetes = ["serviceaccount/default", "secret/default-token", "configmap/kube-root-ca.crt"];
        let ours = found.lines().filter(|name| !kubernetes.iter().any(|known| name.starts_with(known)));
        left.extend(ours.filter(|name| !is_of_testbed(name)).map(|name| format!("{namespace}: {name}")));
    }
    left
}

/// Whether the testbed itself made it: the users' Role and its binding.
fn is_of_testbed(name: &str) -> bool {
    let roles = ["role.rbac.authorization.k8s.io/ray-user", "rolebinding.rbac.authorization.k8s.io/"];
    roles.iter().any(|known| name.starts_with(known)) && !name.contains("autoscaler")
}

/// Waits until nothing of anybody's is left.
#[track_caller]
pub(super) fn nothing_is_left() {
    until_or("nothing is left", 60, || left().is_empty().then_some(()), || left().join("\n"));
}

/// The settings of the provider for one of the testbed's users, with more of them.
pub(super) fn settings(user: &str, more: &Value) -> Value {
    let small = json!({ "cpu": "200m", "memory": "1500Mi", "image": testbed()["image"] });
    let mut settings = json!({
        "name": "kubernetes",
        "kubeconfig": testbed()["users"][user],
        "namespace": if user == "ada" { "team-a" } else { "team-b" },
        "pods": small,
        "head": { "cpu": "300m", "memory": "2Gi" },
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

/// Writes a spec with these settings of the provider, these workers, and more keys.
pub(super) fn spec(env: &TestEnv, name: &str, settings: &Value, workers: &Value, more: &Value) -> String {
    let mut spec = json!({
        "name": name,
        "provider": settings,
        "ray": { "version": testbed()["ray"], "workers": workers },
        "timeouts": { "ready": "4m" },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let file = env.write(&format!("{name}.yaml"), &serde_json::to_string_pretty(&spec).unwrap()).display().to_string();
    // The testbed's kubeconfigs are not in the home of the test.
    env.accept(&file);
    file
}

/// The place as the command line names it.
pub(super) fn place(user: &str) -> String {
    let namespace = if user == "ada" { "team-a" } else { "team-b" };
    format!("{user}@{}/{namespace}", testbed()["node"].as_str().unwrap())
}

/// A command that runs as root on the node.
pub(super) fn on_node(arguments: &[&str]) -> Command {
    let mut command = Command::new(folder().join("exec"));
    command.args(arguments);
    command
}

/// Runs a command as root on the node.
#[track_caller]
pub(super) fn inside(command: &str) {
    let output = on_node(&["sh", "-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Installs the custom resources of a version of KubeRay.
#[track_caller]
pub(super) fn install(version: &str) {
    let folder = format!("{}/{version}", testbed()["crds"].as_str().unwrap());
    kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &folder]);
}
