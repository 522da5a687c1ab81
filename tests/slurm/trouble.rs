//! What goes wrong at a site: said in Slurm's words and ours, and nothing is left.

use serde_json::{Value, json};

use super::testbed::{self, left, login, nothing_is_left, on, turn};
use crate::support::{TestEnv, until};

/// A spec whose job asks for this.
fn asks(env: &TestEnv, name: &str, more: &Value) -> String {
    let mut all = json!({ "cpus": 1, "memory": "500MiB" });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    testbed::spec(env, name, &testbed::settings("ada", &all), 1, &json!({})).display().to_string()
}

/// Each is refused before anything is requested, and nothing is left.
#[test]
#[ignore = "by hand: just slurm"]
fn what_slurm_refuses_is_quoted_and_explained() {
    let _turn = turn();
    let env = TestEnv::new();
    for (more, words, hint) in [
        (json!({ "partition": "nope" }), "invalid partition", "sinfo"),
        (json!({ "gpus": "h100:1" }), "configuration is not available", "gpucl offers"),
        (json!({ "gpus": "a100:9" }), "configuration is not available", "gpucl offers"),
        (json!({ "memory": "900GiB" }), "configuration is not available", "less memory"),
        (json!({ "constraint": "nope" }), "Invalid feature", "sinfo"),
        (json!({ "reservation": "nope" }), "eservation", "scontrol show reservation"),
    ] {
        let spec = asks(&env, "refused", &more);
        let up = env.run(&["up", &spec]).exits(1);
        assert!(up.stderr.contains(words) && up.stderr.contains(hint), "{more}: {}", up.stderr);
        assert!(!up.stderr.contains("left behind"), "{}", up.stderr);
    }
    assert_eq!(left(), Vec::<String>::new());
}

/// More time than the partition allows: accepted, then pending for ever.
#[test]
#[ignore = "by hand: just slurm"]
fn a_job_that_can_never_start_is_not_waited_for() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = asks(&env, "never", &json!({ "partition": "short", "hours": 5 }));
    let up = env.run(&["up", &spec]).exits(1).says("the partition allows less time (PartitionTimeLimit)");
    assert!(up.stderr.contains("gpucl down -c never"), "{}", up.stderr);
    env.run(&["down", "--yes", "-c", "never"]).exits(0).prints("nothing of never is left");
    assert_eq!(left(), Vec::<String>::new());
}

/// The queue is full; the terminal's Ctrl-C leaves the job in the queue, and `down` takes it out.
#[test]
#[ignore = "by hand: just slurm"]
fn a_job_in_the_queue_is_explained_and_can_be_cancelled() {
    let _turn = turn();
    let env = TestEnv::new();
    let busy = login("ada", "sbatch --parsable --job-name=gpucl-busy -N3 --exclusive --wrap='sleep 300'");
    until("it runs", 30, || login("ada", "squeue -h -o '%T %j'").contains("RUNNING gpucl-busy").then_some(()));
    let spec = asks(&env, "queued", &json!({ "queue": "6s" }));
    let up = env.run(&["up", &spec]).exits(7).says("did not start within 6s (`provider.queue`)");
    assert!(up.stderr.contains("waiting for job") && up.stderr.contains("in its partition"), "{}", up.stderr);
    assert!(up.stderr.contains("goes on waiting"), "{}", up.stderr);
    env.run(&["down", "--yes", "-c", "queued"]).exits(0).prints("nothing of queued is left");
    login("ada", &format!("scancel {busy}"));
    nothing_is_left();
}

/// Somebody cancels the job while the cluster runs; and a job that ends in its first second says why.
#[test]
#[ignore = "by hand: just slurm"]
fn a_job_that_ended_is_said_and_replaced() {
    let _turn = turn();
    let env = TestEnv::new();
    on("n1", "mv /usr/sbin/sshd /usr/sbin/sshd.away");
    let spec = asks(&env, "early", &json!({ "sbatch": ["--nodelist=n1"] }));
    let up = env.run(&["up", &spec]);
    on("n1", "mv /usr/sbin/sshd.away /usr/sbin/sshd");
    let up = up.exits(1).says("this node has no sshd");
    assert!(up.stderr.contains("its script failed (FAILED)") || up.stderr.contains("it ended"), "{}", up.stderr);
    env.run(&["down", "--yes", "-c", "early"]).exits(0);

    let spec =
        asks(&env, "taken", &json!({ "cpus": 2, "memory": "6GiB", "environment": testbed::ready_environments("ada") }));
    env.run(&["up", &spec]).exits(0);
    login("ada", "scancel $(squeue -h -u $(id -un) -o '%i %j' | sed -n 's/ gpucl-.*//p')");
    until("it is gone", 30, || (!login("ada", "squeue -h -u $(id -un) -o %j").contains("gpucl-")).then_some(()));
    env.run(&["status", "-c", "taken"]).prints("it was cancelled (CANCELLED)");
    env.run(&["up", &spec]).exits(0).prints("ready:");
    env.run(&["down", "--yes", "-c", "taken"]).exits(0).prints("nothing of taken is left");
    nothing_is_left();
}
