//! The costs of a cluster and its limits: shown before, during and after, and enforced without a running command.

mod deadline;
mod ending;
mod idle;
mod news;
mod shown;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use gpucl::name::Key;
use gpucl::state::{ClusterState, ItemKind, Record};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::chameleon::site::Site;
use crate::support::{Outcome, TestEnv, until, until_or};

/// The promised maximum time between reaching a limit and the end of the cluster.
const ACTS_WITHIN: u64 = 60;

/// The state folder of the cluster that tests bring up.
fn folder(env: &TestEnv) -> PathBuf {
    env.home().join(".local/state/gpucl/clusters/demo")
}

/// The record that the agent of the limits keeps of itself.
fn watcher(env: &TestEnv) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(folder(env).join("deadline-agent.json")).ok()?).ok()
}

/// What the agent has written, and its last `gpucl down`.
fn log(env: &TestEnv) -> String {
    let read = |name: &str| std::fs::read_to_string(folder(env).join(name)).unwrap_or_default();
    format!("{}\n{}", read("deadline.log"), read("deadline-down.jsonl"))
}

/// The agent's process, while it runs.
fn pid(env: &TestEnv) -> Option<Pid> {
    let process = watcher(env)?["process"].as_str()?.to_owned();
    let pid = process.split(':').next()?.parse::<i32>().ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_it = String::from_utf8_lossy(&command).contains("--deadline");
    Pid::from_raw(pid).filter(|_| is_it)
}

#[track_caller]
fn signal(env: &TestEnv, signal: Signal) -> Pid {
    let pid = pid(env).unwrap();
    kill_process(pid, signal).unwrap();
    pid
}

/// Waits until another agent than the one that was killed runs.
#[track_caller]
fn started_again(env: &TestEnv, killed: Pid) {
    until_or("what was started again", 10, || pid(env).filter(|new| *new != killed), || log(env));
}

/// Writes a spec of one host with these limits, and brings it up as far as services without hosts carry it.
#[track_caller]
fn up(site: &Site, limits: &str) -> Outcome {
    let spec = spec(site, limits);
    site.run(&["up", "--yes", &spec]).exits(1).says("failed to connect to host-0")
}

fn spec(site: &Site, limits: &str) -> String {
    site.spec("", &format!("timeouts: {{ boot: 2s }}\n{limits}\n"))
}

/// Waits until the services hold nothing of ours.
#[track_caller]
fn gone_within(site: &Site, seconds: u64) {
    let is_gone = || (site.ours().counts() == [0; 4]).then_some(());
    until_or("nothing of it at the services", seconds, is_gone, || log(&site.env));
}

/// Waits until the services hold nothing of ours and this machine knows nothing of the cluster, with no command
/// running.
#[track_caller]
fn gone(site: &Site) {
    gone_within(site, ACTS_WITHIN);
    until("the cluster's folder is gone", 20, || (!folder(&site.env).exists()).then_some(()));
}

/// Writes down that the nodes run, and were checked.
fn is_ready(env: &TestEnv) {
    let path = folder(env).join("snapshot.json");
    let mut snapshot: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut state: ClusterState = serde_json::from_value(snapshot["state"].clone()).unwrap();
    let (key, now) = (Key::project(0), jiff::Timestamp::now());
    state.apply(Record::Requested { key: key.clone(), kind: ItemKind::Project, digest: String::new() }, now);
    state.apply(Record::Exists { key: key.clone(), id: "project".to_owned() }, now);
    state.apply(Record::Ready { key }, now);
    state.apply(Record::ClusterReady, now);
    snapshot["state"] = serde_json::to_value(state).unwrap();
    std::fs::write(&path, snapshot.to_string()).unwrap();
}

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
