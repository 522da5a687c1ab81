//! Rounds of an end on hosts that are reached by SSH, with real Ray: right after `up` and the start of a job, every process of
//! ours on the user's machine is killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpucl::sandbox::hosts::{Config, LocalHosts, NewHost};
use gpucl::state::Store;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::slot::{SECRET, StandIn};
use crate::support::{TestEnv, turn, until_or};

/// Each cluster's host has a port of its own; nobody else of the tests has these.
const FIRST_PORT: u16 = 2240;
/// How far the end is when the job starts, at least, and when jobs are asked to save, in seconds before it.
const AWAY: i64 = 95;
const WARNING: u64 = 40;

/// A loop that writes a checkpoint after each step, and the number of the step where no end reaches it. It knows nothing of an
/// end, as most programs.
pub(crate) const TRAIN: &str = r#"import json, os, sys, time
folder, notes = os.environ["GPUCL_DATA"] + "/results/" + sys.argv[1], sys.argv[2]
os.makedirs(folder, exist_ok=True)
step = 0
while True:
    step += 1
    with open(f"{folder}/new.tmp", "w") as file:
        json.dump({"step": step, "weights": list(range(step % 1000))}, file)
    os.replace(f"{folder}/new.tmp", f"{folder}/checkpoint-{step:05}.json")
    with open(f"{folder}/metrics.csv", "a") as file:
        file.write(f"{step},{1 / step}\n")
    with open(f"{notes}.new", "w") as file:
        file.write(str(step))
    os.replace(f"{notes}.new", notes)
    time.sleep(1)
"#;

/// A cluster on a host of its own.
struct Site {
    env: TestEnv,
    runtime: tokio::runtime::Runtime,
    hosts: LocalHosts,
    home: PathBuf,
    node: String,
    name: String,
    port: u16,
    endpoint: String,
}

impl Site {
    fn new(index: u16, store: &StandIn) -> Self {
        let env = TestEnv::with_shared_ray();
        let key = env.root().join("key");
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
        assert!(made.unwrap().success());
        let passes = |name: &str| name.starts_with("PIP_") || name.starts_with("UV_");
        let cache = ("XDG_CACHE_HOME".to_owned(), concat!(env!("CARGO_TARGET_TMPDIR"), "/cache").to_owned());
        let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
        let environment = std::env::vars().filter(|(name, _)| passes(name)).chain([cache, path]).collect();
        let (folder, port) = (env.root().join("hosts"), FIRST_PORT + index);
        let hosts = LocalHosts::new(Config { folder: folder.clone(), port, environment }).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let public = std::fs::read_to_string(key.with_extension("pub")).unwrap().trim().to_owned();
        let new = NewHost { id: "one".to_owned(), public_keys: vec![public], ..NewHost::default() };
        let node = runtime.block_on(hosts.boot(&new)).unwrap().ip().to_string();
        env.write("keys", &format!("[default]\naws_access_key_id = key-id\naws_secret_access_key = {SECRET}\n"));
        env.write("job/train.py", TRAIN);
        let (home, name, endpoint) = (folder.join("one/home"), format!("slot{index}"), store.url.clone());
        Self { env, runtime, hosts, home, node, name, port, endpoint }
    }

    fn write_spec(&self, deadline_s: i64) {
        let Self { name, node, port, endpoint, .. } = self;
        let key = self.env.root().join("key").display().to_string();
        let spec = format!(
            "name: {name}\nprovider: ssh\nruntime: native\ntimeouts: {{start: 6m, ready: 6m}}\ndeadline: {deadline_s}s\n\
             hosts:\n  - {{node: {node}, port: {port}, identity_file: {key}}}\n\
             ray:\n  head: {{object_store_memory: 80MiB}}\n  workers: {{count: 1, cpus: 1, gpus: 0, memory: 300MiB, \
             object_store_memory: 80MiB}}\n\
             end:\n  warning: {WARNING}s\n  save: [{{from: results, to: \"s3://bucket/{name}\"}}]\n  \
             store: {{endpoint: \"{endpoint}\", credentials_file: keys}}\n"
        );
        self.env.write("cluster.yaml", &spec);
    }

    /// The cluster's folder on its host.
    fn folder(&self) -> PathBuf {
        let found = std::fs::read_dir(self.home.join(".gpucl")).unwrap().flatten().find(|entry| entry.path().is_dir());
        found.unwrap().path()
    }

