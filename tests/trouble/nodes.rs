//! Nodes that die, or never answer.

use std::sync::atomic::{AtomicBool, Ordering};

use gpucl::util::process::{below, table};

use super::tools::{SLEEPER, SPEC, down_leaves_nothing, kill, node_script, pids, runs, status, until};
use crate::support::{Hidden, TestEnv, drain_a_worker, short_folders, turn};

#[test]
fn a_worker_that_dies_at_its_start() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SPEC);
    let built_in = include_str!("../../templates/ray-native/node.py");
    let dies = "import sys\nif '--head' not in sys.argv:\n    print('the worker sees no way')\n    sys.exit(23)\n";
    node_script(&env, &built_in.replacen("\nimport os\n", &format!("\nimport os\n{dies}"), 1));
    let begun = std::time::Instant::now();
    let _ = env
        .run(&["up"])
        .exits(1)
        .says("error: failed to deploy host-0: step `wait until all nodes answer`\n")
        .says("the end of the log of worker-0:\n")
        .says("the worker sees no way\n")
        .says("worker-0 does not stay up: it ended with exit code 23\nleft behind: head, host-0, worker-0\n")
        .says("hint: gpucl logs -c t   # the output of all its nodes\n")
        .says("hint: gpucl down -c t   # removes what is there\n");
    assert!(begun.elapsed().as_secs() < 60, "a node that ended was waited for");
    let worker = status(&env)["nodes"][1].clone();
    assert_eq!(
        (worker["running"].as_bool(), worker["ended"].as_str()),
        (Some(false), Some("its process ended with exit code 23"))
    );
    let _ = env.run(&["status"]).exits(0).prints("t: partly on local").prints("worker-0    exited");
    let _ = env.run(&["logs", "worker-0"]).exits(0).prints("the worker sees no way\n");
    assert_eq!(pids(&env).len(), 1, "the head goes on");
    let _ = down_leaves_nothing(&env);
}

/// Another user's program, which has no part in our claims, takes the head's port between the claim and the start.
#[test]
fn a_port_that_is_taken_at_the_last_moment_costs_one_more_start() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SPEC);
    // A claim is a file named after the first port of a block; of the head's, that is the GCS's.
    let heads_claim = || {
        let folders = short_folders(env.root()).into_iter();
        let mut claims = folders.filter_map(|folder| folder.join("ports").read_dir().ok()).flatten().flatten();
        let of_head = claims.find(|claim| {
            std::fs::read_to_string(claim.path())
                .is_ok_and(|text| text.split(' ').next().is_some_and(|tag| tag.ends_with("-head")))
        })?;
        let port = of_head.file_name().to_str()?.parse::<u16>().ok()?;
        std::net::TcpListener::bind(("0.0.0.0", port)).ok()
    };
    let done = AtomicBool::new(false);
    let (up, taken) = std::thread::scope(|threads| {
        // It takes connections, and says nothing.
        let stranger = threads.spawn(|| {
            let taken = until("the ports were claimed", 60, heads_claim);
            taken.set_nonblocking(true).unwrap();
            while !done.load(Ordering::Relaxed) {
                drop(taken.accept());
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            taken
        });
        let up = env.run(&["up"]);
        done.store(true, Ordering::Relaxed);
        (up, stranger.join().unwrap())
    });
    let port = taken.local_addr().unwrap().port();
    let _ = up
        .exits(0)
        .says("another program took a port of host-0 before its nodes could: they start again, on other ports")
        .prints("ready: 8 checks passed");
    assert!(env.run(&["up"]).exits(0).stdout.contains("nothing was changed"));
    assert!(taken.local_addr().is_ok_and(|still| still.port() == port));
    let _ = down_leaves_nothing(&env);
}

#[test]
fn a_head_that_never_answers() {
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", &format!("{SPEC}timeouts: {{start: 3s}}\n"));
    node_script(&env, SLEEPER);
    let _ = env
        .run(&["up"])
        .exits(7)
        .says("error: failed to deploy host-0: step `wait until all nodes answer`\n")
        .says("it did not end within 3s, the step's limit, and was ended\n")
        .says("no answer in time from head, worker-0 (`timeouts.start`)\n")
        .says("      asleep ['--gpucl-wait', ")
        .says("left behind: head, host-0, worker-0\n")
        .says("hint: more time for slow hosts: `timeouts: {start: 10m}` in the spec\n");
    let _ = env.run(&["status"]).exits(0).prints("t: running on local").says("Ray does not answer");
    let _ = down_leaves_nothing(&env);
}

/// A worker that is killed is started again, and nothing of it is left. Leaves the cluster as it was.
pub(super) fn a_worker_is_killed(env: &TestEnv) {
    let [head, worker] = pids(env)[..] else { unreachable!("a head and a worker: {:?}", pids(env)) };
    let old = below(&table(), [u32::try_from(worker).unwrap()]);
    assert!(old.len() >= 5, "a worker is several processes: {old:?}");
    let hidden = Hidden::by_a_task(env, "t", "hides");

    kill(u32::try_from(worker).unwrap());
    until("the worker was started again", 30, || {
        matches!(pids(env)[..], [still, new] if still == head && new != worker).then_some(())
    });
    assert_eq!(old.iter().filter(|pid| runs(**pid)).count(), 0, "of the first one something is left");
    assert_eq!(hidden.running(), [0; 0], "what a task has hidden survived its worker");
    let _ = env
        .run(&["logs", "supervisor"])
        .exits(0)
        .prints("worker-0 ended with exit code 137")
        .prints("worker-0 was started again");
    until("Ray knows the new worker", 60, || {
        status(env)["ray_nodes"].as_array()?.iter().filter(|node| node["alive"] == true).nth(1).map(|_| ())
    });
    let _ = env.run(&["status"]).exits(0).prints("t: running on local");
    until("all checks passed", 60, || (env.run(&["verify"]).code == Some(0)).then_some(()));
    let _ = env.run(&["status"]).exits(0).prints("t: ready since");
    let _ = env.run(&["up"]).exits(0).prints("nothing was changed");
}

/// Ray's own command takes a worker out of its cluster, and the process that started it would stay: it is started anew.
/// Leaves the cluster as it was.
pub(super) fn a_worker_is_drained_by_rays_own_command(env: &TestEnv) {
    let [head, worker] = pids(env)[..] else { unreachable!("a head and a worker: {:?}", pids(env)) };
    drain_a_worker(env, "t");
    until("the worker was started anew", 60, || {
        matches!(pids(env)[..], [still, new] if still == head && new != worker).then_some(())
    });
    let _ = env
        .run(&["logs", "supervisor"])
        .exits(0)
        .prints("worker-0 ended with exit code 1")
        .prints("worker-0 was started again");
    let _ = env.run(&["logs", "worker-0"]).exits(0).prints("Ray has lost this node: its raylet ended with exit code 0");
    until("all checks passed", 90, || (env.run(&["verify"]).code == Some(0)).then_some(()));
    let _ = env.run(&["up"]).exits(0).prints("nothing was changed");
}
