//! What goes wrong on a Kubernetes cluster, and what is said of it.

use serde_json::{Value, json};

use super::testbed::{self, kubectl, nothing_is_left, place, turn};
use crate::support::{After, TestEnv, interrupt, until};

/// What cannot come is said while it is waited for, with what to do; the cluster stays and can be removed.
#[test]
#[ignore = "by hand: just kube"]
fn pods_that_cannot_run_are_explained() {
    let _turn = turn();
    let env = TestEnv::new();
    for (name, workers, more, says) in [
        ("many", json!({ "gpus": 3 }), json!({ "wait": "5s" }), "Insufficient nvidia.com/gpu"),
        (
            "picky",
            json!({}),
            json!({ "wait": "5s", "pods": { "memory": "1Gi", "cpu": "100m", "node_selector": { "pool": "none" } } }),
            "node affinity/selector",
        ),
        (
            "image",
            json!({}),
            json!({ "wait": "60s", "pods": { "memory": "1Gi", "cpu": "100m", "image": "lab/none:1" } }),
            "cannot be pulled",
        ),
    ] {
        let spec = testbed::spec(&env, name, &testbed::settings("ada", &more), &workers, &json!({}));
        let up = env.run(&["up", "--yes", "--at", &place("ada"), &spec]);
        assert!(![Some(0)].contains(&up.code) && up.stderr.contains(says), "{name}: {}", up.stderr);
        env.run(&["down", "--yes", "-c", name]).exits(0);
    }
    nothing_is_left();
}

/// A wait is no call in flight: it ends at the first Ctrl-C, and what was requested is on record.
#[test]
#[ignore = "testbed"]
fn ctrl_c_ends_the_wait_for_pods_at_once() {
    let _turn = turn();
    let env = TestEnv::new();
    let settings = testbed::settings(
        "ada",
        &json!({ "pods": { "memory": "1Gi", "cpu": "100m", "node_selector": { "pool": "none" } } }),
    );
    let spec = testbed::spec(&env, "awaited", &settings, &json!({}), &json!({}));
    let mut up = env.command(&["up", "--yes", "--at", &place("ada"), &spec]);
    let up = up.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let folder = env.paths().cluster(&"awaited".parse().unwrap());
    until("the RayCluster is on record", 120, || {
        (crate::crash::real::count(&folder, ("exists", "raycluster", "")) > 0).then_some(())
    });
    let pressed = std::time::Instant::now();
    interrupt(&up);
    let ended = up.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    println!("Ctrl-C ended the wait for pods after {:.1} s", pressed.elapsed().as_secs_f64());
    assert!(said.contains("on record") && said.contains("gpucl down -c awaited"), "{said}");
    env.run(&["down", "--yes", "-c", "awaited"]).exits(0);
    nothing_is_left();
}

/// Rights that are missing are named before anything is made.
#[test]
#[ignore = "by hand: just kube"]
fn a_missing_right_is_named() {
    let _turn = turn();
    let env = TestEnv::new();
    let mut settings = testbed::settings("ada", &json!({}));
    settings["namespace"] = json!("team-b");
    let spec = testbed::spec(&env, "foreign", &settings, &json!({}), &json!({}));
    let there = place("ada").replace("team-a", "team-b");
    let up = env.run(&["up", "--yes", "--at", &there, &spec]).exits(1);
    assert!(up.stderr.contains("create rayclusters.ray.io"), "{}", up.stderr);
    env.run(&["list"]).exits(0);
    nothing_is_left();
}

/// A quota, and a taint: why pods do not come, and a toleration to paste, which works.
#[test]
#[ignore = "by hand: just kube"]
fn a_quota_and_a_taint_are_explained() {
    let _turn = turn();
    let env = TestEnv::new();
    let at = place("ada");
    let brief = testbed::settings("ada", &json!({ "wait": "20s" }));
    let quota = ["-n", "team-a", "create", "quota", "few", "--hard=pods=1"];
    kubectl(&quota);
    let spec = testbed::spec(&env, "quota", &brief, &json!([{ "name": "cpu", "count": 1, "cpus": 1 }]), &json!({}));
    let up = env.run(&["up", "--yes", "--at", &at, &spec]);
    assert!(up.code != Some(0) && up.stderr.contains("exceeded quota: few"), "{:?} {}", up.code, up.stderr);
    assert!(up.stderr.contains("kubectl describe resourcequota"), "{}", up.stderr);
    env.run(&["down", "--yes", "-c", "quota"]).exits(0);
    kubectl(&["-n", "team-a", "delete", "quota", "few"]);

    let node = testbed::testbed()["node"].as_str().unwrap();
    kubectl(&["taint", "node", node, "nodepool=gpu-platform:NoSchedule", "--overwrite"]);
    let _untaint = After(|| {
        kubectl(&["taint", "node", node, "nodepool-"]);
    });
    let spec = testbed::spec(&env, "taint", &brief, &json!({ "count": 0 }), &json!({}));
    let up = env.run(&["up", "--yes", &spec]).exits(7);
    let pasted = "tolerations: [{key: nodepool, operator: Equal, value: gpu-platform}]";
    assert!(up.stderr.contains("untolerated taint"), "{}", up.stderr);
    assert!(up.stderr.contains(pasted), "{}", up.stderr);
    let tolerates = json!({ "tolerations": [{ "key": "nodepool", "operator": "Equal", "value": "gpu-platform" }] });
    let mut settings = testbed::settings("ada", &json!({}));
    settings["pods"].as_object_mut().unwrap().extend(tolerates.as_object().unwrap().clone());
    let spec = testbed::spec(&env, "taint", &settings, &json!({ "count": 0 }), &json!({}));
    env.run(&["up", "--yes", &spec]).exits(0).prints("ready:");
    env.run(&["down", "--yes", "-c", "taint"]).exits(0);
    nothing_is_left();
}

