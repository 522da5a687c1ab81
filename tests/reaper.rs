//! The processes of a node are found and ended, whatever they did: process trees, without Ray.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use gpucl::provider::Runtime;
use gpucl::runtime;
use gpucl::runtime::project::HostFolders;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::until;

const REAPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/ray-native/reaper.py");

/// A program that hides processes in every way there is, and says so: `env -i`, another session, two forks, another
/// name, and a first thread that ends before the others.
const HIDES: &str = r#"
import ctypes, os, subprocess, sys, threading, time

mark, ready, then = sys.argv[1:4]
subprocess.check_call(["sh", "-c", f"env -i setsid sleep 300.{mark} >/dev/null 2>&1 </dev/null &"])
for number in (1, 2):
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            nothing = os.open("/dev/null", os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            if number == 1:
                os.execve("/bin/sleep", [f"hidden-{mark}", "300"], {})
            # `-c` and the mark stay in the command line for as long as any thread runs.
            end = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
            code = f"import ctypes, threading, time; threading.Thread(target=time.sleep, args=(300,)).start(); ctypes.CDLL(None).syscall({end}, 0)"
            os.execve(sys.executable, ["python", "-c", code, f"hidden-{mark}"], {})
        os._exit(0)
    os.waitpid(child, 0)
time.sleep(0.2)
open(ready, "w").close()
if then == "stays":
    time.sleep(300)
os.kill(os.getpid(), 11) if then == "crashes" else sys.exit(3)
"#;

/// A node of the cluster `t` on this machine, run by its reaper.
struct Node {
    root: tempfile::TempDir,
    reaper: Child,
    mark: String,
}

/// Runs `stop` on the host of this owner's cluster, where nodes may take `seconds` to end; returns its output.
fn stop(root: &Path, owner: &str, seconds: u32) -> String {
    let host = Node::host_in(root, owner);
    std::fs::create_dir_all(host.join("run")).unwrap();
    std::fs::write(host.join("run/.grace"), format!("{seconds}\n")).unwrap();
    std::fs::copy(REAPER, host.join("reaper.py")).unwrap();
    let folders =
        HostFolders { home: host.display().to_string(), environments: String::new(), claim: "claim.json".to_owned() };
    let script = runtime::of(Runtime::Native).stop_script(&format!("gpucl-{owner}-t-host0"), &folders);
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

impl Node {
    /// Starts it, and waits until it has hidden what it hides. `then` is what it does after that: stays, ends or
    /// crashes.
    fn new(then: &str, owner: &str) -> Self {
        let root = tempfile::Builder::new().prefix("gt-").tempdir().unwrap();
        let host = Self::host_in(root.path(), owner);
        std::fs::create_dir_all(&host).unwrap();
        std::fs::write(root.path().join("hides.py"), HIDES).unwrap();
        // A number, as `sleep` takes no other, that no other node of these tests has.
        static NEXT: AtomicU32 = AtomicU32::new(100);
        let mark = format!("{}{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new("python3");
        command.args(["-I", "-B", REAPER, "run"]).arg(&host).args(["worker0", "python3"]);
        command.arg(root.path().join("hides.py")).arg(&mark).arg(root.path().join("ready")).arg(then);
        command
            .env("GPUCL_TAG", format!("gpucl-{owner}-t-worker0"))
            .env("GPUCL_HOST", format!("gpucl-{owner}-t-host0"));
        let reaper = command.stdin(Stdio::null()).spawn().unwrap();
        let node = Self { root, reaper, mark };
        until("it has hidden all", 20, || node.root.path().join("ready").exists().then_some(()));
        node
    }

    fn host_in(root: &Path, owner: &str) -> PathBuf {
        root.join("hosts").join(format!("gpucl-{owner}-t-host0"))
    }

    /// What is hidden and runs, by any of its threads: the first may have ended.
    fn hidden(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for (pid, stat) in gpucl::util::process::table() {
            let (named, slept) = (format!("hidden-{}", self.mark), format!("300.{}", self.mark));
            let lines = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let mut lines = lines.map(|task| std::fs::read(task.path().join("cmdline")).unwrap_or_default());
            let is_it = |line: Vec<u8>| {
                let text = String::from_utf8_lossy(&line).into_owned();
                (text.contains(&named) || text.contains(&slept)) && !text.contains("hides.py")
            };
            if stat.runs && lines.any(is_it) {
                found.push(pid);
            }
        }
        found
    }

    #[track_caller]
    fn hides_three(&self) {
        assert_eq!(self.hidden().len(), 3, "two that sleep, and one whose first thread has ended");
        for pid in self.hidden() {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&environ).contains("GPUCL"));
        }
    }

    fn record(&self) -> String {
        let host = std::fs::read_dir(self.root.path().join("hosts")).unwrap().next().unwrap().unwrap();
        std::fs::read_to_string(host.path().join("processes/worker0")).unwrap_or_default()
    }

    /// Waits until all are written down, and kills the reaper; returns whether a control group holds them.
    fn kill_reaper(&mut self) -> bool {
        until("all are written down", 10, || {
            let record = self.record();
            self.hidden().iter().all(|pid| record.contains(&format!("\nprocess {pid} "))).then_some(())
        });
        let in_group = self.record().contains("\ngroup ");
        self.reaper.kill().unwrap();
        self.reaper.wait().unwrap();
        in_group
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.reaper.kill();
        // Its control group goes as well.
        for host in std::fs::read_dir(self.root.path().join("hosts")).into_iter().flatten().flatten() {
            let _ = Command::new("python3")
                .args(["-I", "-B", REAPER, "end"])
                .arg(host.path())
                .arg("GPUCL_HOST=none")
                .output();
        }
        for pid in self.hidden() {
            let _ = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL);
        }
    }
}

