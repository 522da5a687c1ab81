//! One job and its situation per row, and the sentence.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::ray::{Amounts, Growing, Node};

fn amounts_of(pairs: &[(&str, f64)]) -> Amounts {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn node(id: &str, resources: &[(&str, f64)], labels: &[(&str, &str)]) -> Node {
    Node {
        node_id: id.to_owned(),
        address: "192.0.2.2".to_owned(),
        is_head: id == "head",
        alive: true,
        state: "ALIVE".to_owned(),
        resources: amounts_of(resources),
        labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        start_time: None,
    }
}

/// A head without a GPU and two workers with one each; `gpu` of the first worker is in use.
fn cluster() -> Situation {
    Situation {
        nodes: vec![
            node("head", &[("CPU", 2.0), ("memory", 4_294_967_296.0)], &[]),
            node("w0", &[("CPU", 4.0), ("GPU", 1.0)], &[("gpu", "A100")]),
            node("w1", &[("CPU", 4.0), ("GPU", 1.0)], &[("gpu", "H100")]),
        ],
        used: BTreeMap::from([("w0".to_owned(), amounts_of(&[("GPU", 1.0)]))]),
        demands: Vec::new(),
        growing: Vec::new(),
        startup: None,
    }
}

fn demand(by: Wanting, bundles: &[&[(&str, f64)]], labels: &[(&str, &str)]) -> Demand {
    Demand {
        by,
        bundles: bundles.iter().map(|bundle| amounts_of(bundle)).collect(),
        labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    }
}

fn job(status: &str, more: Value) -> Job {
    let mut job =
        json!({"type": "SUBMISSION", "submission_id": "j", "job_id": "03000000", "status": status, "entrypoint": "x"});
    if let (Some(job), Some(more)) = (job.as_object_mut(), more.as_object()) {
        job.extend(more.clone());
    }
    serde_json::from_value(job).unwrap()
}

#[test]
fn a_job_that_waits_says_for_what() {
    let pip = json!({"runtime_env": {"pip": ["a"], "env_vars": {"K": "hush"}, "working_dir": "gcs://x.zip"}});
    let none = || Vec::new();
    let rows: Vec<(&str, Value, Vec<Demand>, Option<&str>)> = vec![
        ("PENDING", json!({}), none(), Some("Ray is starting the command")),
        ("PENDING", pip.clone(), none(), Some("its runtime environment is being set up: pip, working_dir")),
        (
            "PENDING",
            pip,
            vec![demand(Wanting::Command, &[&[("GPU", 1.0)]], &[])],
            Some("its runtime environment is being set up: pip, working_dir"),
        ),
        (
            "PENDING",
            json!({}),
            vec![demand(Wanting::Command, &[&[("GPU", 2.0)]], &[])],
            Some("the command asks for 2 GPUs on one node; the largest has 1"),
        ),
        (
            "PENDING",
            json!({}),
            vec![demand(Wanting::Command, &[&[("memory", 8_589_934_592.0)]], &[])],
            Some("the command asks for 8.0 GiB of memory on one node; the largest has 4.0 GiB"),
        ),
        (
            "PENDING",
            json!({}),
            vec![demand(Wanting::Command, &[&[("disk", 1.0)]], &[])],
            Some("the command asks for 1 `disk`; no node has any"),
        ),
        (
            "PENDING",
            json!({}),
            vec![demand(Wanting::Command, &[&[("GPU", 1.0), ("memory", 1.0)]], &[])],
            Some("the command asks for 1 GPU and 1 B of memory on one node; no node has all of it"),
        ),
        (
            "PENDING",
            json!({}),
            vec![demand(Wanting::Command, &[&[("GPU", 1.0)]], &[("gpu", "A100")])],
            Some("the command waits for 1 GPU: what the nodes have is in use"),
        ),
        (
            "PENDING",
            json!({}),
            vec![demand(Wanting::Command, &[&[("GPU", 1.0)]], &[("gpu", "!in(A100, H100)"), ("zone", "!a")])],
            None, // The head has neither label: it has no GPU.
        ),
        (
            "PENDING",
            json!({}),
            vec![demand(Wanting::Command, &[&[("CPU", 1.0)]], &[("gpu", "in(B200, H200)")])],
            Some("the command wants the label gpu=in(B200, H200), which no node has"),
        ),
        ("RUNNING", json!({}), none(), None),
        (
            "RUNNING",
            json!({}),
            vec![demand(Wanting::Task("f".to_owned()), &[&[("GPU", 1.0)]], &[("gpu", "A100")])],
            None,
        ),
        (
            "RUNNING",
            json!({}),
            vec![
                demand(Wanting::Task("f".to_owned()), &[&[("CPU", 1.0)]], &[]),
                demand(Wanting::Actor("Trainer".to_owned()), &[&[("GPU", 4.0)]], &[]),
            ],
            Some("actor `Trainer` asks for 4 GPUs on one node; the largest has 1"),
        ),
        (
            "RUNNING",
            json!({}),
            vec![demand(Wanting::Group, &[&[("GPU", 1.0)], &[("GPU", 1.0)], &[("GPU", 1.0)]], &[])],
            Some("a placement group asks for 3 GPUs in all; the cluster has 2"),
        ),
        (
            "RUNNING",
            json!({}),
            vec![demand(Wanting::Group, &[&[("CPU", 1.0), ("GPU", 1.0)], &[("CPU", 1.0), ("GPU", 1.0)]], &[])],
            Some("a placement group waits for 2 times 1 CPU and 1 GPU: what the nodes have is in use"),
        ),
        ("SUCCEEDED", json!({}), none(), None),
        ("STOPPED", json!({"message": "Job was intentionally stopped."}), none(), None),
    ];
    for (status, more, demands, expected) in rows {
        let situation = Situation { demands: demands.clone(), ..cluster() };
        let said = reason(&job(status, more), &situation);
        match expected {
            None if status == "PENDING" => {
                let said = said.unwrap_or_default();
                assert!(said.contains("asks for 1 GPU; no node has any"), "{demands:?}: {said}");
            }
            _ => assert_eq!(said.as_deref(), expected, "{status} {demands:?}"),
        }
    }
}

#[test]
fn a_job_that_waits_for_the_autoscaler_is_not_called_impossible() {
    let of = |max: u32, by: Wanting, bundles: &[&[(&str, f64)]]| {
        let group = Growing {
            name: "gpu".to_owned(),
            node: amounts_of(&[("CPU", 4.0), ("GPU", 2.0)]),
            max,
            ..Growing::default()
        };
        let mut situation = Situation { growing: vec![group], ..cluster() };
        situation.nodes.push(node("g0", &[("CPU", 4.0), ("GPU", 2.0)], &[("ray.io/node-group", "gpu")]));
        situation.used.insert("g0".to_owned(), amounts_of(&[("GPU", 2.0)]));
        situation.demands.push(demand(by, bundles, &[]));
        reason(&job("RUNNING", json!({})), &situation)
    };
    let task = || Wanting::Task("step".to_owned());
    let adds = "Ray's autoscaler adds a node for it";
    assert_eq!(of(2, Wanting::Command, &[&[("GPU", 2.0)]]), Some(format!("the command waits for 2 GPUs: {adds}")));
    assert_eq!(of(2, task(), &[&[("GPU", 2.0)]]), Some(format!("task `step` waits for 2 GPUs: {adds}")));
    // At the most that the group may have.
    let full = "what the nodes have is in use, and no group may have more nodes";
    assert_eq!(of(1, Wanting::Command, &[&[("GPU", 2.0)]]), Some(format!("the command waits for 2 GPUs: {full}")));
    assert_eq!(of(1, task(), &[&[("GPU", 2.0)]]), None);
    // What no group can hold stays impossible.
    let never = "the command asks for 3 GPUs on one node; the largest has 2";
    assert_eq!(of(9, Wanting::Command, &[&[("GPU", 3.0)]]).as_deref(), Some(never));
    let many: Vec<&[(&str, f64)]> = vec![&[("GPU", 2.0)]; 3];
    assert_eq!(of(3, Wanting::Group, &many), Some(format!("a placement group waits for 3 times 2 GPUs: {adds}")));
    let never = "a placement group asks for 6 GPUs in all; the cluster has 4";
    assert_eq!(of(1, Wanting::Group, &many).as_deref(), Some(never));
}

#[test]
fn without_its_nodes_nothing_is_called_impossible() {
    let demands = vec![demand(Wanting::Command, &[&[("GPU", 8.0)]], &[])];
    let situation = Situation { demands, ..Situation::default() };
    assert_eq!(reason(&job("PENDING", json!({})), &situation).as_deref(), Some("Ray is starting the command"));
}

#[test]
fn a_failed_job_says_why() {
    const COMMAND: &str = "JOB_ENTRYPOINT_COMMAND_ERROR";
    const ENVIRONMENT: &str = "RUNTIME_ENV_SETUP_FAILURE";
    const DIED: &str = "JOB_SUPERVISOR_ACTOR_DIED";
    /// What Ray 2.60 puts before the output of a command that failed.
    const FAILED_COMMAND: &str = "runtime_env setup failed: Failed to set up runtime environment.\n[Node 127.0.0.1] Traceback \
        (most recent call last):\n    raise SubprocessCalledProcessError(\n\
        ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd[70] failed with the following details.\nCommand \
        '['/x/virtualenv/bin/python', '-m', 'pip', 'install']' returned non-zero exit status 1.\nLast 50 lines of stdout:\n";
    let log = |text: &str| {
        format!(
            "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n{text}\n"
        )
    };
    let rows: Vec<(&str, Option<i32>, String, &str)> = vec![
        (COMMAND, Some(3), log("this job fails on purpose"), "its command exited with 3"),
        (
            COMMAND,
            Some(1),
            log("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nValueError: too small"),
            "its command exited with 1: ValueError: too small",
        ),
        (COMMAND, Some(127), log("/bin/sh: 1: pyton: not found"), "its command was not found: /bin/sh: 1: pyton: not found"),
        (COMMAND, Some(-15), log(""), "signal 15 ended its command"),
        (COMMAND, Some(-9), log("step 1"), "signal 9 ended its command; the system sends it when memory runs out"),
        (
            COMMAND,
            Some(1),
            log("OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Resource temporarily unavailable"),
            "its host started no more processes or threads: the limit is that of `ulimit -u`, or `pids.max` of its cgroup",
        ),
        (
            COMMAND,
            Some(1),
            log("ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task. Check \
                 python-core-worker-*.log files for more information."),
            "a process ended in the middle of a task: by signal 9, which the system sends when memory runs out, or by a crash \
             in native code; `gpucl logs` of its worker may say more",
        ),
        (
            DIED,
            None,
            "Job supervisor actor died: The actor died unexpectedly before finishing this task.\nThe actor is dead because its \
             worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a \
             connection error code 2. End of file.\nThe actor never ran - it was cancelled before it started running."
                .to_owned(),
            "the process that ran its command died: its worker process has died",
        ),
        (
            COMMAND,
            Some(1),
            log("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
            "out of GPU memory: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
        (
            COMMAND,
            Some(1),
            log("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
            "out of memory: Ray ended a task or an actor, because its host ran low on memory",
        ),
        (
            COMMAND,
            Some(1),
            log("(raylet) 1 worker(s) were killed due to the node running low on memory.\nKeyError: 'x'"),
            "its command exited with 1: KeyError: 'x'",
        ),
        (
            COMMAND,
            Some(1),
            log("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: Trainer\n\
                 \tactor_id: 1\nThe actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"),
            "actor `Trainer` died: its worker process has died",
        ),
        (
            COMMAND,
            Some(1),
            log("ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, \
                 \u{1b}[36mray::A.__init__()\u{1b}[39m (pid=1)\n  File \"a.py\", line 3\nRuntimeError: no model"),
            "an actor died: RuntimeError: no model",
        ),
        (
            ENVIRONMENT,
            None,
            "runtime_env setup failed: Failed to set up runtime environment.\n[Node 1] stderr:\nERROR: Could not find a \
             version that satisfies the requirement nope==9 (from versions: none)\nERROR: No matching distribution found"
                .to_owned(),
            "pip failed: Could not find a version that satisfies the requirement nope==9 (from versions: none)",
        ),
        (
            ENVIRONMENT,
            None,
            "runtime_env setup failed: x\n  × No solution found when resolving dependencies:\n  ╰─▶ Because nope was not \
             found in the package registry"
                .to_owned(),
            "uv failed: Because nope was not found in the package registry",
        ),
        (
            ENVIRONMENT,
            None,
            "runtime_env setup failed: x\nOSError: Failed to download runtime_env file package gcs://_ray_pkg_a.zip from"
                .to_owned(),
            "its package is no longer at Ray, which deletes packages that no job uses; submit the job again",
        ),
        (
            ENVIRONMENT,
            None,
            "runtime_env setup failed: x\nValueError: bad `conda`".to_owned(),
            "its runtime environment could not be set up: ValueError: bad `conda`",
        ),
        (
            ENVIRONMENT,
            None,
            format!(
                "{FAILED_COMMAND}    Processing /home/a/badpkg-1.0.tar.gz\n      error: subprocess-exited-with-error\n  \n      \
                 × Getting requirements to build wheel did not run successfully.\n      │ exit code: 1\n      ╰─> [1 lines of \
                 output]\n          nvcc not found: install CUDA toolkit first\n          [end of output]\n  \n      note: This \
                 error originates from a subprocess, and is likely not a problem with pip.\n    error: \
                 subprocess-exited-with-error\n\n    × Getting requirements to build wheel did not run successfully.\n    │ \
                 exit code: 1\n    ╰─> See above for output.\n"
            ),
            "pip failed: badpkg-1.0.tar.gz cannot be built: nvcc not found: install CUDA toolkit first",
        ),
        (
            ENVIRONMENT,
            None,
            format!("{FAILED_COMMAND}    requests 2.31.0 has requirement urllib3<3,>=1.21.1, but you have urllib3 0.5.\n\n"),
            "its runtime environment could not be set up: requests 2.31.0 has requirement urllib3<3,>=1.21.1, but you have \
             urllib3 0.5",
        ),
        (
            ENVIRONMENT,
            None,
            "runtime_env setup failed: x\nRuntimeError: Changing the ray version is not allowed: \n  current version: 2.40.0,   \
             expect version: 2.60.0,   current path: /x/ray,   expect path: /x/ray, Please ensure the dependencies in the \
             runtime_env pip field do not install a different version of Ray.\n"
                .to_owned(),
            "its requirements install Ray 2.40.0, and the cluster has 2.60.0: leave `ray` out of them, or require `ray==2.60.0`",
        ),
        (
            ENVIRONMENT,
            None,
            "runtime_env setup failed: x\nFailed to install runtime_env within the timeout of 600 seconds. Consider increasing \
             the timeout\nTraceback (most recent call last):\nTimeoutError"
                .to_owned(),
            "its runtime environment was not set up within 600 s, Ray's limit; more: `config: {setup_timeout_seconds: 1800}` in \
             the runtime environment",
        ),
        (
            ENVIRONMENT,
            None,
            "runtime_env setup failed: x\nValueError: Unsupported:\n  - conda\n\n  - nix\n".to_owned(),
            "its runtime environment could not be set up: ValueError: Unsupported: - conda",
        ),
        (
            COMMAND,
            Some(1),
            log("Traceback (most recent call last):\n  File \"main.py\", line 3, in <module>\nRuntimeError: Version mismatch: The \
                 cluster was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\nThis process on node 127.0.0.1:6379 was started \
                 with:\n    Ray: 2.60.0\n    Python: 3.12.1\n"),
            "its command ran with Python 3.12.1, and the cluster has 3.11.7, which must be the same: uv run --python 3.11.7",
        ),
        (
            COMMAND,
            Some(1),
            log("RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: \"a\".\nlater"),
            "its command exited with 1: RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: \"a\"",
        ),
        (
            DIED,
            None,
            "Job supervisor actor died: The actor died unexpectedly before finishing this task.\nThe actor died because its \
             node has died. Node Id: 1"
                .to_owned(),
            "the node that ran its command was lost",
        ),
        (
            DIED,
            None,
            "Job supervisor actor died: The actor died.\nThe actor is dead because it was killed by `ray.kill`.".to_owned(),
            "the process that ran its command died: it was killed by `ray.kill`",
        ),
        (
            DIED,
            None,
            "Job supervisor actor died: The actor died.\nThe actor is dead because it was killed by `ray.kill`.\nThe actor \
             never ran - it was cancelled before it started running."
                .to_owned(),
            "it was stopped while it waited, before its command ran",
        ),
        (
            "JOB_SUPERVISOR_ACTOR_START_FAILURE",
            None,
            "Failed to start supervisor actor j: 'x'. Full traceback:\nTraceback (most recent call last):\nTypeError: y".to_owned(),
            "TypeError: y",
        ),
        ("", None, "Unexpected error occurred: lost".to_owned(), "Unexpected error occurred: lost"),
    ];
    for (kind, code, message, expected) in rows {
        let more = json!({"message": message, "error_type": kind, "driver_exit_code": code});
        assert_eq!(reason(&job("FAILED", more), &Situation::default()).as_deref(), Some(expected), "{message}");
    }
    let timeout = job("FAILED", json!({"message": "in 900 s", "error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"}));
    let demands = vec![demand(Wanting::Command, &[&[("GPU", 2.0)]], &[])];
    assert_eq!(
        reason(&timeout, &Situation { demands, ..cluster() }).as_deref(),
        Some("the command asks for 2 GPUs on one node; the largest has 1; Ray gave up waiting")
    );
    assert_eq!(reason(&job("FAILED", json!({})), &Situation::default()), None);
}

#[test]
fn a_recorded_failure_is_explained() {
    // As Ray 2.60 answered for a package that did not exist, shortened.
    let recorded = "runtime_env setup failed: Failed to set up runtime environment.\nCould not create the actor because its \
        associated runtime env failed to be created.\n[Node 192.0.2.2] Traceback (most recent call last):\n    raise IOError(\n\
        OSError: Failed to download runtime_env file package gcs://_ray_pkg_missing.zip from the GCS to the Ray worker node.\n";
    let job = job("FAILED", json!({"message": recorded, "error_type": "RUNTIME_ENV_SETUP_FAILURE"}));
    assert!(reason(&job, &Situation::default()).unwrap().starts_with("its package is no longer at Ray"));
}

#[test]
fn workers_that_end_at_their_start_are_the_reason() {
    let startup = Some(StartupFailure::Error("ImportError: no Random (random.py)".to_owned()));
    let situation = Situation { startup, ..cluster() };
    let waits = job("PENDING", json!({"runtime_env": {"working_dir": "gcs://_ray_pkg_aa.zip"}}));
    assert_eq!(
        reason(&waits, &situation).as_deref(),
        Some("its processes end at their start, and Ray tries again: ImportError: no Random (random.py)")
    );
    // What Ray 2.60.0 says after five tries, eleven minutes later.
    let message = "Job supervisor actor could not be scheduled: The actor is not schedulable: Could not create the actor \
        because worker startup repeatedly failed.\nFailed to startup worker after retrying 5 times. For additional context, \
        please look at the raylet.err on node aa.";
    let failed = job("FAILED", json!({"error_type": "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", "message": message}));
    assert_eq!(
        reason(&failed, &situation).as_deref(),
        Some("its processes ended at their start: ImportError: no Random (random.py)")
    );
    let silent = Situation { startup: Some(StartupFailure::Silent), ..cluster() };
    let said = reason(&failed, &silent).unwrap();
    assert!(said.starts_with("its processes ended at their start, and") && said.contains("raylet.err"), "{said}");
    // Of what cannot be met, that is the reason.
    let demands = vec![demand(Wanting::Command, &[&[("GPU", 8.0)]], &[])];
    let said = reason(&waits, &Situation { demands, ..situation }).unwrap();
    assert!(said.contains("8 GPUs"), "{said}");
}
