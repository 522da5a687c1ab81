//! The guard on the pinned Ray: the hidden command that drains, jobs and their end, with token authentication.

use serde_json::{Value, json};

use super::slot::Slot;
use crate::support::{TestEnv, turn, until};

/// A job that ignores that it ends, and counts its seconds.
const IGNORES: &str = "import sys, time\n\
    for second in range(600):\n    open(sys.argv[1], 'w').write(str(second))\n    time.sleep(1)\n";

/// The value that follows an option in the commands of this cluster's nodes.
fn option(nodes: &Value, name: &str) -> String {
    let all = nodes["nodes"].as_array().unwrap().iter();
    let words: Vec<&str> = all.flat_map(|node| node["argv"].as_array().unwrap()).filter_map(Value::as_str).collect();
    let at = words.iter().position(|word| *word == name || word.starts_with(&format!("{name}="))).unwrap();
    words[at].split_once('=').map_or_else(|| words[at + 1].to_owned(), |(_, value)| value.to_owned())
}

#[test]
#[ignore = "by hand: just end-story"]
fn the_pinned_ray_drains_its_workers_and_stops_jobs_as_the_guard_asks() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write(
        "cluster.yaml",
        "name: ends\nprovider: local\ngpu: declared\n\
         ray:\n  head: {object_store_memory: 80MiB}\n  \
         workers: {count: 1, cpus: 1, memory: 300MiB, object_store_memory: 80MiB}\n\
         timeouts: {start: 4m, ready: 4m}\n",
    );
    let _ = env.run(&["up"]).exits(0);
    let hosts = env.home().join(".local/share/gpucl/hosts");
    let home =
        std::fs::read_dir(hosts).unwrap().flatten().map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    let nodes: Value = serde_json::from_slice(&std::fs::read(home.join("nodes.json")).unwrap()).unwrap();
    let prepared = std::fs::read_to_string(home.join("prepared/prepare")).unwrap();
    let ray_env = prepared.lines().find_map(|line| line.strip_prefix("ray_env ")).unwrap().trim();

    let mut slot = Slot::new(&[("results", "HOME/copy")]);
    slot.set(&json!({"warning_s": 100, "ray": {
        "gcs": option(&nodes, "--address"), "dashboard": format!("http://127.0.0.1:{}", option(&nodes, "--dashboard-port")),
        "token": home.join("secrets/ray_token"), "ray": format!("{ray_env}/bin/ray"),
    }}));
    slot.write("results/steps", "none");
    let steps = slot.home().join("data/results/steps");
    env.write("job/ignores.py", IGNORES);
    let steps_text = steps.to_str().unwrap();
    let submit = ["job", "submit", "--no-wait", "--working-dir", "job", "--", "python", "ignores.py", steps_text];
    let _ = env.run(&submit).exits(0);
    until("the job runs", 60, || std::fs::read_to_string(&steps).ok().filter(|text| text.starts_with('2')));

    slot.ends_in(60, 1);
    slot.run();
    let state =
        slot.until("the worker is drained", 60, |state| state["drained"].as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!(state["jobs"][0]["status"], "RUNNING", "the job has its grace: {state}");
    let state = slot.until("the job is stopped", 80, |state| state["jobs"][0]["status"] == "STOPPED");
    assert_eq!(state["jobs"][0]["stopped"], true);
    slot.until("it is saved", 40, |state| state["saved"][0]["complete"] == true);
    until("what it wrote last is saved", 20, || {
        let copy = std::fs::read_to_string(slot.home().join("copy/steps")).ok()?;
        (copy == std::fs::read_to_string(&steps).unwrap()).then_some(())
    });
    // Called off: the worker that Ray has lost is started anew by its supervisor, and stays.
    slot.ends_in(4000, 2);
    slot.until_phase("waiting", 20);
    until("all checks passed", 120, || (env.run(&["verify"]).code == Some(0)).then_some(()));
    let _ = env.run(&["down", "--yes"]).exits(0);
}
