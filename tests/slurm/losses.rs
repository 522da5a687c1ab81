//! What takes a running cluster away, or stands beside it: preemption, a node that fails, a controller that does not
//! answer, another cluster on the same node.

use std::process::Command;

use serde_json::json;

use super::testbed::{self, left, login, nothing_is_left, on, turn, with_ready_ray};
use crate::support::{TestEnv, drain_a_worker, until};

fn docker(verb: &str, machine: &str) {
    let network = std::env::var("GPUCL_SLURM_NETWORK").unwrap_or_else(|_| "gpucl-slurm".to_owned());
    let output = Command::new("docker").args([verb, &format!("{network}-{machine}")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A job of a better partition takes the node; the site ends ours, or puts it back into the queue if that was asked for.
#[test]
#[ignore = "by hand: just slurm"]
fn a_preempted_job_is_said_and_comes_back() {
    let _turn = turn();
    let env = TestEnv::new();
    for (name, options) in [("ended", json!(["--nodelist=n3"])), ("again", json!(["--nodelist=n3", "--requeue"]))] {
        let spec = with_ready_ray(&env, name, 1, &json!({ "partition": "spot", "sbatch": options }));
        env.run(&["up", &spec]).exits(0).prints("ready:");
        login("bob", "sbatch --parsable --partition=gpu --nodelist=n3 --exclusive --wrap='sleep 15'");
        let status = until("the other job has the node", 60, || {
            let status = env.run(&["status", "-c", name]).stdout;
            ["PREEMPTED", "BeginTime"].iter().any(|word| status.contains(word)).then_some(status)
        });
        let words = match name {
            "ended" => "its job is gone: it ended: another job took its place (PREEMPTED)",
            _ => "its job does not run: it waits in the queue: it may not begin yet",
        };
        assert!(status.contains(words), "{status}");
        // The same job, which Slurm starts again; or a new one.
        env.run(&["up", &spec]).exits(0).prints("ready:");
        env.run(&["down", "--yes", "-c", name]).exits(0).prints(&format!("nothing of {name} is left"));
        nothing_is_left();
    }
}

/// Ray's own command takes a worker out of its cluster, and its process would go on without it.
#[test]
#[ignore = "by hand: just slurm"]
fn a_worker_that_ray_has_lost_starts_anew() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = with_ready_ray(&env, "drained", 2, &json!({}));
    env.run(&["up", &spec]).exits(0).prints("ready:");
    drain_a_worker(&env, "drained");
    until("its supervisor starts it anew", 60, || {
        env.run(&["logs", "-c", "drained", "supervisor"]).stdout.contains("was started again").then_some(())
    });
    until("all checks passed", 90, || (env.run(&["verify", "-c", "drained"]).code == Some(0)).then_some(()));
    env.run(&["up", &spec]).exits(0).prints("nothing was changed");
    env.run(&["down", "--yes", "-c", "drained"]).exits(0).prints("nothing of drained is left");
    nothing_is_left();
}

/// The node's machine is switched off: Slurm ends the job, and `up` gets another node.
#[test]
#[ignore = "by hand: just slurm"]
fn a_node_that_fails_is_said_and_replaced() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = with_ready_ray(&env, "failing", 2, &json!({ "sbatch": ["--exclude=n3"] }));
    env.run(&["up", &spec]).exits(0).prints("ready:");
    docker("kill", "n2");
    let status = until("Slurm sees it", 120, || {
        let status = env.run(&["status", "-c", "failing"]).stdout;
        status.contains("NODE_FAIL").then_some(status)
    });
    assert!(status.contains("its job is gone: it ended: a node failed (NODE_FAIL)"), "{status}");
    let spec = with_ready_ray(&env, "failing", 2, &json!({ "sbatch": ["--exclude=n2"] }));
    let up = env.run(&["up", "--yes", &spec]).exits(0).prints("ready:");
    assert!(up.stdout.contains("n3") || up.stderr.contains("n3"), "{}{}", up.stdout, up.stderr);
    env.run(&["down", "--yes", "-c", "failing"]).exits(0).prints("nothing of failing is left");
    testbed::again();
    // A machine that was switched off has the files of its last job when it comes back; sites remove them at its start.
    let of_n2 = |left: &String| left.starts_with("n2:/localscratch/ada.") || left.starts_with("n2:/tmp/gpucl-");
    until("nothing else is left", 60, || left().iter().all(of_n2).then_some(()));
}

/// The controller is away: nothing is taken for gone, and the cluster goes on.
#[test]
#[ignore = "by hand: just slurm"]
fn a_controller_that_does_not_answer_is_said_and_loses_nothing() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = with_ready_ray(&env, "outage", 1, &json!({}));
    env.run(&["up", &spec]).exits(0).prints("ready:");
    on("ctl", "kill -STOP $(pidof slurmctld)");
    let down = env.run(&["down", "--yes", "-c", "outage"]);
    let status = env.run(&["status", "-c", "outage"]);
    on("ctl", "kill -CONT $(pidof slurmctld)");
    assert_ne!(down.code, Some(0), "{}{}", down.stdout, down.stderr);
    assert!(down.stderr.contains("Slurm's controller does not answer"), "{}", down.stderr);
    assert!(!down.stdout.contains("nothing of"), "{}", down.stdout);
    assert!(!status.stdout.contains("its job is gone"), "{}", status.stdout);
    println!("down: {}\nstatus: {:?} {}{}", down.stderr, status.code, status.stdout, status.stderr);
    env.run(&["up", &spec]).exits(0).prints("ready:");
    env.run(&["down", "--yes", "-c", "outage"]).exits(0).prints("nothing of outage is left");
    nothing_is_left();
}

