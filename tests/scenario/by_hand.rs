//! Workers by hand and by fault: stopped, started, killed, and a drill. Other nodes are not disturbed.

use std::time::Instant;

use serde_json::Value;

use crate::support::{TestEnv, nodes, tagged_processes, turn, until};

const SPEC: &str = "name: hand\nray:\n  workers: {count: 2, cpus: 1}\noversubscribe: true\n";

#[test]
fn workers_are_stopped_started_and_killed_by_hand() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", SPEC);
    env.run(&["up"]).exits(0);

    type Story = (&'static str, fn(&TestEnv));
    let stories: &[Story] = &[
        ("wrong names change nothing", wrong_names_change_nothing),
        ("a stopped worker stays stopped until it is started", a_stopped_worker_stays_stopped_until_it_is_started),
        ("a job runs where its label says and is seen there", a_job_runs_where_its_label_says_and_is_seen_there),
        ("a drill measures how a training goes on", a_drill_measures_how_a_training_goes_on),
        (
            "a killed worker is ready when Ray sends no tasks to the dead",
            a_killed_worker_is_ready_when_ray_sends_no_tasks_to_the_dead,
        ),
        ("up starts what was stopped by hand", up_starts_what_was_stopped_by_hand),
        ("only a worker that leaves a cluster drains", only_a_worker_that_leaves_a_cluster_drains),
    ];
    for (name, story) in stories {
        let begin = Instant::now();
        story(&env);
        println!("{name}: {:.1} s", begin.elapsed().as_secs_f64());
    }
    env.run(&["down", "--yes"]).exits(0);
    assert_eq!(tagged_processes(&env), []);
}

fn wrong_names_change_nothing(env: &TestEnv) {
    let before = nodes(env, "hand");
    for verb in ["stop", "start", "kill"] {
        env.run(&["worker", verb, "head"]).exits(2).says("the head is not a worker").says("gpucl stop -c hand");
        env.run(&["worker", verb, "worker-7"])
            .exits(2)
            .says("has no worker of that name")
            .says("did you mean `worker-");
        env.run(&["worker", verb, "node"]).exits(2).says("there are: worker-0, worker-1");
    }
    env.run(&["drill", "kill-worker", "--worker", "wroker-1"]).exits(2).says("did you mean `worker-1`?");
    assert_eq!(nodes(env, "hand"), before);
}

/// The line of one worker in `worker list`.
fn listed(env: &TestEnv, worker: &str) -> Value {
    let lines = env.run(&["worker", "list", "--output", "json"]).exits(0).json();
    assert_eq!(lines.len(), 2, "{lines:?}");
    lines.into_iter().find(|line| line["worker"] == worker).unwrap()
}

fn a_stopped_worker_stays_stopped_until_it_is_started(env: &TestEnv) {
    let before = nodes(env, "hand");
    env.run(&["worker", "stop", "worker-1"]).exits(0).prints("worker-1 is stopped");
    // A second time there is nothing to do.
    env.run(&["worker", "stop", "worker1"]).exits(0);
    let mut stopped = before.clone();
    assert!(stopped.remove("worker1").is_some());
    assert_eq!(nodes(env, "hand"), stopped, "the other nodes are the same processes");
    let line = listed(env, "worker-1");
    assert_eq!((&line["running"], &line["stopped_by_hand"]), (&false.into(), &true.into()));
    env.run(&["status"]).exits(0).prints("hand: partly").prints("stopped by hand");
    // Its absence is said, and is no failure; what remains is checked.
    let checks = env.run(&["verify"]).exits(0).prints("ready: 8 checks passed");
    let checks =
        checks.says("noted     worker           worker-1   stopped by hand").says("gpucl worker start worker-1");
    assert!(!checks.stderr.contains("FAILED"), "{}", checks.stderr);
    env.run(&["worker", "kill", "worker-1"]).exits(1).says("it does not run: it is stopped");

    env.run(&["worker", "start", "worker-1"]).exits(0).prints("worker-1 runs");
    env.run(&["worker", "start", "worker-1"]).exits(0);
    let mut started = nodes(env, "hand");
    assert!(started.remove("worker1").is_some());
    assert_eq!(started, stopped);
    assert_eq!(listed(env, "worker-1")["stopped_by_hand"], false);
    env.run(&["verify"]).exits(0).prints("ready: 11 checks passed");
}

fn a_job_runs_where_its_label_says_and_is_seen_there(env: &TestEnv) {
    let label = r#"{"gpucl.dev/node": "worker-1"}"#;
    env.run(
        &["job", "submit", "--no-wait", "--id", "there", "--entrypoint-label-selector", label]
            .iter()
            .copied()
            .chain(["--entrypoint-num-cpus", "1", "--", "sleep", "300"])
            .collect::<Vec<_>>(),
    )
    .exits(0);
    let job = until("the job holds its CPU", 60, || {
        let jobs = env.run(&["job", "list", "--output", "json"]).exits(0).json();
        jobs.into_iter().find(|job| job["id"] == "there" && job["holds"]["CPU"] == 1.0 && !job["node"].is_null())
    });
    assert_eq!((&job["node"], &job["nodes"]), (&"worker-1".into(), &serde_json::json!(["worker-1"])));
    env.run(&["job", "list"]).exits(0).prints("  1 CPU  worker-1  sleep 300");
    let rows = env.run(&["top", "--output", "json"]).exits(0).json();
    let with_job: Vec<&Value> = rows.iter().filter(|row| row["jobs"] == serde_json::json!(["there"])).collect();
    assert!(matches!(with_job[..], [row] if row["node"] == "worker-1"), "{rows:?}");
    env.run(&["top"]).exits(0).prints("  there");
    // A drill does not cost anybody a job.
    let before = nodes(env, "hand");
    let _ = env
        .run(&["drill", "kill-worker", "--worker", "worker-1"])
        .exits(2)
        .says("other jobs run on it, and would lose what they do there: there")
        .says("--force");
    assert_eq!(nodes(env, "hand"), before);
    env.run(&["job", "stop", "there"]).exits(0);
}

