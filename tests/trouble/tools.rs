//! Helpers that break a machine, and inspect it.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Outcome, TestEnv, short_folders};

/// A spec of one small worker, whose name is `t`.
/// With CPUs given, a further worker changes nothing for the first: without, they would share the host anew.
pub(super) const SPEC: &str = "name: t\nray: {workers: {count: 1, cpus: 1}}\n";
/// A launcher of nodes that never becomes Ray.
pub(super) const SLEEPER: &str = "import sys, time\nprint('asleep', sys.argv[1:], flush=True)\ntime.sleep(900)\n";
/// A spec for nodes that never become Ray: it is not waited for them.
pub(super) const SLEEPERS: &str = "name: t\nray: {workers: {count: 1}}\ntimeouts: {start: 1s}\n";

/// Polls until there is a value, with a timeout in seconds.
#[track_caller]
pub(super) fn until<T>(what: &str, seconds: u64, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(seconds), "{what} did not happen within {seconds} s");
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// All processes that have to do with this environment: by their command, their environment, or where they work.
pub(super) fn processes(env: &TestEnv) -> Vec<(u32, String)> {
    let root = env.root().to_str().unwrap().as_bytes().to_vec();
    let holds = |bytes: &[u8]| bytes.windows(root.len()).any(|window| window == root);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let place = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let command = read("cmdline");
        if holds(&command) || holds(&read("environ")) || holds(place.as_os_str().as_encoded_bytes()) {
            found.push((pid, String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

/// The first process whose command line holds this text.
pub(super) fn process(env: &TestEnv, text: &str) -> Option<u32> {
    processes(env).into_iter().find(|(_, command)| command.contains(text)).map(|(pid, _)| pid)
}

pub(super) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Whether a process of this number runs; one that ended and was not yet collected does not.
pub(super) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Ends a process at once and waits until it is gone.
#[track_caller]
pub(super) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
    until("the end of a killed process", 10, || (!runs(pid)).then_some(()));
}

/// Ends everything of an environment at once.
#[track_caller]
pub(super) fn kill_all(env: &TestEnv) {
    until("the end of all processes", 20, || {
        let left = processes(env);
        for (pid, _) in &left {
            let _ = kill_process(Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap(), Signal::KILL);
        }
        left.iter().all(|(pid, _)| !runs(*pid)).then_some(())
    });
}

/// What `status` says of a cluster, in its form for programs.
#[track_caller]
pub(super) fn status(env: &TestEnv) -> Value {
    let outcome = env.run(&["status", "-c", "t", "--output", "json"]).exits(0);
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// The main process of each node.
#[track_caller]
pub(super) fn pids(env: &TestEnv) -> Vec<u64> {
    status(env)["nodes"].as_array().unwrap().iter().filter_map(|node| node["pid"].as_u64()).collect()
}

/// The supervisor's process.
pub(super) fn supervisor(env: &TestEnv) -> Option<u32> {
    process(env, "/host.py supervise ")
}

pub(super) fn state_folder(env: &TestEnv) -> PathBuf {
    env.home().join(".local/state/gpucl/clusters/t")
}

/// All files below a folder with what is in them.
pub(super) fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

/// Changes the cluster's state as a text, snapshot and journal.
pub(super) fn edit_state(env: &TestEnv, edit: impl Fn(String) -> String) {
    for (path, bytes) in contents(&state_folder(env)) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("snapshot") || name.starts_with("journal") {
            std::fs::write(&path, edit(String::from_utf8(bytes).unwrap())).unwrap();
        }
    }
}

/// `down` removes the cluster `t`, and nothing of it is left: no process, no state, no host, no socket, no claim.
#[track_caller]
pub(super) fn down_leaves_nothing(env: &TestEnv) -> Outcome {
    let outcome = env.run(&["down", "-c", "t"]).exits(0).prints("nothing of t is left");
    nothing_left(env);
    env.run(&["down", "-c", "t"]).exits(6).says("no cluster of that name is known");
    outcome
}

/// Nothing of any cluster is left.
#[track_caller]
pub(super) fn nothing_left(env: &TestEnv) {
    assert_eq!(processes(env), [], "processes are left");
    for folder in [".local/state/gpucl/clusters", ".local/state/gpucl/locks", ".local/share/gpucl/hosts"] {
        assert_eq!(contents(&env.home().join(folder)), [], "files are left in {folder}");
    }
    assert!(!env.root().join("run/gpucl").exists(), "{:?}", contents(&env.root().join("run")));
    assert_eq!(short_folders(env.root()), Vec::<PathBuf>::new());
}

/// Puts a launcher of nodes before the built-in one, as a user may.
pub(super) fn node_script(env: &TestEnv, text: &str) {
    env.own("templates/ray-native/node.py", text);
}

/// Makes the preparation stop at a gate: it makes the file `at-gate`, and goes on when there is a file `open`.
pub(super) fn gate(env: &TestEnv) {
    let built_in = include_str!("../../playbooks/ray-native.yaml");
    let (at, open) = (env.root().join("at-gate"), env.root().join("open"));
    let step = format!(
        "steps:\n  - name: wait at the gate\n    timeout: 2m\n    run: |\n      touch {}\n      while [ ! -e {} ]; do sleep 0.1; done\n\n",
        at.display(),
        open.display()
    );
    let text = built_in.replacen("steps:\n", &step, 1);
    assert_ne!(text, built_in);
    env.own("playbooks/ray-native.yaml", &text);
}

#[track_caller]
pub(super) fn wait_at_gate(env: &TestEnv) {
    until("the preparation came to the gate", 30, || env.root().join("at-gate").exists().then_some(()));
}

pub(super) fn open_gate(env: &TestEnv) {
    std::fs::write(env.root().join("open"), "").unwrap();
}

/// A PATH with the usual tools but only the Python and the `uv` that these scripts are.
pub(super) fn tools(env: &mut TestEnv, python3: Option<&str>, uv: Option<&str>) {
    let bin = env.root().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for entry in ["/usr/bin", "/bin"].into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !name.starts_with("python") && !["uv", "uvx"].contains(&name.as_str()) && !bin.join(&name).is_symlink() {
            symlink(entry.path(), bin.join(name)).unwrap();
        }
    }
    for (name, text) in [("python3", python3), ("uv", uv)] {
        if let Some(text) = text {
            std::fs::write(bin.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    env.set("PATH", bin.to_str().unwrap());
}

/// The real Python of this machine, by its path.
pub(super) fn real_python() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&folders).map(|folder| folder.join("python3")).find(|path| path.is_file());
    found.unwrap()
}

/// A command that runs beside the test.
pub(super) struct Running {
    child: Child,
    stderr: PathBuf,
}

impl Running {
    pub(super) fn start(env: &TestEnv, arguments: &[&str]) -> Self {
        let stderr = env.root().join(format!("stderr-{}", arguments[0]));
        let (out, err) = (File::create(env.root().join("stdout")).unwrap(), File::create(&stderr).unwrap());
        Self { child: env.command(arguments).stdout(out).stderr(err).spawn().unwrap(), stderr }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ctrl-C.
    pub(super) fn interrupt(&self) {
        signal(self.pid(), Signal::INT);
    }

    pub(super) fn text(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits until it says this.
    #[track_caller]
    pub(super) fn says(&self, text: &str, seconds: u64) {
        until(&format!("`{text}` in what it said"), seconds, || self.text().contains(text).then_some(()));
    }

    /// Waits for its end; returns its exit code and what it said.
    #[track_caller]
    pub(super) fn end(mut self, seconds: u64) -> Outcome {
        let status = until("its end", seconds, || self.child.try_wait().unwrap());
        Outcome { code: status.code(), stdout: String::new(), stderr: self.text() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