    fn guard(&self) -> Value {
        let text = std::fs::read_to_string(self.folder().join("guard/state.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Brings the cluster up, with an end that is far.
    fn start(&self) {
        let _one_by_one = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_spec(3 * 3600);
        self.env.accept("cluster.yaml");
        let _ = self.env.run(&["up"]).exits(0);
    }

    /// One round; returns a line with what came of it.
    fn round(&self, round: usize, store: &StandIn) -> String {
        let now = || jiff::Timestamp::now().as_second();
        let name = format!("r{round}");
        let notes = self.env.root().join(&name);
        let begin = Instant::now();
        // `up` itself takes a while.
        self.write_spec(now() - begun(&self.env, &self.name) + 10 + AWAY);
        let _ = self.env.run(&["up"]).exits(0);
        let up = begin.elapsed().as_secs();
        let submit = ["job", "submit", "--no-wait", "--working-dir", "job", "--", "python", "train.py", &name];
        let notes_text = notes.display().to_string();
        let _ = self.env.run(&[&submit[..], &[notes_text.as_str()]].concat()).exits(0);
        let killed = kill_all_of(&self.env);
        let step = || std::fs::read_to_string(&notes).ok().and_then(|text| text.parse::<u32>().ok());
        until_or("the job takes a step", 90, &step, || format!("{}", self.guard()));
        let mut seen: BTreeMap<String, Duration> = BTreeMap::new();
        let started = Instant::now();
        until_or(
            "all is saved",
            300,
            || {
                let guard = self.guard();
                let phase = guard["phase"].as_str().unwrap_or_default().to_owned();
                seen.entry(phase.clone()).or_insert_with(|| started.elapsed());
                // On a busy machine the last minutes may begin before the job: what was there before is saved by then.
                let works = |job: &Value| job["status"] == "PENDING" || job["status"] == "RUNNING";
                let is_free = !guard["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(works));
                (is_free && (phase == "saved" || phase == "over")).then_some(())
            },
            || format!("{}", self.guard()),
        );
        let state = self.guard();
        let left = state["end"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second() - now();
        let last = step().unwrap();
        let saved = store.held(&self.name);
        let results = self.folder().join("data/results");
        let own = digests(&results, &results);
        assert_eq!(saved, own, "what is saved is not what is there: {state}");
        let newest = saved.keys().filter(|key| key.starts_with(&format!("{name}/checkpoint-"))).max().unwrap();
        let newest: u32 = newest.rsplit('-').next().unwrap().trim_end_matches(".json").parse().unwrap();
        assert!(newest + 1 >= last && newest > 1, "{newest} of {last}: {state}");
        assert!(state["saved"][0]["complete"].as_bool().unwrap(), "{state}");
        // The pinned Ray has done what it was asked: workers were drained, and the job that went on was stopped.
        assert!(!state["drained"].as_array().unwrap().is_empty(), "{state}");
        assert!(state["jobs"].as_array().unwrap().iter().any(|job| job["stopped"] == true), "{state}");
        let at = |phase: &str| seen.get(phase).map_or_else(|| "-".to_owned(), |at| format!("{} s", at.as_secs()));
        format!(
            "{} round {round}: up {up} s, {killed} processes killed; draining after {}, saving after {}, saved after {}, \
             {left} s before the end; {} files, equal digests; last step {last}, newest checkpoint {newest}",
            self.name,
            at("draining"),
            at("saving"),
            at("saved"),
            saved.len()
        )
    }

    /// The files on the host that hold the secret key of the store, or the name of the user's file.
    fn holders(&self) -> Vec<String> {
        let folder = self.folder();
        let holds = |path: &Path| {
            std::fs::read(path).is_ok_and(|bytes| bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()))
        };
        let held = walk(&folder).into_iter().filter(|path| holds(path));
        held.map(|path| path.strip_prefix(&folder).unwrap().display().to_string()).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        kill_all_of(&self.env);
        self.runtime.block_on(self.hosts.end("one")).ok();
    }
}

/// When a cluster began, in seconds.
pub(crate) fn begun(env: &TestEnv, cluster: &str) -> i64 {
    let known = Store::open(&env.paths(), &cluster.parse().unwrap()).unwrap().unwrap();
    known.state().begun.unwrap().as_second()
}

/// Kills every process of ours on the user's machine; returns how many there were.
pub(crate) fn kill_all_of(env: &TestEnv) -> usize {
    let home = format!("HOME={}", env.home().display());
    let is_ours = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).split('\0').any(|variable| variable == home)
    };
    let names = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let pids: Vec<u32> = names.filter_map(|name| name.parse().ok()).filter(is_ours).collect();
    pids.iter().for_each(|pid| _ = Command::new("kill").args(["-9", &pid.to_string()]).status());
    pids.len()
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>());
    let of = |path: PathBuf| match (path.is_symlink(), path.is_dir()) {
        (true, _) => Vec::new(),
        (false, true) => walk(&path),
        (false, false) => vec![path],
    };
    entries.unwrap_or_default().into_iter().flat_map(of).collect()
}

fn digests(folder: &Path, below: &Path) -> BTreeMap<String, String> {
    let digest =
        |path: &Path| Sha256::digest(std::fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = |path: &Path| path.strip_prefix(below).unwrap().display().to_string();
    // What a job had not finished when it was stopped.
    let files = walk(folder).into_iter().filter(|path| !path.to_string_lossy().ends_with(".tmp"));
    files.map(|path| (name(&path), digest(&path))).collect()
}

/// Ray gives up where several clusters start at the same time on two cores.
static STARTS: Mutex<()> = Mutex::new(());

/// So many clusters side by side, with so many rounds each.
fn rounds(clusters: u16, each: usize) {
    let root = tempfile::tempdir().unwrap();
    let store = StandIn::of_store(root.path());
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for index in 0..clusters {
            let store = &store;
            scope.spawn(move || {
                let site = Site::new(index, store);
                site.start();
                for round in 0..each {
                    println!("{} ({} s)", site.round(round, store), begin.elapsed().as_secs());
                }
                assert_eq!(site.holders(), ["secrets/end_credentials"], "the store's key is in other files");
                let _ = site.env.run(&["down", "--yes"]).exits(0);
                assert!(!site.home.join(".gpucl").exists() || walk(&site.home.join(".gpucl")).is_empty());
            });
        }
    });
}

/// The end of a host comes while nothing of ours runs on the user's machine.
#[test]
#[ignore = "testbed"]
fn an_end_without_the_user_s_machine_saves_all_but_one_step() {
    let _turn = turn();
    rounds(1, 1);
}

/// The same again and again, each time after the end before was called off by a later deadline.
#[test]
#[ignore = "by hand: just end-rounds"]
fn twenty_ends_without_the_user_s_machine_save_all_but_one_step() {
    rounds(4, 5);
}
