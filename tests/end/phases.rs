//! What happens when, in the last minutes: a guard that runs, and a stand-in of Ray.

use serde_json::{Value, json};

use super::slot::{Slot, digest, in_seconds};
use crate::support::until;

fn drained(slot: &Slot) -> Vec<String> {
    let seen = slot.ray_seen();
    seen["drained"].as_array().unwrap().iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect()
}

/// A job that saves when it is asked, and one that does not.
#[test]
fn workers_are_drained_jobs_have_their_grace_and_what_they_wrote_is_saved() {
    let mut slot = Slot::with_ray(&[("results", "s3://bucket/run1")]);
    slot.ray(
        &json!({"jobs": {"saves": "RUNNING", "ignores": "RUNNING", "before": "SUCCEEDED"}, "ignoring": {"ignores": 1}}),
    );
    slot.write("results/checkpoint_1/w", "first");
    slot.set(&json!({"warning_s": 26}));
    slot.ends_in(400, 1);
    slot.run();
    let state = slot.until_phase("waiting", 10);
    assert_eq!((&state["drained"], &state["fits"]), (&json!([]), &json!(true)));
    slot.ends_in(27, 2);
    let state =
        slot.until("workers are drained", 20, |state| state["drained"].as_array().is_some_and(|all| all.len() == 2));
    assert_eq!(state["phase"], "draining");
    let seen = slot.ray_seen();
    let left = seen["drained"][0]["left"].as_u64().unwrap();
    assert!((8..=16).contains(&left), "what is left less the last copy: {left}");
    assert_eq!(seen["drained"][0]["why"], "a test");
    // A worker that its supervisor starts anew is another node.
    slot.ray(&json!({"nodes": {"head": "ALIVE", "w0": "DEAD", "w1": "DEAD", "w2": "ALIVE"}, "jobs": {"saves": "SUCCEEDED", "ignores": "RUNNING"}}));
    slot.write("results/checkpoint_2/w", "asked for");
    slot.until("it is drained too", 10, |state| state["drained"].as_array().is_some_and(|all| all.len() == 3));
    assert!(slot.ray_seen()["stopped"].as_array().unwrap().is_empty(), "a job is stopped before its grace is over");
    let state = slot.until("the job is stopped", 20, |state| {
        state["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(|job| job["stopped"] == true))
    });
    slot.write("results/last words", "of the job");
    assert_ne!(state["phase"], "saved");
    let is_whole = |state: &Value| {
        state["saved"][0]["complete"] == true && ["saved", "over"].contains(&state["phase"].as_str().unwrap())
    };
    let state = slot.until("it is saved", 20, is_whole);
    assert_eq!(slot.ray_seen()["stopped"], json!(["ignores"]));
    assert_eq!(slot.held()["run1/last words"], digest("of the job"));
    assert_eq!(state["saved"][0]["newest"], "checkpoint_2");
    let mut nodes = drained(&slot);
    nodes.sort();
    assert_eq!(nodes, ["w0", "w1", "w2"]);
    slot.until_phase("over", 20);
    assert!(!slot.log().contains("the-token"));
}

#[test]
fn it_does_not_wait_for_the_end_when_no_job_is_left() {
    let mut slot = Slot::with_ray(&[("results", "s3://bucket/run1")]);
    slot.write("results/x", "x");
    slot.set(&json!({"warning_s": 600}));
    slot.ends_in(500, 1);
    slot.run();
    slot.until_phase("saved", 20);
    assert_eq!(slot.held().len(), 1);
    // What is written afterwards is saved as well.
    slot.write("results/y", "y");
    until("it is saved", 20, || (slot.held().len() == 2).then_some(()));
}

#[test]
fn an_end_that_is_called_off_brings_the_workers_back() {
    let mut slot = Slot::with_ray(&[("results", "s3://bucket/run1")]);
    slot.ray(&json!({"jobs": {"runs": "RUNNING"}}));
    let run = slot.home().join("run");
    std::fs::create_dir_all(&run).unwrap();
    // As the supervisor writes them: given up, started anew, stopped by hand, and the head.
    for (key, state) in [("worker0", "ended"), ("worker1", "running"), ("worker2", "ended"), ("head", "running")] {
        std::fs::write(run.join(key), format!("{state} 1 2 - 5 1 digest\n")).unwrap();
    }
    std::fs::write(run.join(".stopped-worker2"), "").unwrap();
    slot.set(&json!({"warning_s": 100}));
    slot.ends_in(90, 1);
    slot.run();
    slot.until("workers are drained", 20, |state| state["drained"].as_array().is_some_and(|all| all.len() == 2));
    slot.ends_in(4000, 2);
    let state = slot.until_phase("waiting", 20);
    assert_eq!((&state["drained"], &state["revision"]), (&json!([]), &json!(2)));
    let asked: Vec<String> = std::fs::read_dir(&run)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".start-"))
        .collect();
    assert_eq!(asked, [".start-worker0"]);
    slot.ray(&json!({"nodes": {"head": "ALIVE", "new": "ALIVE"}}));
    // Without an end at all; and a new one is an end again.
    slot.ends_in(90, 3);
    slot.until_phase("draining", 20);
    slot.tell(&json!({"v": 1, "at": null, "left_s": null, "why": "kept", "revision": 4})).unwrap();
    let state = slot.until_phase("called_off", 20);
    assert_eq!(state["end"], Value::Null);
    slot.ends_in(4000, 5);
    slot.until_phase("waiting", 20);
    assert!(slot.ray_seen()["stopped"].as_array().unwrap().is_empty());
}

