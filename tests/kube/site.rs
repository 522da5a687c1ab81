//! What a Kubernetes cluster is like: `offers` and `doctor`; and clusters of which nothing here knows any more.

use serde_json::json;

use super::testbed::{self, kubectl, nothing_is_left, place, testbed, turn};
use crate::crash::real::kill_when;
use crate::support::{After, TestEnv, until_or};

/// An environment in which `KUBECONFIG` names two files, the second of which is a user's.
fn of(user: &str) -> TestEnv {
    let mut env = TestEnv::new();
    let none = env.write("none.kubeconfig", "apiVersion: v1\nkind: Config\n").display().to_string();
    let own = testbed()["users"][user].as_str().unwrap();
    env.set("KUBECONFIG", &format!("{none}:{own}"));
    env
}

#[test]
#[ignore = "testbed"]
fn machines_rights_and_the_operator_are_shown() {
    let _turn = turn();
    let ada = of("ada");
    let offers = ada.run(&["offers", "--provider", "kubernetes", "--context", "ada@gpucl-kube"]).exits(0);
    assert!(offers.stdout.contains("Stand-in-GPU") && offers.stdout.contains("gpucl-kube"), "{}", offers.stdout);
    let doctor = ada.run(&["doctor", "--provider", "kubernetes"]).exits(0);
    for says in ["v1.34.4", "1.6 or newer", "ada has those that are needed in team-a"] {
        assert!(doctor.stdout.contains(says), "{says}: {}", doctor.stdout);
    }
    let foreign = ada.run(&["doctor", "--provider", "kubernetes", "--namespace", "team-b"]);
    assert!(foreign.stdout.contains("in team-b, ada may not: "), "{}", foreign.stdout);
    // bob may not list machines: that is said, and no failure.
    let bob = of("bob");
    let offers = bob.run(&["offers", "--provider", "kubernetes"]);
    assert!(offers.stderr.contains("bob may not list nodes"), "{:?} {}", offers.code, offers.stderr);
}

#[test]
#[ignore = "testbed"]
fn a_cluster_without_state_is_found_by_its_tag() {
    let _turn = turn();
    let env = of("ada");
    let workers = json!([{ "name": "cpu", "count": 1, "cpus": 1 }]);
    let spec = testbed::spec(&env, "lost", &testbed::settings("ada", &json!({})), &workers, &json!({}));
    let folder = env.home().join(".local/state/gpucl/clusters/lost");
    assert!(kill_when(&env, &["up", "--yes", "--at", &place("ada"), &spec], &folder, ("exists", "raycluster", "")));
    std::fs::remove_dir_all(&folder).unwrap();
    let listed = env.run(&["gc", "--provider", "kubernetes"]).exits(0);
    assert!(listed.stderr.contains("--yes` deletes 3 resources"), "{}{}", listed.stdout, listed.stderr);
    env.run(&["gc", "--yes", "--provider", "kubernetes"]).exits(0).prints("deleted 3 resources");
    nothing_is_left();
}

/// The Role of the documentation suffices for all that a user does, and for nothing beyond.
#[test]
#[ignore = "by hand: just kube"]
fn the_role_of_the_documentation_suffices() {
    let _turn = turn();
    let env = TestEnv::new();
    let role = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guides/kubernetes-role.yaml");
    kubectl(&["create", "namespace", "least"]);
    let _removed = After(|| {
        kubectl(&["delete", "namespace", "least", "--timeout=60s"]);
    });
    kubectl(&["-n", "least", "apply", "-f", role]);
    kubectl(&["-n", "least", "create", "rolebinding", "gpucl-bob", "--role=gpucl-user", "--user=bob"]);
    let prometheus = json!({ "labels": { "release": "none" }, "namespace": "monitoring" });
    let settings = testbed::settings("bob", &json!({ "namespace": "least", "prometheus": prometheus }));
    let workers = json!([{ "name": "cpu", "min": 1, "max": 2, "cpus": 1 }]);
    let more = json!({ "files": [{ "path": "code", "to": "code" }], "services": { "prometheus": "existing" } });
    std::fs::create_dir_all(env.work().join("code")).unwrap();
    env.write("code/a.py", "print(7 * 6)");
    let spec = testbed::spec(&env, "least", &settings, &workers, &more);
    let at = place("bob").replace("team-b", "least");
    env.run(&["up", "--yes", "--at", &at, &spec]).exits(0).prints("ready:").says("network policy");
    let program = "import os; exec(open(os.environ['GPUCL_DATA'] + '/code/a.py').read())";
    env.run(&["job", "submit", "-c", "least", "--", "python", "-c", program]).exits(0).prints("42");
    env.run(&["exec", "-c", "least", "--host", "head", "--", "true"]).exits(0);
    env.run(&["logs", "-c", "least", "head", "-n", "1"]).exits(0);
    env.run(&["worker", "kill", "-c", "least", "cpu"]).exits(0);
    env.run(&["up", "--yes", &spec]).exits(0);
    // The right to see a PodMonitor is taken away: it goes all the same.
    let rules = kubectl(&["-n", "least", "get", "role", "gpucl-user", "-o", "json"]);
    let mut role: serde_json::Value = serde_json::from_str(&rules).unwrap();
    role["rules"].as_array_mut().unwrap().retain(|rule| rule["resources"][0] != "podmonitors");
    let file = env.write("role.json", &role.to_string()).display().to_string();
    kubectl(&["-n", "least", "replace", "-f", &file]);
    let left =
        || kubectl(&["-n", "least", "get", "pods,rayclusters,podmonitors,secrets,networkpolicies", "-o", "name"]);
    assert!(left().contains("podmonitor"), "{}", left());
    env.run(&["down", "--yes", "-c", "least"]).exits(0).prints("nothing of least is left");
    until_or("all is gone", 30, || left().is_empty().then_some(()), left);
}