/// Somebody else has changed the same field: their change is not overwritten, and they are named. A finalizer that
/// nobody removes is named by `down`, and the next `down` goes on.
#[test]
#[ignore = "by hand: just kube"]
fn a_conflict_and_a_stuck_finalizer_are_named() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec_with = |idle: &str| {
        testbed::spec(
            &env,
            "both",
            &testbed::settings("ada", &json!({ "idle_timeout": idle })),
            &json!([{ "name": "cpu", "min": 0, "max": 1, "cpus": 1 }]),
            &json!({}),
        )
    };
    env.run(&["up", "--yes", "--at", &place("ada"), &spec_with("60s")]).exits(0);
    let name = kubectl(&["-n", "team-a", "get", "rayclusters", "-o", "name"]).trim().to_owned();
    let patch = r#"{"spec":{"autoscalerOptions":{"idleTimeoutSeconds":77}}}"#;
    kubectl(&["-n", "team-a", "patch", &name, "--type=merge", "--field-manager=somebody", "-p", patch]);
    // It is known before anything is changed.
    env.run(&["plan", &spec_with("90s")]).exits(1).says("conflict with \"somebody\"");
    let up = env.run(&["up", "--yes", &spec_with("90s")]).exits(1);
    assert!(up.stderr.contains("conflict with \"somebody\""), "{}", up.stderr);
    let idle = ["-n", "team-a", "get", &name, "-o", "jsonpath={.spec.autoscalerOptions.idleTimeoutSeconds}"];
    assert_eq!(kubectl(&idle), "77", "somebody's value stays");

    let stuck = r#"{"metadata":{"finalizers":["example.org/stuck"]}}"#;
    kubectl(&["-n", "team-a", "patch", &name, "--type=merge", "-p", stuck]);
    let down = env.run(&["down", "--yes", "-c", "both"]);
    assert!(down.code != Some(0) && down.stderr.contains("example.org/stuck"), "{:?} {}", down.code, down.stderr);
    let freed = r#"{"metadata":{"finalizers":null}}"#;
    kubectl(&["-n", "team-a", "patch", &name, "--type=merge", "-p", freed]);
    env.run(&["down", "--yes", "-c", "both"]).exits(0);
    nothing_is_left();
}

/// What is wrong with the way in: each says what it is, and makes nothing.
#[test]
#[ignore = "by hand: just kube"]
fn a_wrong_way_in_is_explained() {
    let _turn = turn();
    let env = TestEnv::new();
    let good = std::fs::read_to_string(testbed::testbed()["users"]["ada"].as_str().unwrap()).unwrap();
    let good: Value = serde_yaml::from_str(&good).unwrap();
    let with = |path: &str, value: Value| {
        let mut other = good.clone();
        *other.pointer_mut(path).unwrap() = value;
        other
    };
    let plugin = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "interactiveMode": "Never" });
    for (name, kubeconfig, namespace, says) in [
        (
            "away",
            with("/clusters/0/cluster/server", json!("https://127.0.0.1:1")),
            "team-a",
            "does the API server of this context answer?",
        ),
        ("expired", with("/users/0/user", json!({ "token": "expired" })), "team-a", "log in again"),
        ("plugin", with("/users/0/user", json!({ "exec": plugin })), "team-a", "no-such-plugin"),
        ("nowhere", good.clone(), "nowhere", "you may not: create rayclusters.ray.io"),
        ("context", good.clone(), "team-a", "no-such-context"),
    ] {
        let path = env.write(&format!("{name}.kubeconfig"), &kubeconfig.to_string()).display().to_string();
        let mut settings = testbed::settings("ada", &json!({ "kubeconfig": path, "namespace": namespace }));
        if name == "context" {
            settings["context"] = json!("no-such-context");
        }
        let spec = testbed::spec(&env, name, &settings, &json!({ "count": 0 }), &json!({}));
        let plan = env.run(&["plan", &spec]);
        assert!(plan.code != Some(0) && plan.stderr.contains(says), "{name}: {:?} {}", plan.code, plan.stderr);
    }
    // As an administrator, who may do everything in a namespace that is not there.
    let admin = json!({ "kubeconfig": testbed::testbed()["kubeconfig"], "namespace": "nowhere" });
    let spec = testbed::spec(&env, "admin", &testbed::settings("ada", &admin), &json!({ "count": 0 }), &json!({}));
    let plan = env.run(&["plan", &spec]);
    assert!(
        plan.code != Some(0) && plan.stderr.contains("kubectl create namespace"),
        "{:?} {}",
        plan.code,
        plan.stderr
    );
    nothing_is_left();
}