#[test]
fn an_end_that_is_moved_while_it_saves_is_the_end() {
    let mut slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/large", vec![7; 6_000_000]);
    slot.store(&json!({"rate": 400_000}));
    slot.set(&json!({"warning_s": 30}));
    slot.runs_and_ends_in(10);
    slot.until("it saves", 10, |state| state["phase"] == "draining" || state["phase"] == "saving");
    // Later, and still within the warning: it goes on.
    slot.ends_in(25, 2);
    let state = slot.until("it knows", 10, |state| state["revision"] == 2);
    assert!(["draining", "saving"].contains(&state["phase"].as_str().unwrap()), "{state}");
    slot.until("it is saved", 25, |state| state["saved"][0]["complete"] == true);
    assert_eq!(slot.held()["run1/large"], digest(vec![7; 6_000_000]));
    slot.until_phase("over", 25);
    // A machine that is there for longer after all.
    slot.ends_in(300, 3);
    slot.until_phase("waiting", 10);
}

#[test]
fn ray_that_does_not_answer_keeps_nothing_from_being_saved() {
    let mut slot = Slot::with_ray(&[("results", "s3://bucket/run1")]);
    slot.write("results/x", "x");
    slot.ray(&json!({"refuse": true}));
    slot.set(&json!({"warning_s": 12}));
    slot.runs_and_ends_in(11);
    let state = slot.until("it says so", 20, |state| state["trouble"].is_string());
    assert!(state["trouble"].as_str().unwrap().contains("answers 503"), "{state}");
    slot.until_phase("over", 30);
    assert_eq!(slot.held().len(), 1);
}

#[test]
fn a_host_that_does_not_lead_saves_its_own_until_the_end() {
    let mut slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.set(&json!({"leads": false, "host": "host2", "hosts": 3, "warning_s": 20}));
    slot.write("results/x", "x");
    slot.runs_and_ends_in(14);
    slot.until("it copies while jobs work", 10, |state| {
        state["phase"] == "draining" && state["saved"][0]["files"] == 1
    });
    slot.write("results/x", "what came last");
    slot.until_phase("over", 20);
    until("it is saved", 10, || (slot.held().get("run1/host-2/x") == Some(&digest("what came last"))).then_some(()));
}

#[test]
fn two_guards_of_one_host_are_one() {
    let mut slot = Slot::new(&[]);
    slot.ends_in(4000, 1);
    slot.run();
    slot.until_phase("waiting", 10);
    let state = slot.tell(&json!({"v": 1, "at": in_seconds(5000), "left_s": 5000, "why": "", "revision": 2})).unwrap();
    assert_eq!(state["running"], true);
    slot.kill();
    let state = slot.tell(&json!({"v": 1, "at": in_seconds(5000), "left_s": 5000, "why": "", "revision": 3})).unwrap();
    assert_eq!(state["running"], false);
}