#[test]
fn hidden_processes_end_with_their_node() {
    for (then, code, ended) in [("ends", Some(3), "exit status: 3"), ("crashes", None, "signal: 11")] {
        let mut node = Node::new(then, "abcd1111");
        let status = node.reaper.wait().unwrap();
        assert_eq!(status.code(), code);
        assert!(status.to_string().starts_with(ended), "the reaper ends as its program did: {status}");
        assert_eq!(node.hidden(), [0; 0]);
        assert!(node.record().ends_with("\nover\n"), "{}", node.record());
        assert!(!node.record().contains("\ngroup "), "{}", node.record());
    }
}

#[test]
fn stopping_a_node_ends_all_its_processes() {
    let mut node = Node::new("stays", "abcd1234");
    node.hides_three();
    let waits = std::thread::spawn({
        let mut reaper = std::mem::replace(&mut node.reaper, Command::new("true").spawn().unwrap());
        move || reaper.wait().unwrap().to_string()
    });
    let said = stop(node.root.path(), "abcd1234", 10);
    assert_eq!(node.hidden(), [0; 0]);
    assert!(said.ends_with("::stopped\n") && !said.contains("::unknown"), "{said}");
    // A Python that was asked to end and has no answer of its own ends by the signal.
    assert!(waits.join().unwrap().starts_with("signal: 15"));
}

#[test]
fn a_hanging_reaper_is_ended_with_all_its_processes() {
    let mut node = Node::new("stays", "abcd1235");
    node.hides_three();
    kill_process(Pid::from_child(&node.reaper), Signal::STOP).unwrap();
    let waits = std::thread::spawn({
        let mut reaper = std::mem::replace(&mut node.reaper, Command::new("true").spawn().unwrap());
        move || reaper.wait().unwrap().to_string()
    });
    let said = stop(node.root.path(), "abcd1235", 0);
    assert_eq!(node.hidden(), [0; 0]);
    assert!(said.ends_with("::stopped\n") && !said.contains("::unknown"), "{said}");
    assert!(waits.join().unwrap().starts_with("signal: 9"));
}

