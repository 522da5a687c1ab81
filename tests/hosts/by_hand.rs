//! Workers in containers, by hand and by fault: the engine leaves alone what was stopped, and restarts what was killed.

use super::spec::{env, gpucl, spec};
use super::testbed::TestHost;
use crate::scenario::by_hand::{DRAINS, check_drill};
use crate::support::{drain_a_worker, turn, until};

#[test]
#[ignore = "by hand: just more-hosts"]
fn workers_are_stopped_started_and_killed_by_hand() {
    let _turn = turn();
    let host = TestHost::start("byhand", &["--gpus", "nvidia:2"]);
    let env = env();
    env.write("cluster.yaml", &spec("byhand", &[&host], "services: {jupyter: false, grafana: false}\n"));
    gpucl(&env, &["up"]).exits(0);
    let name = |of: &str| host.sh(&format!("docker ps -a --format '{{{{.Names}}}}' --filter label=gpucl.key={of}"));
    let state = |of: &str| {
        let name = name(of);
        host.sh(&format!("docker inspect -f '{{{{.State.Status}}}} {{{{.State.StartedAt}}}}' {}", name.trim()))
    };
    let others = || (state("head"), state("worker0"));
    let before = others();

    gpucl(&env, &["worker", "stop", "worker-1"]).exits(0).prints("worker-1 is stopped");
    assert!(state("worker1").starts_with("exited"), "{}", state("worker1"));
    assert!(host.sh(&format!("docker logs {} 2>&1", name("worker1").trim())).contains(DRAINS));
    gpucl(&env, &["status"]).exits(0).prints("byhand: partly").prints("stopped by hand");
    let checks = gpucl(&env, &["verify"]).exits(0).says("worker-1   stopped by hand, and left out");
    assert!(!checks.stderr.contains("FAILED"), "{}", checks.stderr);
    gpucl(&env, &["plan"]).exits(0).prints("start worker-1: it was stopped by hand");
    gpucl(&env, &["worker", "start", "worker-1"]).exits(0).prints("worker-1 runs");

    let lines = gpucl(&env, &["drill", "kill-worker", "--output", "json"]).exits(0).json();
    let drill = lines.iter().find(|line| line["type"] == "drill").unwrap();
    println!("{drill}");
    check_drill(drill);
    assert_eq!(state("head"), before.0);
    if drill["worker"] == "worker-1" {
        assert_eq!(others(), before, "others are not disturbed");
    }

    let earlier = state("worker1");
    gpucl(&env, &["worker", "kill", "worker-1"]).exits(0).prints("worker-1 was killed");
    until("the engine restarts the worker", 60, || {
        let now = state("worker1");
        (now.starts_with("running") && now != earlier).then_some(())
    });
    gpucl(&env, &["worker", "start", "worker-1"]).exits(0);

    // A worker that Ray's own command takes out of the cluster; its container would go on without it.
    let earlier = (state("worker0"), state("worker1"));
    drain_a_worker(&env, "byhand");
    until("the engine starts the worker anew", 60, || {
        let now = (state("worker0"), state("worker1"));
        (now != earlier && now.0.starts_with("running") && now.1.starts_with("running")).then_some(())
    });
    until("all checks passed", 90, || (gpucl(&env, &["verify"]).code == Some(0)).then_some(()));

    // A task without an end: nodes that drained would wait for it. The logs go with the containers.
    let task = "import ray, time\nray.init()\nray.get(ray.remote(lambda: time.sleep(600)).remote())";
    gpucl(&env, &["job", "submit", "--no-wait", "--id", "endless", "--", "python", "-c", task]).exits(0);
    until("the task to run", 60, || gpucl(&env, &["job", "list"]).exits(0).stdout.contains("1 CPU").then_some(()));
    for node in ["head", "worker0", "worker1"] {
        host.sh(&format!(
            "setsid docker logs -f --tail 0 {} >/var/tmp/{node}.log 2>&1 </dev/null &",
            name(node).trim()
        ));
    }
    gpucl(&env, &["stop"]).exits(0);
    assert_eq!(host.sh(&format!("cat /var/tmp/*.log | grep -c '{DRAINS}' || :")).trim(), "0");
    gpucl(&env, &["down", "--yes"]).exits(0).prints("nothing of byhand is left");
}
