//! The end of a cluster of pods while nothing of ours runs on the user's machine: the guard beside the head sees to it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::testbed::{self, kubectl, nothing_is_left, on_node, place, testbed, turn};
use crate::end::rounds::{TRAIN, begun, kill_all_of};
use crate::end::slot::{SECRET, StandIn};
use crate::support::{TestEnv, until_or};

/// The digests of the files of the head's pod below the folder of results.
fn digests_in_pod(head: &str) -> BTreeMap<String, String> {
    let look = "cd /data/results && find . -type f ! -name '*.tmp' -exec sha256sum {} +";
    let found = in_container(head, "ray-head", &["sh", "-c", look]);
    let one = |line: &str| line.split_once("  ./").map(|(digest, path)| (path.to_owned(), digest.to_owned()));
    found.lines().filter_map(one).collect()
}

fn in_container(head: &str, container: &str, command: &[&str]) -> String {
    kubectl(&[&["-n", "team-a", "exec", head, "-c", container, "--"], command].concat())
}

fn alive(env: &TestEnv) -> usize {
    env.run(&["status", "-c", "ending"]).stdout.matches(" alive ").count()
}

#[test]
#[ignore = "by hand: just kube"]
fn an_end_saves_what_is_in_the_head_s_pod_and_one_that_is_called_off_brings_workers_back() {
    let _turn = turn();
    let env = TestEnv::new();
    let server = testbed()["server"].as_str().unwrap();
    let node = server.trim_start_matches("https://").split(':').next().unwrap();
    let store = StandIn::of_store_at(node, env.root(), on_node);
    env.write("keys", &format!("[default]\naws_access_key_id = key-id\naws_secret_access_key = {SECRET}\n"));
    env.write("job/train.py", TRAIN);
    let workers = json!([{ "name": "cpu", "count": 1, "cpus": 1 }]);
    let spec = |deadline_s: i64, to: &str| {
        let mut end = json!({ "warning": "40s", "save": [{ "from": "results", "to": to }] });
        if to.starts_with("s3:") {
            end["store"] = json!({ "endpoint": store.url, "credentials_file": "keys" });
        }
        let more = json!({ "deadline": format!("{deadline_s}s"), "end": end });
        testbed::spec(&env, "ending", &testbed::settings("ada", &json!({})), &workers, &more)
    };
    for (to, why) in [("~/results", "home folder ends"), ("/data/saved", "data folder itself")] {
        let file = spec(3 * 3600, to);
        env.run(&["plan", &file]).exits(2).says("end.save[0].to").says(why);
    }
    let file = spec(3 * 3600, "s3://bucket/kube");
    env.run(&["plan", &file]).exits(0).prints("$GPUCL_DATA/results of the head's pod");
    env.run(&["up", "--yes", "--at", &place("ada"), &file]).exits(0).prints("ready:");
    env.run(&["up", "--yes", &file]).exits(0).prints("nothing was changed");
    let head = kubectl(&["-n", "team-a", "get", "pods", "-l", "ray.io/node-type=head", "-o", "name"]);
    let head = head.trim();
    let guard = || -> Value {
        let text = in_container(head, "guard", &["cat", "guard/state.json"]);
        serde_json::from_str(&text).unwrap_or_default()
    };
    until_or("the guard runs", 30, || (guard()["phase"] == "waiting").then_some(()), || guard().to_string());
    // Jobs have none of it; nor has any object of Kubernetes.
    let look = "ls -d /run/gpucl 2>&1; find / -xdev -name end_credentials 2>/dev/null; env | grep -c aws_; true";
    assert!(!in_container(head, "ray-head", &["sh", "-c", look]).contains("end_credentials"));
    assert!(!kubectl(&["-n", "team-a", "get", "secrets,configmaps,rayclusters,pods", "-o", "yaml"]).contains(SECRET));
    env.run(&[
        "job",
        "submit",
        "-c",
        "ending",
        "--no-wait",
        "--working-dir",
        "job",
        "--",
        "python",
        "train.py",
        "run",
        "/tmp/step",
    ])
    .exits(0);

    // An end that is 75 s away.
    let now = || jiff::Timestamp::now().as_second();
    let file = spec(now() - begun(&env, "ending") + 75, "s3://bucket/kube");
    env.run(&["up", "--yes", &file]).exits(0);
    let same = kubectl(&["-n", "team-a", "get", "pods", "-l", "ray.io/node-type=head", "-o", "name"]);
    assert_eq!(same.trim(), head, "the head stays");
    println!("{} processes killed", kill_all_of(&env));
    until_or("all is saved", 150, || (guard()["phase"] == "saved").then_some(()), || guard().to_string());
    let state = guard();
    let left = state["end"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second() - now();
    let (saved, there) = (store.held("kube"), digests_in_pod(head));
    assert_eq!(saved, there, "{state}");
    let newest = saved.keys().filter(|key| key.starts_with("run/checkpoint-")).max().unwrap();
    let newest: u32 = newest.rsplit('-').next().unwrap().trim_end_matches(".json").parse().unwrap();
    let last: u32 = in_container(head, "ray-head", &["cat", "/tmp/step"]).trim().parse().unwrap();
    assert!(newest + 1 >= last && newest > 5 && state["saved"][0]["complete"] == true, "{newest} of {last}: {state}");
    assert!(!state["drained"].as_array().unwrap().is_empty(), "{state}");
    println!("kube: saved {left} s before the end: {} files, equal digests; drained {}", saved.len(), state["drained"]);

    env.run(&["logs", "-c", "ending", "guard"]).exits(0).prints("saved, the end is at");
    // Called off: the worker is a node again, and the head is the same.
    env.run(&["keep", "-c", "ending", "2h"]).exits(0).prints("it ends at");
    until_or("it is called off", 20, || (guard()["phase"] == "waiting").then_some(()), || guard().to_string());
    until_or("the worker is back", 120, || (alive(&env) == 2).then_some(()), || env.run(&["status"]).stdout);
    env.run(&["verify", "-c", "ending"]).exits(0);
    let _ = env.write("more.txt", "more");
    env.run(&["cp", "-c", "ending", "more.txt", "head:results/"]).exits(0);
    env.run(&["save", "-c", "ending"]).exits(0).prints("results of head to s3://bucket/kube: ").prints("verified");
    assert!(store.held("kube").contains_key("more.txt"));
    env.run(&["down", "--yes", "-c", "ending"]).exits(0).prints("nothing of ending is left");
    nothing_is_left();
}
