//! Why worker processes of a job end at their start: what they wrote before they had a log of their own.
//!
//! A worker that ends before it is known to Ray leaves nothing but lines in `raylet.err` of its node, among those of all
//! others. Ray notices it only after a minute, and starts another one, five times (ray 2.60.0).

use serde_json::Value;

use super::client::{Client, whole};
use super::jobs::{Job, JobStatus, check_known_form};
use super::nodes::Node;
use crate::util::text::shortened;

/// How many lines of the log are read, how long they may be in all, in bytes, and on how many nodes.
const LINES: usize = 400;
const LIMIT: usize = 4 << 20;
const NODES: usize = 4;
/// How packages of folders are named on nodes.
const PACKAGE: &str = "_ray_pkg_";
/// What Ray says of a job whose workers ended at their start too often (ray 2.60.0), and where it then names the node.
const GAVE_UP: &str = "worker startup repeatedly failed";
const NAMED_NODE: &str = "raylet.err on node ";
/// What the node's agent writes for each worker that ended at its start.
const NOTICED: &str = "have not registered within the timeout. The process is dead";

/// Why worker processes of a job end at their start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartupFailure {
    /// The error that the last one ended with.
    Error(String),
    /// Ray says that they do, and none left a word.
    Silent,
}

/// The parts of a runtime environment that choose the Python of a process.
const PYTHONS: &[&str] = &["conda", "container", "image_uri", "pip", "py_executable", "uv"];

/// One process that ended, by what it wrote.
struct Ended {
    by: By,
    text: String,
    error: String,
    is_noticed: bool,
}

/// Who wrote why a process ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// Its Python.
    Python,
    /// The shell that starts Python.
    Shell,
}

/// What is known of a job whose processes may have ended.
struct Sought<'a> {
    packages: &'a [String],
    /// The parts of its runtime environment.
    parts: &'a [String],
    /// Ray has not given up.
    waits: bool,
}

impl Client {
    /// Why worker processes of the job end at their start, if they do. What cannot be read is left out.
    pub(super) async fn startup_failure(&self, job: &Job, nodes: &[Node]) -> Option<StartupFailure> {
        let message = job.message.as_deref().unwrap_or_default();
        let gave_up = job.status == JobStatus::Failed && message.contains(GAVE_UP);
        // Without a part of its own, its workers are those of all jobs.
        let waits = job.status == JobStatus::Pending && !job.environment.is_empty();
        if !gave_up && !waits {
            return None;
        }
        let packages = self.packages(job).await;
        let sought = Sought { packages: &packages, parts: &job.environment, waits };
        let digits = |rest: &str| rest.chars().take_while(char::is_ascii_hexdigit).collect::<String>();
        let named = message.split_once(NAMED_NODE).map(|(_, rest)| digits(rest));
        let mut looked_at: Vec<&Node> = match &named {
            Some(id) => nodes.iter().filter(|node| node.node_id == *id).collect(),
            None => nodes.iter().filter(|node| node.alive).collect(),
        };
        // There is the command, unless it asks for more than the head has.
        looked_at.sort_by_key(|node| !node.is_head);
        for node in looked_at.into_iter().take(NODES) {
            if let Some(log) = self.errors_of(&node.node_id).await
                && let Some(error) = startup_error(&log, &sought)
            {
                return Some(StartupFailure::Error(error));
            }
        }
        gave_up.then_some(StartupFailure::Silent)
    }