/// Without the operator's custom resources, `plan` and `doctor` say what to install, and who does it.
#[test]
#[ignore = "by hand: just kube"]
fn a_cluster_without_the_operator_is_recognised() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = testbed::spec(&env, "none", &testbed::settings("ada", &json!({})), &json!({ "count": 0 }), &json!({}));
    kubectl(&["delete", "crd", "rayclusters.ray.io"]);
    let installed = After(|| testbed::install("v1.6.2"));
    let words = "this Kubernetes cluster has no KubeRay operator";
    until("the operator is missed", 30, || env.run(&["plan", &spec]).stderr.contains(words).then_some(()));
    let plan = env.run(&["plan", &spec]);
    assert!(plan.stderr.contains("an administrator installs it: helm repo add kuberay"), "{}", plan.stderr);
    drop(installed);
    until("the operator is there again", 60, || (env.run(&["plan", &spec]).code == Some(0)).then_some(()));
}

/// An image with another Ray than the spec's runs, and is not ready.
#[test]
#[ignore = "by hand: just kube"]
fn an_image_with_another_ray_is_not_ready() {
    let _turn = turn();
    let env = TestEnv::new();
    let ray = json!({ "version": "2.59.0", "workers": { "count": 0 } });
    let more = json!({ "ray": ray });
    let spec = testbed::spec(&env, "other", &testbed::settings("ada", &json!({})), &json!({}), &more);
    let up = env.run(&["up", "--yes", "--at", &place("ada"), &spec]);
    let says = "the image has Ray 2.60.0, and the spec says 2.59.0";
    assert!(up.code != Some(0) && up.stderr.contains(says), "{:?} {}", up.code, up.stderr);
    env.run(&["down", "--yes", "-c", "other"]).exits(0);
    nothing_is_left();
}

/// What others have ruled for the namespace or its objects is quoted: before anything is made where that can be known.
#[test]
#[ignore = "by hand: just kube"]
fn rules_of_others_are_quoted() {
    let _turn = turn();
    let env = TestEnv::new();
    let at = place("ada");
    let brief = testbed::settings("ada", &json!({ "wait": "30s" }));
    let spec = |name: &str| testbed::spec(&env, name, &brief, &json!({ "count": 0 }), &json!({}));

    // A limit of the namespace, which KubeRay meets when it makes the pod.
    let limits = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "small" },
        "spec": { "limits": [{ "type": "Container", "max": { "memory": "1Gi" } }] },
    });
    let file = env.write("limits.json", &limits.to_string()).display().to_string();
    kubectl(&["-n", "team-a", "apply", "-f", &file]);
    let up = env.run(&["up", "--yes", "--at", &at, &spec("limits")]);
    assert!(up.code != Some(0) && up.stderr.contains("maximum memory usage per Container is 1Gi"), "{}", up.stderr);
    env.run(&["down", "--yes", "-c", "limits"]).exits(0);
    kubectl(&["-n", "team-a", "delete", "limitrange", "small"]);

    // An admission webhook that does not answer, and a policy that refuses, both for RayClusters.
    let rule = json!([{ "apiGroups": ["ray.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["rayclusters"] }]);
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "gpucl-test" },
        "webhooks": [{
            "name": "costs.example.org", "clientConfig": { "url": "https://127.0.0.1:1/costs" }, "rules": rule,
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 5,
        }],
    });
    let policy = json!({ "apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": "gpucl-test" },
            "spec": {
                "matchConstraints": { "resourceRules": rule },
                "validations": [{ "expression": "has(object.metadata.labels.team)", "message": "every RayCluster has a team" }],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": "gpucl-test" },
            "spec": { "policyName": "gpucl-test", "validationActions": ["Deny"] },
        },
    ] });
    for (name, object, kinds, says) in [
        ("webhook", webhook, "validatingwebhookconfiguration", "failed calling webhook \"costs.example.org\""),
        ("policy", policy, "validatingadmissionpolicy,validatingadmissionpolicybinding", "every RayCluster has a team"),
    ] {
        let file = env.write(&format!("{name}.json"), &object.to_string()).display().to_string();
        kubectl(&["apply", "-f", &file]);
        let _removed = After(|| {
            kubectl(&["delete", kinds, "gpucl-test"]);
        });
        let spec = spec(name);
        // The API server takes a moment until it asks it.
        until(says, 30, || env.run(&["plan", &spec]).stderr.contains(says).then_some(()));
        let up = env.run(&["up", "--yes", "--at", &at, &spec]);
        assert!(up.code != Some(0) && up.stderr.contains(says), "{name}: {}", up.stderr);
        assert_eq!(testbed::left(), [""; 0], "{name}: nothing was made");
    }
}

