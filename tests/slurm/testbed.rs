//! The testbed, started once; and what is left on it.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::{Outcome, TestEnv, until, until_or};

/// The output of `testbed/slurm/up`.
pub(super) fn testbed() -> &'static Value {
    static UP: OnceLock<Value> = OnceLock::new();
    UP.get_or_init(|| {
        let output = up().output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let end: Vec<&str> = stderr.lines().rev().take(30).collect();
        assert!(output.status.success(), "testbed/slurm/up: {end:#?}");
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    })
}

/// Starts again what a test has ended.
pub(super) fn again() {
    let output = up().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The command that starts what is missing; with accounting, if a variable asks for it.
fn up() -> Command {
    let mut command = Command::new(folder().join("up"));
    if std::env::var_os("GPUCL_SLURM_ACCOUNTING").is_some() {
        command.arg("--accounting");
    }
    command
}

fn folder() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/slurm").into()
}

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// One test at a time has the cluster, of all checkouts.
pub(super) struct Turn(File);

/// Takes the cluster, without jobs and files of an aborted test.
pub(super) fn turn() -> Turn {
    let _ = testbed();
    let file = File::create(std::env::temp_dir().join("gpucl-slurm-tests.lock")).unwrap();
    file.lock().unwrap();
    clear();
    Turn(file)
}

impl Drop for Turn {
    fn drop(&mut self) {
        clear();
        let _ = self.0.unlock();
    }
}

/// Ends all jobs of the testbed's users that have a tag, and removes their folders and what an aborted test left on nodes.
fn clear() {
    for user in ["ada", "bob"] {
        let _ = login(
            user,
            "squeue -h -u $(id -un) -o '%i %j' | sed -n 's/ gpucl-.*//p' | xargs -r scancel; \
             n=0; while squeue -h -u $(id -un) -o %j | grep -q gpucl- && [ $n -lt 60 ]; do n=$((n + 1)); sleep 0.5; done; \
             rm -rf ~/.gpucl ~/results",
        );
    }
    for node in NODES {
        // A node may be down: a test ended it.
        let find = "find /localscratch /tmp /dev/shm -mindepth 1 -delete";
        let _ = Command::new(folder().join("exec")).args([node, "sh", "-c", find]).output();
    }
}

/// Runs a command on the login machine; returns what it printed.
#[track_caller]
pub(super) fn login(user: &str, command: &str) -> String {
    let output = Command::new(folder().join("login")).args([user, command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command on a machine of the cluster as root; returns what it printed.
#[track_caller]
pub(super) fn on(machine: &str, command: &str) -> String {
    let output = Command::new(folder().join("exec")).args([machine, "sh", "-c", command]).output().unwrap();
    assert!(output.status.success(), "{command} on {machine}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is left of anybody's clusters: jobs, files in home folders, processes and files on nodes.
pub(super) fn left() -> Vec<String> {
    let mut left = Vec::new();
    for user in ["ada", "bob"] {
        let jobs = login(user, "squeue -h -u $(id -un) -o '%i %T %j' | grep gpucl- || true");
        left.extend(jobs.lines().map(|job| format!("job {job}")));
        left.extend(login(user, "ls -d ~/.gpucl 2>/dev/null || true").lines().map(str::to_owned));
    }
    for node in NODES {
        let files = on(node, "find /localscratch /tmp /dev/shm -mindepth 1 -maxdepth 2 2>/dev/null");
        left.extend(files.lines().map(|file| format!("{node}:{file}")));
        let processes = on(node, "ps -eo user:20,args | grep -E '^(ada|bob) ' || true");
        left.extend(processes.lines().map(|line| format!("{node}: {line}")));
    }
    left
}

/// Waits until nothing of anybody's is left.
#[track_caller]
pub(super) fn nothing_is_left() {
    until_or("nothing is left", 30, || left().is_empty().then_some(()), || left().join("\n"));
}

/// The settings of the provider for one of the testbed's users, with more of them.
pub(super) fn settings(user: &str, more: &Value) -> Value {
    let mut settings = json!({
        "name": "slurm",
        "host": testbed()["login"],
        "user": user,
        "identity_file": testbed()["identity"],
        "host_key": testbed()["host_key"],
        "hours": 0.5,
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

/// How the testbed's own guide has Python: from modules and the site's wheels.
pub(super) fn python() -> Value {
    json!({ "modules": ["python/3.12", "gcc/9.3.0", "arrow/23.0.0"], "packages": "site" })
}

/// Writes a spec with these settings of the provider, and so many nodes.
pub(super) fn spec(env: &TestEnv, name: &str, settings: &Value, nodes: usize, more: &Value) -> PathBuf {
    let hosts: Vec<Value> = (0..nodes).map(|_| json!({})).collect();
    let mut spec = json!({
        "name": name,
        "runtime": "native",
        "provider": settings,
        "hosts": hosts,
        "timeouts": { "ready": "8m", "start": "6m" },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    env.write(&format!("{name}.yaml"), &spec.to_string())
}

/// A folder of environments with the testbed's ready Ray in it, so that a test need not install one. It stays.
pub(super) fn ready_environments(user: &str) -> String {
    login(
        user,
        "e=~/ready/environments/ray-2.60.0-py3.12; mkdir -p $e && ln -sfn /opt/ray/* $e/ && \
         printf 'ray 2.60.0\\nextras default,train,tune,serve\\n' >$e/.complete",
    );
    // Not a folder of the home itself, where files of the user's own may be: it would be asked about.
    format!("/home/{user}/ready/environments")
}

/// The path of a spec whose Ray is there already, with these settings of the provider beside it.
pub(super) fn with_ready_ray(env: &TestEnv, name: &str, nodes: usize, more: &Value) -> String {
    with_ready_ray_and(env, name, nodes, more, &json!({}))
}

/// The same, with more keys of the spec.
pub(super) fn with_ready_ray_and(env: &TestEnv, name: &str, nodes: usize, more: &Value, keys: &Value) -> String {
    let mut all = json!({ "cpus": 2, "memory": "6GiB", "environment": ready_environments("ada") });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut spec_keys = json!({ "ray": { "workers": { "per": "host" } } });
    spec_keys.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    spec(env, name, &settings("ada", &all), nodes, &spec_keys).display().to_string()
}

/// Waits until the agent has taken a cluster down, since its end has come; what `status` says then.
pub(super) fn taken_down(env: &TestEnv, name: &str) -> Outcome {
    until("the cluster is taken down", 60, || {
        let outcome = env.run(&["status", "-c", name]);
        (outcome.code == Some(6) && outcome.stderr.contains("it was taken down at ")).then_some(outcome)
    })
}
