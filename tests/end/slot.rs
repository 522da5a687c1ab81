//! A host with a guard, a stand-in of an object store, and one of Ray.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{ask, get, until, until_or};

pub(super) const GUARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/end/guard.py");
const STORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end/store.py");
const RAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end/ray.py");
pub(crate) const SECRET: &str = "the/secret+key";

/// A stand-in: a process that prints its port to a file.
pub(crate) struct StandIn {
    child: Child,
    pub(crate) url: String,
}

impl StandIn {
    /// The one of an object store.
    pub(super) fn of_store(root: &Path) -> Self {
        Self::start(STORE, root, "store")
    }

    fn start(program: &str, root: &Path, name: &str) -> Self {
        let path = root.join(format!("{name}.port"));
        let mut command = Command::new("python3");
        command.args(["-I", "-B", program]).arg(&path);
        Self::listening(command, &path, "127.0.0.1")
    }

    /// The one of an object store at another address, started with what `start` adds to a command line.
    pub(crate) fn of_store_at(address: &str, root: &Path, start: impl Fn(&[&str]) -> Command) -> Self {
        let path = root.join("store.port");
        Self::listening(start(&["python3", "-I", "-B", STORE, &path.display().to_string(), address]), &path, address)
    }

    fn listening(mut command: Command, path: &Path, address: &str) -> Self {
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let port = until("the stand-in listens", 20, || std::fs::read_to_string(path).ok());
        Self { child, url: format!("http://{address}:{port}") }
    }

    /// The digests of what it holds in its bucket below a prefix, by the path below that; without what guards note.
    pub(crate) fn held(&self, below: &str) -> BTreeMap<String, String> {
        let seen = self.seen();
        assert_eq!(seen["bad"], json!([]), "the store was sent what is signed or summed wrongly");
        let own = format!("{below}/");
        let objects = seen["held"]["bucket"].as_object().unwrap().iter();
        objects
            .filter_map(|(key, one)| Some((key.strip_prefix(&own)?.to_owned(), one["sha256"].as_str()?.to_owned())))
            .filter(|(key, _)| !key.contains(".gpucl/"))
            .collect()
    }

    pub(super) fn control(&self, value: &Value) {
        let (status, said) = ask("POST", &format!("{}/-/control", self.url), &[], &value.to_string()).unwrap();
        assert_eq!(status, 200, "{said}");
    }

    /// What it holds, and what it was asked for.
    pub(super) fn seen(&self) -> Value {
        serde_json::from_str(&get(&format!("{}/-/seen", self.url), &[]).unwrap().1).unwrap()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host's folder, its guard if one runs, and what the guard talks to.
pub(super) struct Slot {
    pub(super) root: tempfile::TempDir,
    store: StandIn,
    ray: Option<StandIn>,
    guard: Option<Child>,
    settings: Value,
}

impl Slot {
    /// A host that saves these things.
    pub(super) fn new(save: &[(&str, &str)]) -> Self {
        let root = tempfile::Builder::new().prefix("gpucl-test-end-").tempdir().unwrap();
        let store = StandIn::start(STORE, root.path(), "store");
        let mut slot = Self { root, store, ray: None, guard: None, settings: Value::Null };
        let home = slot.home();
        std::fs::create_dir_all(home.join("data")).unwrap();
        std::fs::write(
            home.join("keys"),
            format!("[default]\naws_access_key_id = key-id\naws_secret_access_key = {SECRET}\n"),
        )
        .unwrap();
        let at = json!({"endpoint": slot.store.url, "region": "us-east-1", "credentials": home.join("keys")});
        let save: Vec<Value> = save
            .iter()
            .map(|(from, to)| json!({"from": from, "to": to.replace("HOME", home.to_str().unwrap())}))
            .collect();
        slot.settings = json!({
            "v": 1, "host": "host0", "leads": true, "hosts": 1, "home": home, "data": home.join("data"), "warning_s": 60,
            "then": "down", "save": save, "stores": {"own": at, "outside": at}, "ray": null, "idle": null, "jupyter": null,
        });
        slot.set(&json!({}));
        slot
    }

    /// The same with a stand-in of Ray, which has two workers.
    pub(super) fn with_ray(save: &[(&str, &str)]) -> Self {
        let mut slot = Self::new(save);
        let ray = StandIn::start(RAY, slot.root.path(), "ray");
        std::fs::write(slot.home().join("token"), "the-token\n").unwrap();
        let program = slot.root.path().join("ray");
        std::fs::write(&program, format!("#!/bin/sh\nexec python3 -I -B {RAY} drain {} \"$@\"\n", ray.url)).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        slot.set(&json!({"ray": {"gcs": "127.0.0.1:6379", "dashboard": ray.url, "token": slot.home().join("token"), "ray": program}}));
        slot.ray = Some(ray);
        slot
    }

    /// The host's folder; a blank and a quote in its path must not matter.
    pub(super) fn home(&self) -> PathBuf {
        self.root.path().join("it's home")
    }

    /// Sets keys of `guard.json`.
    pub(super) fn set(&mut self, keys: &Value) {
        for (name, value) in keys.as_object().unwrap() {
            self.settings[name] = value.clone();
        }
        std::fs::write(self.home().join("guard.json"), self.settings.to_string()).unwrap();
    }

    /// Writes a file of a job.
    pub(super) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.home().join("data").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// What goes wrong with the store.
    pub(super) fn store(&self, faults: &Value) {
        self.store.control(faults);
    }

    /// What the store was asked for.
    pub(super) fn seen(&self) -> Value {
        self.store.seen()
    }

    /// What a bucket holds, without what the guard notes there: digests by keys.
    pub(super) fn held(&self) -> BTreeMap<String, String> {
        let seen = self.seen();
        assert_eq!(seen["bad"], json!([]), "it was sent what is signed or summed wrongly");
        let objects = seen["held"]["bucket"].as_object().unwrap();
        let own = objects.iter().filter(|(key, _)| !key.contains("/.gpucl/saved-"));
        own.map(|(key, one)| (key.clone(), one["sha256"].as_str().unwrap().to_owned())).collect()
    }

    /// How often each object was written, without what the guard notes.
    pub(super) fn written(&self) -> BTreeMap<String, u64> {
        let seen = self.seen();
        let written = seen["written"].as_object().unwrap().iter();
        written
            .filter(|(key, _)| !key.contains("/.gpucl/saved-"))
            .map(|(key, count)| (key.clone(), count.as_u64().unwrap()))
            .collect()
    }

    /// Changes what the stand-in of Ray has.
    pub(super) fn ray(&self, value: &Value) {
        self.ray.as_ref().unwrap().control(value);
    }

    /// What the stand-in of Ray was asked for.
    pub(super) fn ray_seen(&self) -> Value {
        self.ray.as_ref().unwrap().seen()
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new("python3");
        command.args(["-I", "-B", GUARD, verb]).arg(self.home()).env_remove("HTTPS_PROXY").env_remove("HTTP_PROXY");
        command
    }

    /// Saves everything once; returns the exit code and the state.
    pub(super) fn save(&self) -> (i32, Value) {
        let (code, state, _) = self.save_and_listen();
        (code, state)
    }

    /// The same, with what it says meanwhile.
    pub(super) fn save_and_listen(&self) -> (i32, Value, String) {
        let output = self.command("save").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains(SECRET) && !said.contains("Traceback"), "{said}");
        let state = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        (output.status.code().unwrap(), state, said)
    }

    /// Says when the end is; returns the state, or what the guard says is wrong.
    pub(super) fn tell(&self, end: &Value) -> Result<Value, String> {
        let path = self.root.path().join("tell.json");
        std::fs::write(&path, end.to_string()).unwrap();
        let output = self.command("tell").stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(serde_json::from_slice(&output.stdout).unwrap()) } else { Err(said) }
    }

