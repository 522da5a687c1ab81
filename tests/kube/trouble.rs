//! What goes wrong on a Kubernetes cluster, and what is said of it.

use serde_json::json;

use super::testbed::{self, nothing_is_left, place, turn};
use crate::support::TestEnv;

/// What cannot come is said while it is waited for, with what to do; the cluster stays and can be removed.
#[test]
#[ignore = "testbed"]
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

/// Rights that are missing are named before anything is made.
#[test]
#[ignore = "testbed"]
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