    /// The end of the log of errors of a node's agent, and of workers that have no log yet.
    async fn errors_of(&self, node: &str) -> Option<String> {
        let path = format!("/api/v0/logs/file?node_id={node}&filename=raylet.err&lines={LINES}&format=text");
        let doing = "read the errors of a node";
        let bytes = whole(self.read_answer(&path, doing).await.ok()?, LIMIT, doing).await.ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The packages of a job's folders, as they are named on nodes.
    async fn packages(&self, job: &Job) -> Vec<String> {
        let doing = "read the packages of the job";
        let Some(id) = job.submission_id.as_deref().filter(|id| check_known_form(id, doing).is_ok()) else {
            return Vec::new();
        };
        let Ok(job) = self.read::<Value>(&format!("/api/jobs/{id}"), doing).await else { return Vec::new() };
        let environment = &job["runtime_env"];
        let modules = environment["py_modules"].as_array().into_iter().flatten();
        let uris = modules.chain([&environment["working_dir"]]).filter_map(Value::as_str);
        uris.filter_map(|uri| uri.strip_prefix("gcs://")?.strip_suffix(".zip").map(str::to_owned)).collect()
    }
}

/// The error with which the last worker of a job ended, from the log of its node.
///
/// The log has lines of all jobs. One that names a package of the job is the job's. Else it is one that names no
/// package, of the shell only where the job chooses its Python; while the job waits, one that the agent has not noticed
/// yet, as it does within a minute.
fn startup_error(log: &str, sought: &Sought<'_>) -> Option<String> {
    let all = ended(log);
    let own = all.iter().rfind(|one| sought.packages.iter().any(|package| one.text.contains(package.as_str())));
    let chooses_python = sought.parts.iter().any(|part| PYTHONS.contains(&part.as_str()));
    let may_be = |one: &&Ended| {
        let is_new = !(sought.waits && one.is_noticed);
        is_new && !one.text.contains(PACKAGE) && (one.by == By::Python || chooses_python)
    };
    own.or_else(|| all.iter().rfind(may_be)).map(|one| shortened(&without_packages(&one.error)))
}

fn ended(log: &str) -> Vec<Ended> {
    let mut all: Vec<Ended> = Vec::new();
    let (mut is_open, mut is_chain) = (false, false);
    for line in log.lines() {
        if line.contains(NOTICED) {
            // The first that ended is noticed first.
            if let Some(first) = all.iter_mut().find(|one| !one.is_noticed) {
                first.is_noticed = true;
            }
            (is_open, is_chain) = (false, false);
        } else if line.starts_with("Traceback (most recent call last):") {
            match all.last_mut().filter(|_| is_chain) {
                Some(last) => last.error.clear(),
                None => {
                    all.push(Ended { by: By::Python, text: String::new(), error: String::new(), is_noticed: false })
                }
            }
            (is_open, is_chain) = (true, false);
        } else if line.starts_with("Fatal Python error: ") || is_by_the_shell(line) {
            let by = if is_by_the_shell(line) { By::Shell } else { By::Python };
            all.push(Ended { by, text: line.to_owned(), error: line.to_owned(), is_noticed: false });
            (is_open, is_chain) = (false, false);
        } else if is_open && let Some(last) = all.last_mut() {
            last.text.push_str(line);
            last.text.push('\n');
            if !line.starts_with([' ', '\t']) && !line.is_empty() {
                line.clone_into(&mut last.error);
                is_open = false;
            }
        } else if line.starts_with("During handling of the above") || line.starts_with("The above exception was") {
            is_chain = true;
        }
    }
    all.retain(|one| !one.error.is_empty());
    all
}

/// The shell that starts a worker's Python cannot: a wrong `py_executable`, a folder that is gone.
fn is_by_the_shell(line: &str) -> bool {
    line.starts_with("bash: ") || line.starts_with("/bin/bash: ")
}

/// The text with paths in packages from the top of their folder: `random.py`.
fn without_packages(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(PACKAGE) {
        let begin = rest[..at].rfind([' ', '(', '\'', '"']).map_or(0, |before| before + 1);
        plain.push_str(&rest[..begin]);
        rest = rest[at..].split_once('/').map_or("", |(_, inside)| inside);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTICE: &str = "[2026-11-28 20:33:24,379 E 7736 7736] (raylet) worker_pool.cc:660: Some workers of the worker \
        process(11479) have not registered within the timeout. The process is dead, probably it crashed during start.\n";
    /// As ray 2.60.0 wrote it, shortened.
    const RANDOM: &str = "Traceback (most recent call last):\n  File \"/e/ray/_private/workers/default_worker.py\", line 8, in \
        <module>\n    import ray\n    ^^^^^^\n  File \"/p/tempfile.py\", line 45, in <module>\n    from random import Random\n\
        ImportError: cannot import name 'Random' from 'random' \
        (/tmp/s/working_dir_files/_ray_pkg_2eb3d263e51fd048/random.py)\n";
    const NO_PART: &str = "Traceback (most recent call last):\n  File \"/e/ray/_private/workers/default_worker.py\", line 9, in \
        <module>\n    import ray._private.node\nModuleNotFoundError: No module named 'ray._private'\n";

    fn says(log: &str, package: &str, waits: bool) -> Option<String> {
        of_parts(log, package, waits, &["working_dir"])
    }

    fn of_parts(log: &str, package: &str, waits: bool, parts: &[&str]) -> Option<String> {
        let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        startup_error(log, &Sought { packages: &[package.to_owned()], parts: &parts, waits })
    }

    #[test]
    fn the_error_of_a_worker_of_the_job_is_found_among_those_of_others() {
        let own = "ImportError: cannot import name 'Random' from 'random' (random.py)";
        let log = format!("{RANDOM}{NOTICE}{NO_PART}{NOTICE}{NO_PART}");
        assert_eq!(says(&log, "_ray_pkg_2eb3d263e51fd048", true).as_deref(), Some(own));
        // Another job's package is not this job's; a process that names none and was not noticed yet may be.
        let other = "ModuleNotFoundError: No module named 'ray._private'";
        assert_eq!(says(&log, "_ray_pkg_0123456789abcdef", true).as_deref(), Some(other));
        assert_eq!(says(RANDOM, "_ray_pkg_0123456789abcdef", true), None);
        assert_eq!(says(&format!("{NO_PART}{NOTICE}"), "_ray_pkg_0", true), None);
        assert_eq!(says(&format!("{NO_PART}{NOTICE}"), "_ray_pkg_0", false).as_deref(), Some(other));
        assert_eq!(says("", "_ray_pkg_0", false), None);
    }

    #[test]
    fn a_chain_a_fatal_error_and_the_shell_are_understood() {
        let chain = "Traceback (most recent call last):\n  File \"/s/_ray_pkg_aa/x.py\", line 1\nKeyError: 'a'\n\n\
            During handling of the above exception, another exception occurred:\n\n\
            Traceback (most recent call last):\n  File \"/e/y.py\", line 2\nRuntimeError: no a\n";
        assert_eq!(says(chain, "_ray_pkg_aa", true).as_deref(), Some("RuntimeError: no a"));
        let fatal = "Python path configuration:\n  PYTHONHOME = '/nowhere'\nFatal Python error: init_fs_encoding: failed to get the \
            Python codec of the filesystem encoding\nPython runtime state: core initialized\n\
            ModuleNotFoundError: No module named 'encodings'\n";
        let said = says(fatal, "_ray_pkg_aa", true).unwrap_or_default();
        assert!(said.starts_with("Fatal Python error: init_fs_encoding"), "{said}");
        let shell = "bash: line 1: /nowhere/python: No such file or directory\n";
        assert_eq!(of_parts(shell, "_ray_pkg_aa", true, &["py_executable"]).as_deref(), Some(shell.trim()));
        // A job that does not choose its Python does not end there.
        assert_eq!(says(shell, "_ray_pkg_aa", true), None);
        assert_eq!(
            says(&format!("{NO_PART}{shell}"), "_ray_pkg_aa", true).as_deref(),
            Some(NO_PART.lines().last().unwrap())
        );
    }
}