fn a_drill_measures_how_a_training_goes_on(env: &TestEnv) {
    let before = nodes(env, "hand");
    let lines = env.run(&["drill", "kill-worker", "--worker", "worker-1", "--output", "json"]).exits(0).json();
    let drill = lines.iter().find(|line| line["type"] == "drill").unwrap();
    println!("{drill}");
    check_drill(drill);
    assert_eq!((&drill["worker"], &drill["rescheduled_to"]), (&"worker-1".into(), &"worker-0".into()));
    assert_eq!(drill["checks"], 11);
    let after = nodes(env, "hand");
    assert_eq!((&after["head"], &after["worker0"]), (&before["head"], &before["worker0"]), "others are not disturbed");
    assert_ne!(after["worker1"], before["worker1"]);
    // The checkpoints are gone, and so is what it held.
    env.run(&["exec", "--", "sh", "-c", "ls $GPUCL_DATA"]).exits(0).is("");
    let job = env.run(&["job", "status", drill["job"].as_str().unwrap(), "--output", "json"]).exits(0).json();
    assert_eq!(job[0]["status"], "SUCCEEDED");
}

/// A drill must have gone on from a checkpoint, after the fault and not before.
pub(crate) fn check_drill(drill: &Value) {
    let seconds = |name: &str| drill[name].as_f64().unwrap_or_else(|| panic!("no {name}: {drill}"));
    assert!(seconds("detected_s") <= seconds("rescheduled_s"), "{drill}");
    assert!(seconds("rescheduled_s") <= seconds("resumed_s") && seconds("rescheduled_s") > 0.5, "{drill}");
    assert!(seconds("resumed_s") <= seconds("ended_s") && seconds("back_s") > 0.5, "{drill}");
    // It is killed six steps after its third checkpoint. Of the last one, Ray may not have taken note; on a busy machine,
    // the next one is there before the kill, and no step is lost.
    assert!(drill["checkpoint"].as_u64().unwrap() >= 2, "{drill}");
    assert!(drill["steps_lost"].as_u64().unwrap() <= 20, "{drill}");
    assert_eq!(drill["result"], "SUCCEEDED");
}

fn up_starts_what_was_stopped_by_hand(env: &TestEnv) {
    env.run(&["worker", "stop", "worker-0"]).exits(0);
    env.run(&["plan"]).exits(0).is(concat!(
        "#1 project-0, deploy: worker-0 was stopped by hand\n    keep head: it is as it should be\n",
        "    start worker-0: it was stopped by hand\n    keep worker-1: it is as it should be\n"
    ));
    env.run(&["up"]).exits(0).prints("ready: 11 checks passed, 1 operation");
    assert_eq!(listed(env, "worker-0")["stopped_by_hand"], false);
}

fn a_killed_worker_is_ready_when_ray_sends_no_tasks_to_the_dead(env: &TestEnv) {
    let before = nodes(env, "hand");
    env.run(&["worker", "kill", "worker-1"]).exits(0);
    until("the supervisor starts it again", 60, || {
        (nodes(env, "hand").get("worker1")? != &before["worker1"]).then_some(())
    });
    env.run(&["verify"]).exits(0).prints("ready: 11 checks passed");
    let alive = "import ray; ray.init(); print('alive', sum(node['Alive'] for node in ray.nodes()))";
    env.run(&["job", "submit", "--", "python", "-c", alive]).exits(0).prints("alive 3\n");
}

/// What Ray prints when a node that is asked to end first finishes what it runs, so that others can take over.
pub(crate) const DRAINS: &str = "received SIGTERM. Draining";

fn only_a_worker_that_leaves_a_cluster_drains(env: &TestEnv) {
    let drained = |node: &str| env.run(&["logs", node]).exits(0).stdout.matches(DRAINS).count();
    let before = drained("worker-1");
    env.run(&["worker", "stop", "worker-1"]).exits(0);
    assert_eq!(drained("worker-1"), before + 1);
    env.run(&["up"]).exits(0);
    // A task without an end: nodes that drained would wait for it.
    let task = "import ray, time\nray.init()\nray.get(ray.remote(lambda: time.sleep(600)).remote())";
    env.run(&["job", "submit", "--no-wait", "--id", "endless", "--", "python", "-c", task]).exits(0);
    until("the task to run", 60, || env.run(&["job", "list"]).exits(0).stdout.contains("1 CPU").then_some(()));
    let before = ["head", "worker-0", "worker-1"].map(drained);
    env.run(&["stop"]).exits(0);
    assert_eq!(["head", "worker-0", "worker-1"].map(drained), before);
}
