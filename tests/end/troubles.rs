//! What people do by hand in the last minutes, and two clusters on one machine, with real Ray.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::slot::{SECRET, StandIn};
use crate::support::{TestEnv, nodes, tagged_processes, turn, until_or};

/// How long the last minutes are, and how soon they are to begin, in seconds.
const WARNING: u64 = 60;
const SOON: u64 = 15;

/// A cluster of this machine.
struct Cluster<'a> {
    env: &'a TestEnv,
    name: &'a str,
    /// Where it saves `results` to.
    to: String,
    more: String,
    warning: u64,
    begun: Instant,
}

impl<'a> Cluster<'a> {
    /// Brings one up whose end is far.
    fn up(env: &'a TestEnv, name: &'a str, to: &str, more: &str) -> Self {
        Self::with_warning(env, name, to, more, WARNING)
    }

    /// The same with last minutes of this length.
    fn with_warning(env: &'a TestEnv, name: &'a str, to: &str, more: &str, warning: u64) -> Self {
        let cluster = Self { env, name, to: to.to_owned(), more: more.to_owned(), warning, begun: Instant::now() };
        cluster.write_spec(3600);
        env.accept(&cluster.file());
        env.run(&["up", &cluster.file()]).exits(0).prints("ready: ");
        cluster
    }

    fn file(&self) -> String {
        format!("{}.yaml", self.name)
    }

    fn write_spec(&self, deadline: u64) {
        let Self { name, to, more, warning, .. } = self;
        let spec = format!(
            "name: {name}\ndeadline: {deadline}s\ntimeouts: {{start: 4m, ready: 4m}}\nray: {{head: {{object_store_memory: 80MiB}}, \
             workers: {{count: 1, cpus: 1, memory: 300MiB, object_store_memory: 80MiB}}}}\n\
             end: {{warning: {warning}s, save: [{{from: results, to: \"{to}\"}}]{more}}}\n"
        );
        self.env.write(&self.file(), &spec);
    }

    /// Has the end come near, as a changed spec does.
    fn ends_soon(&self) {
        self.write_spec(self.begun.elapsed().as_secs() + self.warning + SOON);
        self.env.run(&["up", &self.file()]).exits(0).prints("ready: ");
    }

    fn host(&self) -> PathBuf {
        let hosts = std::fs::read_dir(self.env.home().join(".local/share/gpucl/hosts")).unwrap();
        let ending = format!("-{}-host0", self.name);
        hosts.flatten().find(|entry| entry.file_name().to_string_lossy().ends_with(&ending)).unwrap().path()
    }