#[test]
fn recorded_processes_are_ended_after_their_reaper_died() {
    let mut node = Node::new("stays", "abcd1236");
    node.hides_three();
    let in_group = node.kill_reaper();
    let said = stop(node.root.path(), "abcd1236", 10);
    assert_eq!(node.hidden(), [0; 0]);
    assert!(said.ends_with("::stopped\n"), "{said}");
    assert_eq!(said.contains("::unknown worker0\n"), !in_group, "no more is claimed than is known: {said}");
    let again = stop(node.root.path(), "abcd1236", 10);
    assert_eq!(again.contains("::unknown worker0\n"), !in_group, "it is remembered until the host is gone: {again}");
}

#[test]
fn the_host_program_ends_recorded_processes_too() {
    let mut node = Node::new("stays", "abcd1237");
    node.hides_three();
    let in_group = node.kill_reaper();
    let host = Node::host_in(node.root.path(), "abcd1237");
    let end = || {
        let mut command = Command::new("python3");
        command.args(["-I", "-B", REAPER, "end"]).arg(&host).arg("GPUCL_HOST=gpucl-abcd1237-t-host0");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let unknown = if in_group { "" } else { "::unknown worker0\n" };
    assert_eq!((end().as_str(), node.hidden()), (unknown, vec![]));
    assert_eq!(end(), unknown, "said again until the folder goes");
}

/// A supervisor that is its parent gets what a killed reaper leaves, written down or not.
#[test]
fn a_supervisor_ends_processes_that_a_killed_reaper_left() {
    let root = tempfile::Builder::new().prefix("gt-").tempdir().unwrap();
    let mark = format!("{}99", std::process::id());
    let folder = Path::new(REAPER).parent().unwrap();
    let (hides, ready) = (root.path().join("hides.py"), root.path().join("ready"));
    std::fs::write(&hides, HIDES).unwrap();
    let supervisor = format!(
        "import os, subprocess, sys, time\nsys.path.insert(0, {folder:?})\nimport reaper\n\
         assert reaper.become_subreaper()\n\
         own = subprocess.Popen([sys.executable, '-B', {REAPER:?}, 'run', {root:?}, 'worker0', sys.executable, {hides:?}, {mark:?}, {ready:?}, 'stays'])\n\
         other = subprocess.Popen(['sleep', '300'])\n\
         while not os.path.exists({ready:?}): time.sleep(0.01)\n\
         seen = reaper.below(reaper.table(), [own.pid])\n\
         assert len(seen) >= 4, seen\n\
         own.kill()\nown.wait()\n\
         assert reaper.end_adopted({{other.pid}}) == []\n\
         left = [pid for pid in seen if reaper.started(pid)]\n\
         assert not left, left\n\
         assert other.poll() is None, 'its own child was ended'\n\
         other.kill()\nreaper.end_node({root:?}, 'worker0', 'none')\nprint('all ended')\n",
        root = root.path()
    );
    let output = Command::new("python3").args(["-I", "-B", "-c", &supervisor]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all ended\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// A recorded pid may belong to a foreign process by now: the start time distinguishes them.
#[test]
fn a_foreign_process_with_a_recorded_pid_is_left_alone() {
    let root = tempfile::Builder::new().prefix("gt-").tempdir().unwrap();
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    let host = Node::host_in(root.path(), "abcd1238");
    std::fs::create_dir_all(host.join("processes")).unwrap();
    let boot = gpucl::util::process::boot_id();
    let (pid, session) = (stranger.id(), gpucl::util::process::table()[&stranger.id()].session);
    let text = format!("boot {boot}\nreaper {pid} 1\nsession {session}\nprocess {pid} 2 {session}\n");
    std::fs::write(host.join("processes/worker0"), &text).unwrap();
    let said = stop(root.path(), "abcd1238", 0);
    assert_eq!(said, "::unknown worker0\n::stopped\n");
    std::fs::write(host.join("processes/worker0"), &text).unwrap();
    let end =
        Command::new("python3").args(["-I", "-B", REAPER, "end"]).arg(&host).arg("GPUCL_HOST=gpucl-none").output();
    assert_eq!(String::from_utf8(end.unwrap().stdout).unwrap(), "::unknown worker0\n");
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was ended");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
