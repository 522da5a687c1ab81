//! The examples for newcomers, run as their READMEs say.

use std::process::{Command, Stdio};

use crate::support::{Outcome, TestEnv, tagged_processes, turn};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// A testbed's, for its minutes of real jobs; `.ci/run` runs it.
#[test]
#[ignore = "testbed"]
fn the_examples_run_on_one_cluster() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let spec = std::fs::read_to_string(format!("{EXAMPLES}/cluster.yaml")).unwrap();
    env.write("cluster.yaml", &spec);
    env.run(&["up"]).exits(0).prints("ready: ");

    example(&env, "hello", &["hello.py"])
        .exits(0)
        .prints("the cluster has 2 CPUs and 2 GPUs")
        .prints("squares: [0, 1, 4, 9, 16, 25, 36, 49]")
        .prints("the counter is at 499501");
    // Half a GPU each: all four at the same time.
    let halves = example(&env, "fractional", &["fractional.py"]).exits(0);
    assert!(halves.stdout.matches("2 tasks, at most 2 at once").count() == 2, "{halves:?}");
    let wholes = example(&env, "fractional", &["fractional.py", "--share", "1"]).exits(0);
    assert!(took(&wholes) > 5.9 && wholes.stdout.contains("at most 1 at once"), "{wholes:?}");
    example(&env, "infeasible", &["infeasible.py"])
        .exits(0)
        .prints("but the largest has 1")
        .prints("after 10 s it still waits")
        .prints("2 tasks with 1 GPU each ran");
    too_large(&env);
    // Its command runs on a worker's node, and its log is read there.
    let on_a_worker = ["--entrypoint-num-gpus", "1", "--", "python", "-c", "print(6 * 7)"];
    env.run(&[&["job", "submit", "--id", "on-a-worker"], &on_a_worker[..]].concat()).exits(0).prints("42\n");
    env.run(&["job", "logs", "on-a-worker"]).exits(0).prints("42\n");
    three_at_once(&env);
    example(&env, "resume", &["resume.py"])
        .exits(0)
        .prints("resumed from the checkpoint of epoch ")
        .prints("trained to epoch 7");
    example(&env, "tune", &["tune.py", "--samples", "6", "--epochs", "4"])
        .exits(0)
        .prints("6 settings tried")
        .prints("the best: accuracy");

    what_top_shows(&env);

    env.run(&["down", "--yes"]).exits(0);
    assert_eq!(tagged_processes(&env), []);
}

/// Runs the program of an example as its README says.
#[track_caller]
fn example(env: &TestEnv, folder: &str, words: &[&str]) -> Outcome {
    let folder = format!("{EXAMPLES}/{folder}");
    let mut arguments = vec!["job", "submit", "--working-dir", &folder, "--", "python"];
    arguments.extend(words);
    env.run(&arguments)
}

/// The seconds that the example `fractional` measured.
fn took(outcome: &Outcome) -> f64 {
    let text = outcome.stdout.rsplit_once("took ").map(|(_, rest)| rest).unwrap_or_default();
    text.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(f64::NAN)
}

/// A job that no node can run is taken out of the queue, and only it is in the list.
fn too_large(env: &TestEnv) {
    let asks = ["--entrypoint-num-gpus", "2", "--", "python", "-c", "print('never printed')"];
    env.run(&[&["job", "submit", "--no-wait", "--id", "too-large"], &asks[..]].concat()).exits(0);
    env.run(&["job", "status", "too-large"]).exits(0).prints("asks for 2 GPUs on one node; the largest has 1");
    env.run(&["job", "stop", "too-large"]).exits(0).says("it was stopped while it waited");
    let jobs = env.run(&["job", "list"]).exits(0);
    assert!(!jobs.stdout.contains("cancel-"), "{jobs:?}");
}

/// Three jobs of half a GPU each, submitted at once, all get theirs on two GPUs and succeed.
fn three_at_once(env: &TestEnv) {
    let program = env.command(&[]);
    let mut command = Command::new("sh");
    command.env_clear().current_dir(env.work()).stdin(Stdio::null());
    command.arg(format!("{EXAMPLES}/three-at-once/submit.sh")).arg("8");
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("GPUCL", env!("CARGO_BIN_EXE_gpucl"));
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "stdout:\n{out}\nstderr:\n{err}");
    assert_eq!(out.matches(": GPU ").count(), 3, "{out}");
}

/// `top` shows each node, for people and as JSON.
fn what_top_shows(env: &TestEnv) {
    env.run(&["top"]).exits(0).prints(" NODE ").prints(" head ").prints(" worker-0 ").prints(" worker-1 ");
    let lines = env.run(&["top", "--output", "json"]).exits(0).json();
    let names: Vec<&str> = lines.iter().filter_map(|line| line["node"].as_str()).collect();
    assert_eq!(names, ["head", "worker-0", "worker-1"]);
    for line in &lines {
        let (used, total) = (line["memory_used"].as_u64().unwrap(), line["memory_total"].as_u64().unwrap());
        assert!(line["type"] == "node_usage" && 0 < used && used < total, "{line}");
        assert!(line["cpu_percent"].as_f64().unwrap() >= 0.0 && line["cpus"].as_u64().unwrap() > 0, "{line}");
    }
}
