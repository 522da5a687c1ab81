//! The supervisor dies; the next one adopts its processes.

use super::tools::{
    SLEEPER, SLEEPERS, down_leaves_nothing, kill, node_script, nothing_left, pids, process, processes, supervisor,
    until,
};
use crate::support::{Hidden, TestEnv};

/// What the reaper of a node has written down.
fn record(env: &TestEnv, key: &str) -> String {
    let host = std::fs::read_dir(env.home().join(".local/share/gpucl/hosts")).unwrap().next().unwrap().unwrap();
    std::fs::read_to_string(host.path().join("processes").join(key)).unwrap()
}

/// Every process of the cluster is recognizable as one, even with a changed title: `down` relies on it.
#[track_caller]
fn all_are_recognized(env: &TestEnv) {
    until("all processes are recognized", 20, || {
        let marked = |pid: &u32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environ).split('\0').any(|line| line.starts_with("GPUCL_HOST=gpucl-"))
        };
        let there: Vec<u32> = processes(env).into_iter().map(|(pid, _)| pid).collect();
        (there.len() > 10 && there.iter().all(marked)).then_some(())
    });
    assert!(process(env, "ray::DashboardAgent").is_some(), "the processes with titles are among them");
}

/// A supervisor that is killed is missed by no node, and started again. Leaves the cluster as it was.
pub(super) fn the_supervisor_is_killed(env: &TestEnv) {
    all_are_recognized(env);
    let nodes = pids(env);
    kill(supervisor(env).unwrap());

    let _ = env.run(&["status"]).exits(0).prints("t: ready since").prints("supervisor  exited");
    assert_eq!(pids(env), nodes, "nodes go on");
    let _ = env.run(&["verify"]).exits(0).prints("ready: 8 checks passed");
    let plan = env.run(&["plan"]).exits(0);
    let keeps = "    keep head: it is as it should be\n    keep worker-0: it is as it should be\n";
    assert_eq!(plan.stdout, format!("#1 project-0, deploy: supervisor is exited\n{keeps}"));
    let _ = env.run(&["up"]).exits(0).prints("ready: 8 checks passed, 1 operation (");
    assert_eq!(pids(env), nodes);
    assert!(supervisor(env).is_some());
}

/// With its reaper killed as well, nobody lives who saw what a job has started. Ends with `down`.
pub(super) fn the_supervisor_and_a_reaper_are_killed(env: &TestEnv) {
    let hidden = Hidden::by_a_job(env, "t", "hides-again");
    kill(supervisor(env).unwrap());
    std::thread::sleep(std::time::Duration::from_secs(1));
    let in_group = record(env, "head").contains("\ngroup ");
    kill(u32::try_from(pids(env)[0]).unwrap());
    let down = env.run(&["down", "-c", "t"]).exits(0);
    assert_eq!(hidden.running(), [0; 0], "what a job has hidden survived `down`");
    nothing_left(env);
    // A control group holds everything; without one `down` claims no more than it knows.
    let claims =
        [("nothing of t is left", in_group), ("unknown: whether a job left a process behind on head", !in_group)];
    for (claim, is_made) in claims {
        assert_eq!(down.stdout.contains(claim), is_made, "{claim}: {}", down.stdout);
    }
}

/// The environment of the shell that runs `up` stays there: cloud keys and foreign tokens reach no process.
#[test]
fn no_cluster_process_inherits_secrets_from_the_shell_of_up() {
    let mut env = TestEnv::with_shared_ray();
    let secrets = [
        ("AWS_SECRET_ACCESS_KEY", "only-the-shells-1"),
        ("OS_PASSWORD", "only-the-shells-2"),
        ("LAMBDA_API_KEY", "only-the-shells-3"),
        ("HF_TOKEN", "only-the-shells-4"),
        ("GPUCL_CLUSTER_TOKEN", "only-the-shells-5"),
    ];
    for (name, value) in secrets {
        env.set(name, value);
    }
    // Installers may need it; jobs get only the address.
    env.set("HTTPS_PROXY", "http://me:only-for-installers@127.0.0.1:9");
    let _ = env.write("cluster.yaml", SLEEPERS);
    node_script(&env, SLEEPER);
    let environ = |pid: &u32| {
        let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    // During `up` every process except gpucl itself is inspected repeatedly.
    let quiet = std::process::Stdio::null;
    let mut up = env.command(&["up"]).stdout(quiet()).stderr(quiet()).spawn().unwrap();
    let mut looked = std::collections::BTreeSet::new();
    // A child of gpucl is gpucl itself until it has started its program.
    let program = std::fs::canonicalize(env!("CARGO_BIN_EXE_gpucl")).unwrap();
    let is_gpucl = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    while up.try_wait().unwrap().is_none() {
        for (pid, command) in processes(&env).iter().filter(|(pid, _)| !is_gpucl(pid)) {
            assert!(!environ(pid).contains("only-the-shells"), "{command}: {}", environ(pid));
            looked.insert(*pid);
        }
    }
    let runs = processes(&env);
    assert!(runs.len() >= 3 && runs.iter().all(|(pid, _)| !environ(pid).contains("only-the-shells")), "{runs:?}");
    for (pid, command) in &runs {
        let environ = environ(pid);
        assert!(!environ.contains("only-for-installers"), "{command}: {environ}");
        assert!(environ.contains("HTTPS_PROXY=http://127.0.0.1:9"), "{command}: {environ}");
    }
    assert!(looked.len() >= 4, "the programs on the host were looked at: {looked:?}");
    let _ = down_leaves_nothing(&env);
}
