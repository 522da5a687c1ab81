//! Processes that a job hides: nothing of the cluster is in their environment, their session, or their command line.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{TestEnv, until};

/// Hidden processes, found by a unique word in their command lines.
pub(crate) struct Hidden {
    marks: [String; 2],
}

/// Runs it in a task of the only worker.
const TASK: &str = r#"
import subprocess, sys
import ray

ray.init(log_to_driver=False)
run = ray.remote(num_cpus=0, resources={"gpucl_worker0": 0.01})(lambda: subprocess.check_call([sys.executable, *words]))
words = sys.argv[1:]
ray.get(run.remote())
"#;

/// The job: one process by the shell's own means, and one that forks twice, leaves its session, and takes another name.
const JOB: &str = r#"
import os, subprocess, sys

subprocess.Popen(["sh", "-c", f"env -i setsid sleep {sys.argv[1]} >/dev/null 2>&1 </dev/null &"]).wait()
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.closerange(3, 4096)
        os.execve("/bin/sleep", [sys.argv[2], "86400"], {})
    os._exit(0)
os.waitpid(child, 0)
"#;

impl Hidden {
    /// Runs a job that hides two processes and ends.
    #[track_caller]
    pub(crate) fn by_a_job(env: &TestEnv, cluster: &str, id: &str) -> Self {
        Self::by(env, cluster, id, &[])
    }

    /// The same by a task on `worker-0`.
    #[track_caller]
    pub(crate) fn by_a_task(env: &TestEnv, cluster: &str, id: &str) -> Self {
        let task = env.write("task.py", TASK).display().to_string();
        Self::by(env, cluster, id, &[&task])
    }

    #[track_caller]
    fn by(env: &TestEnv, cluster: &str, id: &str, through: &[&str]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let seed = format!("{}{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let marks = [format!("86400.{seed}1"), format!("hidden-by-{id}-{seed}")];
        let program = env.write("hide.py", JOB).display().to_string();
        let words =
            [&["job", "submit", "-c", cluster, "--id", id, "--", "python"], through, &[&program, &marks[0], &marks[1]]];
        env.run(&words.concat()).exits(0);
        let hidden = Self { marks };
        until("both processes run", 10, || (hidden.running().len() == 2).then_some(()));
        for pid in hidden.running() {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
            assert!(
                !String::from_utf8_lossy(&environ).contains("GPUCL"),
                "process {pid} can be recognized by its environment"
            );
        }
        hidden
    }

    /// Those that run.
    pub(crate) fn running(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
            let is_it = |mark: &String| words.len() < 4 && words.contains(&mark.as_bytes());
            if self.marks.iter().any(is_it) {
                found.push(pid);
            }
        }
        found
    }
}

/// A test that fails leaves nothing either.
impl Drop for Hidden {
    fn drop(&mut self) {
        for pid in self.running() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