/// Two clusters share a node, and each has its own GPU, processors and Ray; one goes, and the other stays.
#[test]
#[ignore = "by hand: just slurm"]
fn two_clusters_share_a_node() {
    let _turn = turn();
    let env = TestEnv::new();
    let more = json!({ "gpus": "a100:1", "sbatch": ["--nodelist=n1"] });
    for name in ["one", "two"] {
        env.run(&["up", &with_ready_ray(&env, name, 1, &more)]).exits(0).prints("ready:");
    }
    let program = "import ray, os; ray.init(); print('nodes', len(ray.nodes()), 'gpus', \
                   ray.cluster_resources().get('GPU'), 'job', os.environ['SLURM_JOB_ID'])";
    let said: Vec<String> = ["one", "two"]
        .iter()
        .map(|name| {
            let run = env.run(&["job", "submit", "-c", name, "--", "python", "-c", program]).exits(0);
            let line = run.stdout.lines().find(|line| line.contains("nodes 2 gpus 1.0")).map(str::to_owned);
            line.unwrap_or_else(|| panic!("{}{}", run.stdout, run.stderr))
        })
        .collect();
    assert_ne!(said[0], said[1], "both ran in one job");
    let gpus: Vec<String> = ["one", "two"].iter().map(|name| gpu(&env, name)).collect();
    assert_ne!(gpus[0], gpus[1], "both have one GPU");
    env.run(&["down", "--yes", "-c", "one"]).exits(0).prints("nothing of one is left");
    env.run(&["verify", "-c", "two"]).exits(0);
    env.run(&["down", "--yes", "-c", "two"]).exits(0).prints("nothing of two is left");
    nothing_is_left();
}

/// The GPUs that a cluster's node sees.
fn gpu(env: &TestEnv, name: &str) -> String {
    let seen = env.run(&["exec", "-c", name, "--", "nvidia-smi", "-L"]).exits(0).stdout;
    let start = seen.find("GPU-").unwrap_or_else(|| panic!("{seen}"));
    seen[start..].chars().take(40).collect()
}