    /// Writes a file as a job would.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.host().join("data/results").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn guard(&self) -> Value {
        let text = std::fs::read_to_string(self.host().join("guard/state.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    #[track_caller]
    fn until_guard(&self, what: &str, is_it: impl Fn(&Value) -> bool) {
        until_or(what, 120, || is_it(&self.guard()).then_some(()), || self.guard().to_string());
    }

    fn is_drained(&self) {
        self.until_guard("its worker is drained", |state| {
            state["drained"].as_array().is_some_and(|all| !all.is_empty())
        });
    }

    fn folder(&self) -> PathBuf {
        self.env.home().join(".local/state/gpucl/clusters").join(self.name)
    }

    /// Waits until nothing of it is left.
    fn is_gone(&self) {
        let log = || std::fs::read_to_string(self.folder().join("deadline.log")).unwrap_or_default();
        until_or("it is taken down", 240, || (!self.folder().exists()).then_some(()), log);
    }
}

/// A store that takes minutes for what a cluster has; and what a spec says of it.
fn slow_store(env: &TestEnv) -> (StandIn, String) {
    let store = StandIn::of_store(env.root());
    env.write("keys", &format!("[default]\naws_access_key_id = key-id\naws_secret_access_key = {SECRET}\n"));
    store.control(&json!({"rate": 400_000}));
    let more = format!(", store: {{endpoint: \"{}\", credentials_file: keys}}", store.url);
    (store, more)
}

#[test]
#[ignore = "by hand: just end-troubles"]
fn two_clusters_on_one_machine_each_save_their_own() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let out = |name: &str| env.root().join("out").join(name);
    let a = Cluster::up(&env, "slot-a", &out("a").display().to_string(), "");
    let b = Cluster::up(&env, "slot-b", &out("b").display().to_string(), "");
    a.write("x", "of a");
    b.write("x", "of b");
    let before = nodes(&env, "slot-b");
    a.ends_soon();
    a.is_drained();
    a.is_gone();
    assert_eq!(std::fs::read_to_string(out("a").join("x")).unwrap(), "of a");
    assert!(!out("b").exists(), "the other cluster was saved, too");
    let guard = b.guard();
    assert_eq!(
        (&guard["phase"], &guard["drained"], &guard["jobs"]),
        (&json!("waiting"), &json!([]), &json!([])),
        "{guard}"
    );
    assert!(!b.host().join("data/.gpucl-end.json").exists());
    assert_eq!(nodes(&env, "slot-b"), before, "nodes of the other cluster were started again");
    env.run(&["verify", "-c", "slot-b"]).exits(0);
    // And the other way round: the first is gone, what it saved stays as it is.
    b.ends_soon();
    b.is_gone();
    assert_eq!(std::fs::read_to_string(out("b").join("x")).unwrap(), "of b");
    assert_eq!(std::fs::read_to_string(out("a").join("x")).unwrap(), "of a");
    assert_eq!(tagged_processes(&env), []);
}

#[test]
#[ignore = "by hand: just end-troubles"]
fn an_up_in_the_last_minutes_starts_nothing_and_a_stop_saves_what_was_written() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let (store, more) = slow_store(&env);
    let cluster = Cluster::with_warning(&env, "slot", "s3://bucket/run1", &more, 150);
    cluster.write("x", "1");
    cluster.write("large.bin", super::slot::noise(80_000_000, 1));
    cluster.ends_soon();
    cluster.is_drained();
    let before = nodes(&env, "slot");
    let guard = cluster.guard();
    let begun = Instant::now();
    let up = env.run(&["up", "slot.yaml"]);
    println!("up: {:?} after {:.0} s\n{}\n{}", up.code, begun.elapsed().as_secs_f64(), up.stdout, up.stderr);
    let _ = up.exits(0).says("its end is near").prints("nothing was changed");
    let drained = |state: &Value| state["drained"].as_array().unwrap().clone();
    assert_eq!(nodes(&env, "slot")["head"], before["head"], "the head was started again");
    let new = drained(&cluster.guard()).len() - drained(&guard).len();
    assert!(new <= 1, "a worker was brought back, and drained again");

    cluster.write("x", "2, written last");
    store.control(&json!({"rate": null}));
    let begun = Instant::now();
    let stop = env.run(&["stop", "-c", "slot"]).exits(0).says("verified");
    println!("stop: {:.0} s\n{}\n{}", begun.elapsed().as_secs_f64(), stop.stdout, stop.stderr);
    assert_eq!(store.held("run1")["x"], super::slot::digest("2, written last"));
    cluster.is_gone();
    assert_eq!(tagged_processes(&env), []);
}

#[test]
#[ignore = "by hand: just end-troubles"]
fn what_a_cluster_has_that_was_stopped_before_is_saved_by_this_machine() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let out = env.root().join("out");
    let cluster = Cluster::up(&env, "slot", &out.display().to_string(), "");
    cluster.write("x", "written");
    let _ = env.run(&["stop", "-c", "slot"]).exits(0).says("only if this machine is on then");
    assert!(!out.join("x").exists());
    // The end comes near, as time goes by.
    let limits = cluster.folder().join("deadline.json");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&limits).unwrap()).unwrap();
    value["after_seconds"] = json!(cluster.begun.elapsed().as_secs() + 40);
    std::fs::write(&limits, value.to_string()).unwrap();
    cluster.is_gone();
    assert_eq!(std::fs::read_to_string(out.join("x")).unwrap(), "written");
    assert_eq!(tagged_processes(&env), []);
}

#[test]
#[ignore = "by hand: just end-troubles"]
fn a_down_while_it_saves_says_what_is_lost_and_waits_for_nothing() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let (store, more) = slow_store(&env);
    let cluster = Cluster::up(&env, "slot", "s3://bucket/run1", &more);
    cluster.write("small", "small");
    cluster.write("large.bin", super::slot::noise(40_000_000, 1));
    cluster.ends_soon();
    cluster.until_guard("it saves", |state| state["saved"][0]["files"].as_u64() > Some(0));
    let begun = Instant::now();
    let down = env.run(&["down", "--yes", "-c", "slot"]).exits(0);
    let took = begun.elapsed();
    println!("down while it saves: {:.0} s\n{}\n{}", took.as_secs_f64(), down.stdout, down.stderr);
    let down =
        down.says("warning: lost with it: results to s3://bucket/run1: ").says("`gpucl save -c slot` saves it first");
    let _ = down.says("lost: results to s3://bucket/run1: ");
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(store.held("run1").contains_key("small"), "what was saved is gone");
    assert_eq!(tagged_processes(&env), []);
}