    /// Says that the end is in so many seconds.
    pub(super) fn ends_in(&self, seconds: i64, revision: u32) {
        let end = json!({"v": 1, "at": in_seconds(seconds), "left_s": seconds, "why": "a test", "revision": revision});
        self.tell(&end).unwrap();
    }

    /// Runs the guard beside the test.
    pub(super) fn run(&mut self) {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.root.path().join("guard.log")).unwrap();
        self.guard = Some(self.command("run").stdin(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// Runs it, and gives it an end so near that what it takes to start would count, once it does.
    pub(super) fn runs_and_ends_in(&mut self, seconds: i64) {
        self.run();
        self.until_phase("waiting", 10);
        self.ends_in(seconds, 1);
    }

    /// Kills the guard.
    pub(super) fn kill(&mut self) {
        let mut guard = self.guard.take().unwrap();
        guard.kill().unwrap();
        guard.wait().unwrap();
    }

    /// The guard's log.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("guard.log")).unwrap_or_default()
    }

    /// The guard's state.
    pub(super) fn state(&self) -> Value {
        let text = std::fs::read_to_string(self.home().join("guard/state.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Waits for a state that a machine without other work has within so many seconds.
    #[track_caller]
    pub(super) fn until(&self, what: &str, seconds: u64, is_it: impl Fn(&Value) -> bool) -> Value {
        let look = || Some(self.state()).filter(&is_it);
        until_or(what, 4 * seconds, look, || format!("{}\n{}", self.state(), self.log()))
    }

    /// Waits for a phase.
    #[track_caller]
    pub(super) fn until_phase(&self, phase: &str, seconds: u64) -> Value {
        self.until(phase, seconds, |state| state["phase"] == phase)
    }

    /// The manifest of the first thing: digests by names.
    pub(super) fn manifest(&self) -> BTreeMap<String, String> {
        let mut files = std::fs::read_dir(self.home().join("guard/saved")).unwrap().flatten().map(|entry| entry.path());
        let path = files.find(|path| {
            path.file_name().unwrap().to_string_lossy().starts_with("00-") && path.extension().unwrap() == "json"
        });
        let value: Value = serde_json::from_slice(&std::fs::read(path.unwrap()).unwrap()).unwrap();
        let text = |file: &Value, name: &str| file[name].as_str().unwrap().to_owned();
        value["files"].as_array().unwrap().iter().map(|file| (text(file, "name"), text(file, "sha256"))).collect()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.guard.is_some() {
            self.kill();
        }
    }
}

/// The time in so many seconds, as RFC 3339.
pub(super) fn in_seconds(seconds: i64) -> String {
    let now = jiff::Timestamp::now().as_second();
    jiff::Timestamp::from_second(now + seconds).unwrap().to_string()
}

/// The SHA-256 of bytes.
pub(super) fn digest(bytes: impl AsRef<[u8]>) -> String {
    gpucl::util::digest::whole(bytes.as_ref())
}

/// Bytes that are not the same from part to part.
pub(super) fn noise(count: u32, seed: u32) -> Vec<u8> {
    (0..count)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (number >> 20) as u8 ^ seed as u8)
        .collect()
}
