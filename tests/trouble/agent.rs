//! The agent dies; what it leaves is taken over.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use gpucl::name::Scope;
use gpucl::runtime::native::tagged;

use super::tools::{
    SPEC, agent, down_leaves_nothing, kill, nothing_left, pids, process, processes, status, tools, until,
};
use crate::support::{Hidden, TestEnv, turn};

/// The agent's socket.
fn socket(env: &TestEnv) -> PathBuf {
    let entries = std::fs::read_dir(env.root().join("run/gpucl")).unwrap().flatten();
    entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "sock")).unwrap()
}

/// What the reaper of a node has written down.
fn record(env: &TestEnv, key: &str) -> String {
    let host = std::fs::read_dir(env.home().join(".local/share/gpucl/hosts")).unwrap().next().unwrap().unwrap();
    std::fs::read_to_string(host.path().join("processes").join(key)).unwrap()
}

/// Kills the agent; hands back its socket, on which nobody listens any more.
#[track_caller]
fn kill_agent(env: &TestEnv) -> PathBuf {
    let socket = socket(env);
    kill(agent(env).unwrap());
    assert!(socket.metadata().unwrap().file_type().is_socket());
    // A process counts as ended when its first thread has; the socket goes with the last.
    until("the socket was stale", 10, || UnixStream::connect(&socket).is_err().then_some(()));
    socket
}

/// Every process of the cluster is told to be one of it, those with a title too: `down` relies on it.
#[track_caller]
fn all_are_told(env: &TestEnv) {
    let owner = std::fs::read_to_string(env.home().join(".config/gpucl/owner")).unwrap();
    let scope =
        Scope { owner: owner.lines().next().unwrap_or_default().parse().unwrap(), cluster: "t".parse().unwrap() };
    until("all processes were told", 20, || {
        let told: BTreeSet<u32> = tagged(&scope).values().flatten().map(|process| process.identity.pid).collect();
        let there: BTreeSet<u32> = processes(env).into_iter().map(|(pid, _)| pid).collect();
        (told.len() > 10 && told == there).then_some(())
    });
    assert!(process(env, "ray::DashboardAgent").is_some(), "the processes with titles are among them");
}

#[test]
fn a_stale_socket_is_taken_over() {
    let mut env = TestEnv::new();
    // The agent is all that is needed: without Python `up` comes no further.
    tools(&mut env, None, None);
    let _ = env.write("cluster.yaml", SPEC);
    let _ = env.run(&["up"]).exits(1).says("python3 is missing");
    let socket = kill_agent(&env);
    let _ = env.run(&["up"]).exits(1).says("agent: start agent done in").says("python3 is missing");
    assert!(UnixStream::connect(&socket).is_ok(), "a new agent listens where the old one did");
    let _ = kill_agent(&env);
    let _ = down_leaves_nothing(&env);
}

#[test]
fn an_agent_that_was_killed_is_missed_by_nobody_and_started_again() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SPEC);
    let _ = env.run(&["up"]).exits(0).prints("ready: 8 checks passed");
    all_are_told(&env);
    let nodes = pids(&env);
    let _ = kill_agent(&env);

    let _ = env.run(&["status"]).exits(0).prints("t: ready since").prints("agent does not run");
    assert_eq!(pids(&env), nodes, "nodes go on");
    let _ = env.run(&["verify"]).exits(0).prints("ready: 8 checks passed");
    let plan = env.run(&["plan"]).exits(0);
    assert_eq!(plan.stdout, "#1 agent, start agent: it does not run any more\n");
    let _ = env.run(&["up"]).exits(0).prints("ready: 8 checks passed, 1 operation (");
    assert_eq!((pids(&env), status(&env)["agent"].as_bool()), (nodes, Some(true)));

    // With its reaper killed as well, nobody lives who saw what a job has started.
    let hidden = Hidden::by_a_job(&env, "t", "hides");
    let _ = kill_agent(&env);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let in_group = record(&env, "head").contains("\ngroup ");
    kill(u32::try_from(pids(&env)[0]).unwrap());
    let down = env.run(&["down", "-c", "t"]).exits(0);
    assert_eq!(hidden.running(), [0; 0], "what a job has hidden survived `down`");
    nothing_left(&env);
    // A control group holds everything; without one `down` claims no more than it knows.
    let claims =
        [("nothing of t is left", in_group), ("not known: whether a job left a process behind on head", !in_group)];
    for (claim, is_made) in claims {
        assert_eq!(down.stdout.contains(claim), is_made, "{claim}: {}", down.stdout);
    }
}
