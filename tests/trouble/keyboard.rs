//! Concurrent commands, and Ctrl-C.

use super::tools::{
    Running, SLEEPERS, SPEC, down_leaves_nothing, gate, open_gate, pids, process, processes, status, wait_at_gate,
};
use crate::support::{TestEnv, turn};

#[test]
fn a_concurrent_up_is_refused_with_the_running_command() {
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SLEEPERS);
    gate(&env);
    let first = Running::start(&env, &["up"]);
    wait_at_gate(&env);
    let who = format!("works on it: process {} on {}, since 20", first.pid(), host_name());
    for verb in ["up", "down", "stop", "verify"] {
        let _ = env
            .run(&[verb])
            .exits(4)
            .says("error: failed to lock the cluster t\nCaused by: `gpucl up` of ")
            .says(&who)
            .says(" UTC\nhint: wait for it to end, or press Ctrl-C where it runs; then run this again\n");
    }
    // Read-only commands do not wait.
    assert_eq!(status(&env)["phase"], "unfinished");
    let _ = env.run(&["plan"]).exits(0).prints("prepare");
    first.interrupt();
    let _ = first.end(10).exits(130);
    let _ = down_leaves_nothing(&env);
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[test]
fn ctrl_c_once_ends_a_wait_and_up_goes_on_later() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SPEC);
    gate(&env);
    let up = Running::start(&env, &["up"]);
    wait_at_gate(&env);
    up.interrupt();
    let path = env.work().join("cluster.yaml");
    let again = format!("hint: gpucl up {}   # goes on from here\n", path.display());
    let _ = up
        .end(10)
        .exits(130)
        .says("stopping: calls in flight finish, waits end, nothing new starts; press Ctrl-C again to stop now")
        .says("host-0: prepare stopped after ")
        .says("error: failed to prepare host-0\nCaused by: it was interrupted\nleft behind: host-0\n")
        .says("hint: its program goes on there; run the same command again to follow it\n")
        .says(&again)
        .says("hint: gpucl down -c t   # removes what is there\n");
    assert_eq!(pids(&env), [0; 0], "no node was begun");
    open_gate(&env);

    // The second one goes on after what was done, and is stopped while it waits.
    let up = Running::start(&env, &["up"]);
    up.says("host-0| waiting for head", 60);
    up.interrupt();
    let _ = up
        .end(10)
        .exits(130)
        .says("Caused by: it was interrupted\nleft behind: head, host-0, worker-0\n")
        .says("hint: its program goes on there; run the same command again to follow it\n")
        .says(&again);
    let nodes = pids(&env);
    assert_eq!(nodes.len(), 2);

    let up = env.run(&["up"]).exits(0).prints("ready: 8 checks passed, 1 operation (");
    assert!(!up.stderr.contains("prepare"), "it was prepared already: {}", up.stderr);
    assert_eq!(pids(&env), nodes);
    let _ = down_leaves_nothing(&env);
}

#[test]
fn down_ends_what_goes_on_after_ctrl_c() {
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SPEC);
    gate(&env);
    let up = Running::start(&env, &["up"]);
    // It follows what it began.
    up.says("[wait at the gate]", 30);
    up.interrupt();
    let _ = up.end(10).exits(130).says("left behind: host-0\n");
    assert_eq!(status(&env)["phase"], "unfinished");
    let installs = process(&env, "/run.sh");
    assert!(installs.is_some(), "the program on the host goes on: {:?}", processes(&env));
    let _ = down_leaves_nothing(&env);
}

#[test]
fn data_that_is_being_fetched_is_not_waited_for_after_ctrl_c() {
    let env = TestEnv::with_shared_ray();
    let data = "data:\n  - {name: slow, from: {command: echo begun; sleep 600}, check: test -e a}\n";
    let _ = env.write("cluster.yaml", &format!("{SPEC}{data}"));
    env.accept("cluster.yaml");
    let up = Running::start(&env, &["up"]);
    up.says("host-0| begun", 120);
    up.interrupt();
    let _ = up.end(10).exits(130).says("failed to fill host-0\nCaused by: it was interrupted\nleft behind: host-0\n");
    let _ = down_leaves_nothing(&env);
}
