//! One cluster from the queue to nothing left, and what its user does in between.

use std::time::Instant;

use serde_json::json;

use super::testbed::{self, left, login, nothing_is_left, on, python, turn};
use crate::support::{
    TestEnv, an_application_answers, checks_pass_beside_a_job_that_holds_all_gpus, dashboard_wants_its_token,
};

/// The guide's own programs, unchanged but for their comments.
const EXAMPLE: &str = r#"import ray
import os

ray.init(address=f"{os.environ['HEAD_NODE']}:{os.environ['RAY_PORT']}",_node_ip_address=os.environ['HEAD_NODE'])

print(ray.available_resources())
"#;

const TEST_RAY: &str = r#"import ray
import os

ray.init(address=f"{os.environ['HEAD_NODE']}:{os.environ['RAY_PORT']}",_node_ip_address=os.environ['HEAD_NODE'])

print("Nodes in the Ray cluster:")
print(ray.nodes())

print(ray.available_resources())
"#;

/// The guide's sweep without its network: 20 trials, each with a tenth of a GPU, that note how many run at once.
const SWEEP: &str = r#"import json, os, time
import ray
from ray import tune
# Shared by all nodes, as Tune's results must be.
folder = os.path.expanduser("~/results/sweep")
os.makedirs(folder, exist_ok=True)

def train(config):
    mine = f"{folder}/{os.getpid()}-{time.time()}"
    open(mine, "w").close()
    end = time.time() + 60
    # Each waits until ten run: fewer at once would be seen.
    while time.time() < end:
        count = len([name for name in os.listdir(folder) if "-" in name])
        if count >= 10 or os.path.exists(folder + "/ten"):
            open(folder + "/ten", "w").close()
            break
        time.sleep(0.1)
    seen = len([name for name in os.listdir(folder) if "-" in name])
    time.sleep(1)
    os.remove(mine)
    tune.report({"accuracy": config["lr"], "at_once": seen})

ray.init()
tuner = tune.Tuner(
    tune.with_resources(train, resources={"cpu": 0.2, "gpu": 0.1}),
    tune_config=tune.TuneConfig(metric="accuracy", mode="max", num_samples=20),
    run_config=tune.RunConfig(storage_path=os.path.expanduser("~/results/tune")),
    param_space={"lr": tune.loguniform(1e-4, 1e-1)},
)
results = tuner.fit()
print("trials", len(results), "errors", results.num_errors, "most at once", max(one.metrics["at_once"] for one in results))
"#;

/// How a job finds the variables that the guide's script sets.
const GUIDE: &str = "HEAD_NODE=${RAY_ADDRESS%:*} RAY_PORT=${RAY_ADDRESS##*:} python";

/// Two nodes, as the guide's second example has them: 6 CPUs and a GPU each.
#[test]
#[ignore = "testbed"]
fn two_nodes_come_from_the_queue_run_the_guides_programs_and_leave_nothing() {
    let _turn = turn();
    let env = TestEnv::new();
    let mut more = python();
    more.as_object_mut().unwrap().extend(
        json!({ "gpus": "a100:1", "cpus": 6, "memory": "16GiB", "partition": "gpu" }).as_object().unwrap().clone(),
    );
    let settings = testbed::settings("ada", &more);
    let spec = testbed::spec(&env, "whole", &settings, 2, &json!({ "ray": { "workers": { "per": "gpu" } } }));
    let spec = spec.display().to_string();

    env.run(&["plan", &spec]).exits(0).prints("Slurm would start the job at");
    let begin = Instant::now();
    let up = env.run(&["up", &spec]).exits(0).prints("ready:").says("is in the queue of");
    println!("first up: {:.0} s\n{}\n{}", begin.elapsed().as_secs_f64(), up.stderr, up.stdout);
    let uuids = on("n1", "nvidia-smi -L") + &on("n2", "nvidia-smi -L");
    let proven = uuids.split("UUID: ").skip(1).filter(|uuid| up.stderr.contains(uuid.split(')').next().unwrap()));
    assert_eq!(proven.count(), 2, "one GPU of each node was proven:\n{}", up.stderr);

    env.run(&["status", "-c", "whole"]).exits(0).says("its hosts will be taken away at");
    env.run(&["exec", "-c", "whole", "--host", "host-1", "--", "hostname"]).exits(0).prints("n2");
    let smi = env.run(&["exec", "-c", "whole", "--host", "host-0", "--", "nvidia-smi", "-L"]).exits(0);
    assert_eq!(smi.stdout.matches("UUID").count(), 1, "n1 has two GPUs, and the job one of them: {}", smi.stdout);
    let begin = Instant::now();
    env.run(&["up", &spec]).exits(0).prints("nothing was changed");
    println!("unchanged up: {:.1} s", begin.elapsed().as_secs_f64());

    jobs(&env);
    let begin = Instant::now();
    an_application_answers(&env, "whole", 2);
    println!("an application: {:.1} s", begin.elapsed().as_secs_f64());
    // They find its ports closed, too.
    checks_pass_beside_a_job_that_holds_all_gpus(&env, "whole");
    // Through the login machine and a node that takes no connections.
    dashboard_wants_its_token(&env, "whole");
    env.write("in.txt", "in\n");
    env.run(&["cp", "-c", "whole", "in.txt", "head:in.txt"]).exits(0);
    env.run(&[
        "exec",
        "-c",
        "whole",
        "--host",
        "host-0",
        "--",
        "sh",
        "-c",
        "cat $(dirname $(ls -d /localscratch/*/gpucl-*/*/data))/data/in.txt",
    ])
    .exits(0)
    .prints("in");
    nothing_secret_is_visible(&env);

    let begin = Instant::now();
    env.run(&["down", "--yes", "-c", "whole"]).exits(0).prints("nothing of whole is left");
    println!("down: {:.1} s", begin.elapsed().as_secs_f64());
    nothing_is_left();
    assert_eq!(left(), Vec::<String>::new());
}

