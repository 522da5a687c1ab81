//! Tests of the settings and the objects; `tests/kube/` tests the provider on a real Kubernetes.

use std::collections::BTreeMap;

use super::*;
use crate::spec::check_settings;

fn scope() -> Scope {
    Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() }
}

fn renderer(settings: &Value) -> Renderer {
    assert_eq!(check_settings(&FACTORY, settings, &[json!({})]), [], "{settings}");
    Renderer { settings: config::read(settings).unwrap(), library: Library::default() }
}

fn group(name: &str, count: u32) -> NodeGroup {
    NodeGroup { name: name.to_owned(), count, min: count, max: count, ..NodeGroup::default() }
}

/// A head and two groups, one of which scales.
fn cluster() -> ClusterRequest {
    let gpu = NodeGroup {
        gpus: 1,
        cpus: Some(4),
        memory: Some(16 << 30),
        resources: BTreeMap::from([("fast".to_owned(), 2.0)]),
        ..group("gpu", 2)
    };
    let cpu = NodeGroup { min: 0, max: 5, ..group("cpu", 0) };
    ClusterRequest { workers: vec![gpu, cpu], ..smallest() }
}

fn ray_cluster(settings: &Value, cluster: &ClusterRequest) -> Value {
    renderer(settings).requests(&scope(), cluster).unwrap().pop().unwrap().settings
}

#[test]
fn a_cluster_is_three_objects_and_the_last_needs_the_others() {
    let requests = renderer(&json!({})).requests(&scope(), &cluster()).unwrap();
    let kinds: Vec<&str> = requests.iter().map(|request| request.kind.0.as_str()).collect();
    assert_eq!(kinds, ["secret", "networkpolicy", "raycluster"]);
    assert_eq!(requests[2].needs, [ObjectKind::Token.key(), ObjectKind::Policy.key()]);
    let without = renderer(&json!({ "network_policy": false })).requests(&scope(), &cluster()).unwrap();
    assert_eq!(without.len(), 2);
}

#[test]
fn the_spec_becomes_a_raycluster_that_is_closed() {
    let object = ray_cluster(&json!({}), &cluster());
    assert_eq!(object["metadata"]["name"], "demo-abcd1234");
    let head = &object["spec"]["headGroupSpec"];
    assert_eq!(head["serviceType"], "ClusterIP");
    assert_eq!(head["rayStartParams"]["num-cpus"], "0");
    let groups = object["spec"]["workerGroupSpecs"].as_array().unwrap();
    assert_eq!(groups[0]["replicas"], 2);
    assert!(groups[1]["replicas"].is_null(), "Ray's autoscaler decides");
    assert_eq!((&groups[1]["minReplicas"], &groups[1]["maxReplicas"]), (&json!(0), &json!(5)));
    assert_eq!(object["spec"]["enableInTreeAutoscaling"], true);
    let limits = &groups[0]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({ "cpu": "4", "memory": (16_u64 << 30).to_string(), "nvidia.com/gpu": "1" }));
    // As `ray start --resources='{"fast":2}'` has it: whole, since Ray's autoscaler takes nothing else.
    let start = &groups[0]["rayStartParams"];
    assert_eq!((&start["resources"], &start["num-gpus"]), (&json!("'{\"fast\":2}'"), &json!("1")));
    // The operator reads it so: it takes quotes away at both ends.
    let text = start["resources"].as_str().unwrap().trim_matches(['\'', '"', '`', ' ']);
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!({ "fast": 2 }));
    assert!(groups[1]["rayStartParams"]["num-gpus"].is_null());
    for template in [&head["template"]["spec"], &groups[0]["template"]["spec"]] {
        assert_eq!(template["securityContext"]["runAsNonRoot"], true);
        let container = &template["containers"][0];
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        let token = container["env"].as_array().unwrap().iter().find(|one| one["name"] == "RAY_AUTH_TOKEN").unwrap();
        assert_eq!(token["valueFrom"]["secretKeyRef"], json!({ "name": "demo-abcd1234", "key": "auth_token" }));
    }
    assert_eq!(groups[0]["template"]["spec"]["automountServiceAccountToken"], false);
    // Only the head with the autoscaler talks to the API server.
    let fixed = ClusterRequest { workers: vec![group("cpu", 1)], ..smallest() };
    let object = ray_cluster(&json!({}), &fixed);
    assert_eq!(object["spec"]["headGroupSpec"]["template"]["spec"]["automountServiceAccountToken"], false);
    assert!(ray_cluster(&json!({}), &smallest())["spec"]["workerGroupSpecs"].as_array().unwrap().is_empty());
}

