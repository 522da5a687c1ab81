//! A site that keeps accounts: what an account or a QoS does not allow is quoted and explained.

use serde_json::{Value, json};

use super::testbed::{self, left, login, nothing_is_left, turn};
use crate::support::{TestEnv, until};

/// Only on a cluster with accounting: `just slurm-accounts`.
#[test]
#[ignore = "by hand: just slurm-accounts"]
fn what_an_account_does_not_allow_is_quoted_and_explained() {
    let _turn = turn();
    assert_eq!(testbed::testbed()["accounting"], true, "run it by `just slurm-accounts`");
    let env = TestEnv::new();
    let asks = |name: &str, more: &Value| {
        let mut all = json!({ "account": "def-ada", "cpus": 1, "memory": "500MiB", "queue": "20s" });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        testbed::spec(&env, name, &testbed::settings("ada", &all), 1, &json!({})).display().to_string()
    };
    for (more, words, hint) in [
        (json!({ "account": "nope" }), "Invalid account or account/partition", "sacctmgr show assoc"),
        // Of bob alone.
        (json!({ "account": "def-bob" }), "Invalid account or account/partition", "sacctmgr show assoc"),
        (json!({ "qos": "nope" }), "Invalid qos", "sacctmgr show assoc"),
    ] {
        let spec = asks("refused", &more);
        let up = env.run(&["up", &spec]).exits(1);
        assert!(up.stderr.contains(words) && up.stderr.contains(hint), "{more}: {}", up.stderr);
    }
    assert_eq!(left(), Vec::<String>::new());

    // Its limit is 30 minutes for each job: the job would be pending for ever.
    let spec = asks("long", &json!({ "qos": "small", "hours": 1 }));
    let up = env.run(&["up", &spec]).exits(1);
    assert!(up.stderr.contains("QOSMaxWallDurationPerJobLimit"), "{}", up.stderr);
    env.run(&["down", "--yes", "-c", "long"]).exits(0).prints("nothing of long is left");

    // Its limit is two GPUs for each user: the job waits for the user's other one.
    let other = login("ada", "sbatch --parsable -A def-ada --qos=small --gpus-per-node=2 --time=5 --wrap='sleep 200'");
    until("it runs", 30, || login("ada", "squeue -h -o '%T'").contains("RUNNING").then_some(()));
    let spec = asks("waits", &json!({ "qos": "small", "gpus": 1 }));
    env.run(&["up", &spec]).exits(7).says("a limit on GPUs is reached (QOSMaxGRESPerUser)");
    env.run(&["down", "--yes", "-c", "waits"]).exits(0).prints("nothing of waits is left");
    login("ada", &format!("scancel {other}"));
    nothing_is_left();
}