fn jobs(env: &TestEnv) {
    env.write("job/ray-example.py", EXAMPLE);
    env.write("job/test_ray.py", TEST_RAY);
    env.write("job/sweep.py", SWEEP);
    let run = |program: &str| {
        let begin = Instant::now();
        let command = format!("{GUIDE} {program}");
        let done =
            env.run(&["job", "submit", "-c", "whole", "--working-dir", "job", "--", "sh", "-c", &command]).exits(0);
        println!("{program}: {:.1} s\n{}", begin.elapsed().as_secs_f64(), done.stdout);
        done.stdout
    };
    let seen = run("ray-example.py");
    assert!(seen.contains("'CPU': 12.0") && seen.contains("'GPU': 2.0"), "{seen}");
    let seen = run("test_ray.py");
    assert_eq!(seen.matches("'Alive': True").count(), 3, "the head and a worker on each node: {seen}");
    for node in ["n1", "n2"] {
        let address = testbed::testbed()["nodes"][node].as_str().unwrap();
        assert!(seen.contains(&format!("'NodeManagerAddress': '{address}'")), "{address}: {seen}");
    }
    let seen = run("sweep.py");
    assert!(seen.contains("trials 20 errors 0 most at once"), "{seen}");
    let most: u32 = seen.split("most at once ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(most >= 10, "{most} at once");
}

/// What every user of the cluster sees: the queue, the job's command line and name, and other users' processes.
fn nothing_secret_is_visible(env: &TestEnv) {
    let token =
        std::fs::read_to_string(env.home().join(".local/state/gpucl/clusters/whole/secrets/ray_token")).unwrap();
    let token = token.trim();
    assert!(token.len() > 20);
    let seen =
        login("bob", "squeue -o '%all'; scontrol show job; cat /home/ada/.gpucl/slurm/*/* 2>/dev/null; ps -ef; true");
    assert!(seen.contains("gpucl-") && !seen.contains(token), "{seen}");
    for node in ["n1", "n2"] {
        let seen = on(node, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
        assert!(!seen.contains(token), "{seen}");
        let find = r"find /localscratch /tmp \( -type f -o -type s \) -readable 2>/dev/null";
        let readable = on(node, &format!("su bob -s /bin/sh -c '{find}' || true"));
        assert_eq!(readable, "", "{node}: bob can read files");
        let private = on(node, "stat -c '%a %n' /localscratch/*/gpucl-*");
        assert!(private.starts_with("700 "), "{private}");
        let denied = on(
            node,
            "s=$(ls /localscratch/*/gpucl-*/s) && printf 'import socket\\nsocket.socket(socket.AF_UNIX).connect(\"%s\")\\n' \
             \"$s\" >/tmp/connect.py && chmod 644 /tmp/connect.py && su bob -s /bin/sh -c 'python3 /tmp/connect.py' 2>&1 \
             | tail -n 1; rm -f /tmp/connect.py",
        );
        assert!(denied.contains("PermissionError"), "bob connects to a node's socket: {denied}");
    }
}