#[test]
fn the_guard_has_a_container_of_its_own_beside_the_head_and_no_secret() {
    let settings = json!({ "head": { "mounts": [{ "path": "/results", "claim": "kept" }] } });
    let guarded = |guard| ray_cluster(&settings, &ClusterRequest { guard, ..cluster() });
    let object = guarded(true);
    let head = &object["spec"]["headGroupSpec"]["template"]["spec"];
    let guard = &head["containers"][1];
    assert_eq!((&guard["name"], &guard["image"]), (&json!("guard"), &head["containers"][0]["image"]));
    // What is "saved" is never on the container's own disk.
    assert_eq!(guard["securityContext"]["readOnlyRootFilesystem"], true);
    assert!(guard["env"].is_null() && guard["envFrom"].is_null());
    let mounts: Vec<&Value> = guard["volumeMounts"].as_array().unwrap().iter().map(|one| &one["mountPath"]).collect();
    assert_eq!(mounts, ["/data", "/results", "/run/gpucl/end", "/tmp"]);
    assert_eq!(head["volumes"].as_array().unwrap().iter().filter(|one| one["name"] == "guard").count(), 1);
    let own = head["containers"][0]["volumeMounts"].as_array().unwrap();
    assert!(own.iter().all(|one| one["name"] != "guard"), "jobs have nothing of it");
    for group in object["spec"]["workerGroupSpecs"].as_array().unwrap() {
        assert_eq!(group["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    }
    let without = &guarded(false)["spec"]["headGroupSpec"]["template"]["spec"];
    assert_eq!(without["containers"].as_array().unwrap().len(), 1);
}

#[test]
fn names_of_resources_are_read_alike_by_all_who_read_them() {
    let named = |name: &str| {
        let resources = BTreeMap::from([(name.to_owned(), 1.0)]);
        let cluster = ClusterRequest { workers: vec![NodeGroup { resources, ..group("a", 1) }], ..smallest() };
        renderer(&json!({})).requests(&scope(), &cluster)
    };
    for name in ["NVIDIA-A100-SXM4-80GB", "full worker", "$x", "größe"] {
        assert!(named(name).is_ok(), "{name}");
    }
    for name in ["it's", "a\"b", "a\\b"] {
        assert!(named(name).unwrap_err().to_string().contains("render the group a"), "{name}");
    }
}

#[test]
fn settings_of_pods_are_of_all_of_a_group_or_of_the_head() {
    let settings = json!({
        "pods": {
            "node_selector": { "pool": "general" },
            "tolerations": [{ "key": "nodepool", "operator": "Equal", "value": "gpu-platform", "effect": "NoSchedule" }],
            "image_pull_secrets": ["registry"],
            "runtime_class": "nvidia",
            "annotations": { "example.org/team": "lab" },
        },
        "head": { "cpu": "500m", "memory": "2Gi", "mounts": [{ "path": "/data", "claim": "data", "read_only": true }] },
        "groups": { "gpu": { "node_selector": { "pool": "gpus" }, "gpu_resource": "nvidia.com/mig-1g.10gb", "image": "lab/ray:1" } },
    });
    let object = ray_cluster(&settings, &cluster());
    let head = &object["spec"]["headGroupSpec"]["template"]["spec"];
    assert_eq!(head["nodeSelector"], json!({ "pool": "general" }));
    assert_eq!(head["tolerations"][0]["value"], "gpu-platform");
    assert_eq!(head["imagePullSecrets"][0]["name"], "registry");
    assert_eq!(head["runtimeClassName"], "nvidia");
    let templates = [&object["spec"]["headGroupSpec"], &object["spec"]["workerGroupSpecs"][1]];
    for template in templates.map(|group| &group["template"]) {
        assert_eq!(template["metadata"]["annotations"], json!({ "example.org/team": "lab" }));
    }
    let container = &head["containers"][0];
    assert_eq!(container["resources"]["requests"], json!({ "cpu": "500m", "memory": "2Gi" }));
    assert_eq!(container["resources"]["limits"], json!({ "memory": "2Gi" }));
    assert_eq!(head["volumes"][0]["persistentVolumeClaim"]["claimName"], "data");
    assert_eq!(container["volumeMounts"][0], json!({ "name": "mount-0", "mountPath": "/data", "readOnly": true }));
    let gpu = &object["spec"]["workerGroupSpecs"][0]["template"]["spec"];
    assert_eq!(gpu["nodeSelector"], json!({ "pool": "gpus" }));
    assert_eq!(gpu["containers"][0]["image"], "lab/ray:1");
    assert_eq!(gpu["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.10gb"], "1");
    assert_eq!(
        object["spec"]["workerGroupSpecs"][1]["template"]["spec"]["containers"][0]["image"],
        "rayproject/ray:2.60.0-py312-cpu"
    );
}

#[test]
fn only_what_changes_a_pod_changes_its_digest() {
    let of = |settings: Value, cluster: &ClusterRequest| {
        let object = ray_cluster(&settings, cluster);
        let label = |template: &Value| template["metadata"]["labels"][names::PODS].as_str().unwrap().to_owned();
        let groups = object["spec"]["workerGroupSpecs"].as_array().unwrap();
        let workers: Vec<String> = groups.iter().map(|group| label(&group["template"])).collect();
        (label(&object["spec"]["headGroupSpec"]["template"]), workers)
    };
    let before = of(json!({}), &cluster());
    let mut more = cluster();
    more.workers[0].count = 3;
    more.workers[0].max = 3;
    assert_eq!(of(json!({}), &more), before, "more pods of the same kind");
    let changed = of(json!({ "groups": { "gpu": { "image": "lab/ray:2" } } }), &cluster());
    assert_eq!(changed.0, before.0);
    assert_ne!(changed.1[0], before.1[0]);
    assert_eq!(changed.1[1], before.1[1]);
}

#[test]
fn labels_of_the_raycluster_change_no_pod() {
    let queue = |name: &str| json!({ "labels": { "kueue.x-k8s.io/queue-name": name } });
    let (before, after) = (ray_cluster(&json!({}), &cluster()), ray_cluster(&queue("team-a"), &cluster()));
    assert!(before["metadata"]["labels"].is_null(), "{before}");
    assert_eq!(after["metadata"]["labels"], json!({ "kueue.x-k8s.io/queue-name": "team-a" }));
    assert!(after["metadata"]["annotations"].is_null(), "{after}");
    assert_eq!(before["spec"], after["spec"]);
    // It is changed all the same, and found again by gpucl's own.
    let request = |settings: Value| renderer(&settings).requests(&scope(), &cluster()).unwrap().pop().unwrap();
    assert_ne!(request(queue("team-a")).digest(), request(queue("team-b")).digest());
    let request = request(queue("team-a"));
    let sent = objects::tagged(&request, &scope().tag(&request.key));
    assert_eq!(sent["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team-a");
    assert_eq!(names::tag_of(&sent).unwrap().cluster, scope().cluster);
    let stopped = ray_cluster(&queue("team-a"), &ClusterRequest { stopped: true, ..cluster() });
    assert_eq!(stopped["metadata"]["annotations"], json!({ "gpucl.dev/stopped": "true" }));
}

#[test]
fn the_manifest_has_labels_and_no_token() {
    let text = renderer(&json!({})).manifest(&scope(), &cluster()).unwrap();
    let documents: Vec<&str> = text.split("---\n").skip(1).collect();
    assert_eq!(documents.len(), 2, "{text}");
    for document in documents {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        assert_eq!(names::tag_of(&object).unwrap().cluster, scope().cluster);
    }
    assert!(!text.contains("kind: Secret") && text.contains("kubectl create secret"), "{text}");
}

#[test]
fn every_mistake_names_its_key() {
    for (settings, path, message) in [
        (json!({ "contxt": "lab" }), "contxt", "unknown key"),
        (json!({ "namespace": "Team A" }), "namespace", "is not a name"),
        (json!({ "service_type": "Ingress" }), "service_type", ""),
        (json!({ "pods": { "cpu": "two" } }), "pods.cpu", "not an amount"),
        (json!({ "head": { "memory": "-1Gi" } }), "head.memory", "not an amount"),
        (json!({ "groups": { "gpu": { "image": "a b" } } }), "groups.gpu.image", "not an image"),
        (json!({ "labels": { "gpucl.dev/owner": "x" } }), "labels.\"gpucl.dev/owner\"", "gpucl's own"),
        (json!({ "labels": { "tier": "a b" } }), "labels.tier", "not the value of a label"),
        (
            json!({ "groups": { "gpu": { "labels": { "a b": "" } } } }),
            "groups.gpu.labels.\"a b\"",
            "not the key of a label",
        ),
        (json!({ "head": { "annotations": { "gpucl.dev/tag": "" } } }), "head.annotations.", "gpucl's own"),
        (json!({ "pods": { "node_selector": { "pool": "-" } } }), "pods.node_selector.pool", "not the value"),
        (json!({ "pods": { "gpu_resource": "gpu" } }), "pods.gpu_resource", "not a resource"),
        (json!({ "pods": { "mounts": [{ "path": "data", "claim": "x" }] } }), "pods.mounts[0].path", "absolute"),
        (json!({ "pods": { "mounts": [{ "path": "/data" }] } }), "pods.mounts[0]", "exactly one"),
    ] {
        let errors = check_settings(&FACTORY, &settings, &[]);
        assert_eq!(errors.len(), 1, "{settings}: {errors:?}");
        assert!(errors[0].path.starts_with(path), "{errors:?}");
        assert!(errors[0].message.contains(message), "{errors:?}");
    }
    let unknown = renderer(&json!({ "groups": { "gpus": {} } })).requests(&scope(), &cluster()).unwrap_err();
    assert!(unknown.to_string().contains("no group of workers"), "{unknown}");
}
