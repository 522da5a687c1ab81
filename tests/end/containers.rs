//! The guard as a container beside those of nodes, on a host of the testbed.

use serde_json::Value;

use super::rounds::{begun, kill_all_of};
use crate::hosts::{TestHost, gpucl, spec};
use crate::support::{TestEnv, turn, until_or};

const SERVICES: &str = "services: {object_store: false, prometheus: false, grafana: false, jupyter: false}\n";
const TRAIN: &str = "mkdir -p $GPUCL_DATA/results && cd $GPUCL_DATA/results && i=0; while :; do i=$((i + 1)); \
                     echo $i >new.tmp && mv new.tmp checkpoint-$(printf %05d $i); sleep 1; done";

#[test]
#[ignore = "by hand: just end-containers"]
fn a_guard_in_a_container_saves_to_a_folder_that_outlives_the_cluster() {
    let _turn = turn();
    let host = TestHost::start("guarded", &["--gpus", "nvidia:1", "--image", "ready"]);
    host.sh("install -d -o 1000 -g 100 /mnt/kept");
    let env = TestEnv::new();
    let write = |deadline: &str| {
        let end = format!("deadline: {deadline}\nend: {{warning: 45s, save: [{{from: results, to: /mnt/kept}}]}}\n");
        env.write("cluster.yaml", &spec("guarded", &[&host], &format!("{SERVICES}{end}")));
    };
    write("3h");
    env.accept("cluster.yaml");
    let _ = gpucl(&env, &["up"]).exits(0);
    let plan = gpucl(&env, &["plan"]).exits(0).stdout;
    assert!(plan.contains("nothing to change"), "{plan}");
    let containers = || host.sh("docker ps --format '{{.Names}} {{.ID}}' | sort");
    let before = containers();
    assert!(before.contains("-guard "), "{before}");
    println!("{}", gpucl(&env, &["status"]).exits(0).stdout);

    let now = || jiff::Timestamp::now().as_second();
    write(&format!("{}s", now() - begun(&env, "guarded") + 140));
    let _ = gpucl(&env, &["up"]).exits(0);
    assert_eq!(containers(), before, "a later end is given to the guard that runs");
    let _ = gpucl(&env, &["job", "submit", "--no-wait", "--", "sh", "-c", TRAIN]).exits(0);
    println!("{} processes killed", kill_all_of(&env));
    let folder = host.sh("ls -d /var/lib/gpucl/gpucl-*").trim().to_owned();
    let state = || -> Value {
        serde_json::from_str(&host.sh(&format!("cat {folder}/end/guard/state.json"))).unwrap_or_default()
    };
    until_or(
        "all is saved",
        300,
        || matches!(state()["phase"].as_str(), Some("saved" | "over")).then_some(()),
        || {
            format!(
                "{}\n{}",
                state(),
                host.sh("docker logs $(docker ps -q --filter label=gpucl.key=guard) 2>&1 | tail -20")
            )
        },
    );
    println!("{}", state());
    let said: Value = serde_json::from_str(&host.sh(&format!("cat {folder}/data/.gpucl-end.json"))).unwrap();
    assert_eq!(said["why"], "its deadline is reached", "programs without Ray Train hear of the end: {said}");
    let sums =
        |folder: &str| host.sh(&format!("cd {folder} && find . -name 'checkpoint-*' -type f | sort | xargs sha256sum"));
    let there = sums(&format!("{folder}/data/results"));
    assert_eq!(sums("/mnt/kept"), there);
    assert!(there.lines().count() > 10, "{there}");
    println!("{} checkpoints saved, with equal digests", there.lines().count());
    let _ = gpucl(&env, &["down", "--yes"]).exits(0);
    assert_eq!(host.sh("ls /mnt/kept | grep -c checkpoint").trim(), there.lines().count().to_string());
}