/// A pod that runs out of memory is named with its limit; a name that is too long is refused before anything is made.
#[test]
#[ignore = "by hand: just kube"]
fn too_little_memory_and_too_long_a_name_are_explained() {
    let _turn = turn();
    let env = TestEnv::new();
    let tight = json!({ "wait": "60s", "head": { "cpu": "300m", "memory": "700Mi" } });
    let greedy = json!({ "setup": { "commands": ["exec python -c 'len(b\"x\" * (2 << 30))'"] } });
    let spec = testbed::spec(&env, "tight", &testbed::settings("ada", &tight), &json!({ "count": 0 }), &greedy);
    let up = env.run(&["up", "--yes", "--at", &place("ada"), &spec]);
    let says = "it used more memory than its limit (OOMKilled)";
    assert!(up.code != Some(0) && up.stderr.contains(says), "{:?} {}", up.code, up.stderr);
    env.run(&["down", "--yes", "-c", "tight"]).exits(0);
    nothing_is_left();

    let group = "a".repeat(70);
    let workers = json!([{ "name": group, "count": 1, "cpus": 1 }]);
    let spec = testbed::spec(&env, "long", &testbed::settings("ada", &json!({})), &workers, &json!({}));
    let up = env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(2);
    assert!(up.stderr.contains("ray.workers[0].name"), "{}", up.stderr);
    let spec = testbed::spec(&env, &"b".repeat(40), &testbed::settings("ada", &json!({})), &json!([]), &json!({}));
    env.run(&["plan", &spec]).exits(2).says("name: ");
    nothing_is_left();
}

/// A job that waits says for what: for a worker that the autoscaler adds, or that no group may have more.
#[test]
#[ignore = "by hand: just kube"]
fn a_job_beyond_the_most_workers_says_what_it_waits_for() {
    let _turn = turn();
    let env = TestEnv::new();
    let workers = json!([{ "name": "cpu", "min": 0, "max": 1, "cpus": 1 }]);
    let spec = testbed::spec(&env, "most", &testbed::settings("ada", &json!({})), &workers, &json!({}));
    env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(0);
    let program = "import ray, time
ray.init()
@ray.remote(num_cpus=1)
class Holds:
    def ping(self):
        return 1
both = [Holds.remote(), Holds.remote()]
print('one of two', ray.get(both[0].ping.remote()), flush=True)
ray.get(both[1].ping.remote())
";
    let submit = ["job", "submit", "-c", "most", "--no-wait", "--id", "holds", "--", "python", "-c", program];
    env.run(&submit).exits(0);
    let reason = || env.run(&["job", "status", "-c", "most", "holds"]).stdout;
    until("the autoscaler is waited for", 60, || {
        reason().contains("Ray's autoscaler adds a node for it").then_some(())
    });
    let full = "what the nodes have is in use, and no group may have more nodes";
    until("the group is full", 120, || reason().contains(full).then_some(()));
    env.run(&["job", "stop", "-c", "most", "holds"]).exits(0);
    env.run(&["down", "--yes", "-c", "most"]).exits(0);
    nothing_is_left();
}

/// A clock that is far off is what is wrong with a certificate that is not valid yet, or no longer.
#[test]
#[ignore = "by hand: just kube"]
fn a_clock_that_is_wrong_is_named() {
    let _turn = turn();
    let mut env = TestEnv::new();
    let shim = "#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec -= 20L * 365 * 24 * 3600;
    return done;
}
";
    let source = env.write("clock.c", shim);
    let library = env.work().join("clock.so");
    let compiled =
        std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(compiled.success());
    let spec = testbed::spec(&env, "early", &testbed::settings("ada", &json!({})), &json!({ "count": 0 }), &json!({}));
    env.run(&["plan", &spec]).exits(0);
    env.set("LD_PRELOAD", library.to_str().unwrap());
    let plan = env.run(&["plan", &spec]);
    assert!(plan.code != Some(0) && plan.stderr.contains("is the clock of this machine right?"), "{}", plan.stderr);
}
