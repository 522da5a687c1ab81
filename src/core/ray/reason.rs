//! Why a job waits or failed, as one sentence.

use super::fit::{Fit, amounts, fit};
use super::jobs::{Job, JobStatus};
use super::situation::{Demand, Situation, Wanting};
use super::startup::StartupFailure;
use crate::util::installer;
use crate::util::text::shortened;

/// The parts of a runtime environment that take time to set up.
const SLOW_PARTS: &[&str] = &["conda", "container", "image_uri", "pip", "py_modules", "uv", "working_dir"];

/// The most lines below an exception that are read as its own.
const CONTINUATION: usize = 4;

/// Says in one sentence why a job waits or failed; `None` if it does neither, or nothing is known.
///
/// It is made from the job, Ray's message about it, and what surrounds it ([`Situation`]).
pub fn reason(job: &Job, situation: &Situation) -> Option<String> {
    match job.status {
        JobStatus::Succeeded | JobStatus::Stopped => None,
        JobStatus::Pending => Some(unmet_in_words(situation).unwrap_or_else(|| match &situation.startup {
            Some(StartupFailure::Error(error)) => {
                format!("its processes end at their start, and Ray tries again: {error}")
            }
            Some(StartupFailure::Silent) | None => starting(job),
        })),
        JobStatus::Running => unmet_in_words(situation),
        JobStatus::Failed => failure(job, situation),
    }
}

/// What is asked for in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// By what, and why, in one sentence.
    pub why: String,
    /// Whether no node will have it, however long one waits.
    pub is_in_vain: bool,
}

/// The first demand that cannot be met, else the first that waits for others.
pub fn unmet(situation: &Situation) -> Option<Unmet> {
    let (mut busy, mut coming) = (None, None);
    for demand in &situation.demands {
        match fit(demand, situation) {
            Fit::Never(why) => {
                return Some(Unmet { why: format!("{} {why}", subject(&demand.by)), is_in_vain: true });
            }
            // Waiting is what most tasks of a job do.
            Fit::Busy if busy.is_none() && !matches!(demand.by, Wanting::Task(_)) => busy = Some(demand),
            Fit::Coming if coming.is_none() => coming = Some(demand),
            Fit::Free | Fit::Busy | Fit::Coming | Fit::Unknown => {}
        }
    }
    let waits = |demand: &Demand, why: &str| format!("{} waits for {}: {why}", subject(&demand.by), amounts(demand));
    let full = match situation.growing.is_empty() {
        true => "what the nodes have is in use",
        false => "what the nodes have is in use, and no group may have more nodes",
    };
    let coming = coming.map(|demand| waits(demand, "Ray's autoscaler adds a node for it"));
    coming.or_else(|| busy.map(|demand| waits(demand, full))).map(|why| Unmet { why, is_in_vain: false })
}

/// The same, in words alone.
fn unmet_in_words(situation: &Situation) -> Option<String> {
    unmet(situation).map(|unmet| unmet.why)
}

fn subject(by: &Wanting) -> String {
    match by {
        Wanting::Command => "the command".to_owned(),
        Wanting::Actor(class) => format!("actor `{class}`"),
        Wanting::Task(function) => format!("task `{function}`"),
        Wanting::Group => "a placement group".to_owned(),
        Wanting::Replica(deployment) => format!("a replica of `{deployment}`"),
    }
}

fn starting(job: &Job) -> String {
    let slow: Vec<&str> = job.environment.iter().map(String::as_str).filter(|part| SLOW_PARTS.contains(part)).collect();
    if slow.is_empty() {
        return "Ray is starting the command".to_owned();
    }
    format!("its runtime environment is being set up: {}", slow.join(", "))
}

fn failure(job: &Job, situation: &Situation) -> Option<String> {
    let message = without_colours(job.message.as_deref().unwrap_or_default());
    match job.error_type.as_deref() {
        Some("RUNTIME_ENV_SETUP_FAILURE") => Some(environment_failure(&message)),
        Some("JOB_SUPERVISOR_ACTOR_START_TIMEOUT") => Some(match unmet_in_words(situation) {
            Some(why) => format!("{why}; Ray gave up waiting"),
            None => "Ray did not start the command in time".to_owned(),
        }),
        Some("JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE") => Some(match (unmet_in_words(situation), &situation.startup) {
            (Some(why), _) => why,
            (None, Some(StartupFailure::Error(error))) => format!("its processes ended at their start: {error}"),
            (None, Some(StartupFailure::Silent)) => {
                "its processes ended at their start, and left no word in the node's raylet.err".to_owned()
            }
            (None, None) => format!("Ray found no node for the command: {}", last_part(&message)),
        }),
        Some("JOB_SUPERVISOR_ACTOR_DIED") => Some(death(&message)),
        Some("JOB_ENTRYPOINT_COMMAND_ERROR") => Some(command_failure(&message, job.driver_exit_code)),
        _ if message.trim().is_empty() => None,
        _ => Some(exception(&message).unwrap_or_else(|| shortened(first_line(&message)))),
    }
}

/// Why a runtime environment could not be set up.
fn environment_failure(message: &str) -> String {
    if message.contains("Failed to download runtime_env file package gcs://") {
        return "its package is no longer at Ray, which deletes packages that no job uses; submit the job again"
            .to_owned();
    }
    if let Some(why) = other_ray(message) {
        return why;
    }
    if let Some((_, rest)) = message.split_once("Failed to install runtime_env within the timeout of ") {
        let seconds = rest.split_whitespace().next().unwrap_or("?");
        return format!(
            "its runtime environment was not set up within {seconds} s, Ray's limit; more: `config: \
             {{setup_timeout_seconds: 1800}}` in the runtime environment"
        );
    }
    if let Some(why) = installer::failure(message) {
        return why;
    }
    let why = failed_command(message).or_else(|| exception(message)).unwrap_or_else(|| last_part(message));
    format!("its runtime environment could not be set up: {why}")
}

/// The requirements of a runtime environment bring another Ray.
fn other_ray(message: &str) -> Option<String> {
    let (_, detail) = message.split_once("Changing the ray version is not allowed")?;
    let version = |name: &str| Some(detail.split_once(name)?.1.split(',').next()?.trim().to_owned());
    let (theirs, ours) = (version("current version:")?, version("expect version:")?);
    Some(format!(
        "its requirements install Ray {theirs}, and the cluster has {ours}: leave `ray` out of them, or require `ray=={ours}`"
    ))
}

/// The last words of a command that Ray ran for a runtime environment, which Ray quotes below a heading.
fn failed_command(message: &str) -> Option<String> {
    let (_, quoted) =
        message.rsplit_once(" lines of stdout:\n").or_else(|| message.rsplit_once(" lines of stderr:\n"))?;
    quoted.lines().rfind(|line| !line.trim().is_empty()).map(shortened)
}

/// Why the process that runs a job's command died.
fn death(message: &str) -> String {
    if is_out_of_memory(message) {
        return "out of memory: Ray ended its command, because the host ran low on memory".to_owned();
    }
    if message.contains("node has died") || message.contains("marked dead") || message.contains("node was terminated") {
        return "the node that ran its command was lost".to_owned();
    }
    if is_out_of_processes(message) {
        return OUT_OF_PROCESSES.to_owned();
    }
    // Ray adds the same words when the process ended by itself.
    if message.contains("it was cancelled before it started") && !message.contains("SYSTEM_ERROR") {
        return "it was stopped while it waited, before its command ran".to_owned();
    }
    format!("the process that ran its command died: {}", death_detail(message))
}

/// Why a command failed, from the end of its log.
fn command_failure(log: &str, code: Option<i32>) -> String {
    if is_out_of_memory(log) {
        return "out of memory: Ray ended a task or an actor, because its host ran low on memory".to_owned();
    }
    let gpu = |line: &&str| {
        ["CUDA out of memory", "HIP out of memory", "CUDA_ERROR_OUT_OF_MEMORY"].iter().any(|text| line.contains(text))
    };
    if let Some(line) = log.lines().rfind(gpu) {
        return format!("out of GPU memory: {}", shortened(line));
    }
    if log.contains("ActorDiedError") {
        let class = log.lines().find_map(|line| line.trim().strip_prefix("class_name: "));
        let who = class.map_or("an actor".to_owned(), |class| format!("actor `{class}`"));
        return format!("{who} died: {}", death_detail(log));
    }
    if let Some(why) = other_python(log) {
        return why;
    }
    if is_out_of_processes(log) {
        return OUT_OF_PROCESSES.to_owned();
    }
    if log.contains("WorkerCrashedError") {
        return "a process ended in the middle of a task: by signal 9, which the system sends when memory runs out, or by a \
                crash in native code; `gpucl logs` of its worker may say more"
            .to_owned();
    }
    match code {
        Some(-9 | 137) => "signal 9 ended its command; the system sends it when memory runs out".to_owned(),
        Some(signal) if signal < 0 => format!("signal {} ended its command", -signal),
        Some(127) => match log.lines().rfind(|line| line.contains("not found")) {
            Some(line) => format!("its command was not found: {}", shortened(line)),
            None => "its command was not found".to_owned(),
        },
        code => {
            let how = code.map_or("its command failed".to_owned(), |code| format!("its command exited with {code}"));
            exception(log).map_or(how.clone(), |why| format!("{how}: {why}"))
        }
    }
}

/// What a host says that starts no more processes or threads for this user or cgroup.
const OUT_OF_PROCESSES: &str =
    "its host started no more processes or threads: the limit is that of `ulimit -u`, or `pids.max` of its cgroup";

fn is_out_of_processes(text: &str) -> bool {
    let signs = [
        "pthread_create failed",
        "can't start new thread",
        "thread: Resource temporarily unavailable",
        "fork: Resource temporarily unavailable",
        "Thread creation failed",
    ];
    signs.iter().any(|sign| text.contains(sign))
}

fn is_out_of_memory(text: &str) -> bool {
    let signs = ["ray.exceptions.OutOfMemoryError", "running low on memory"];
    // What the node agent says on its own may be about a task that succeeded later.
    text.lines().any(|line| !line.starts_with("(raylet") && signs.iter().any(|sign| line.contains(sign)))
}

/// What Ray says about the death of an actor.
fn death_detail(text: &str) -> String {
    let detail = |line: &str| {
        let line = line.trim();
        let begins = ["The actor is dead because ", "The actor died because of "];
        let found = begins.iter().find_map(|begin| line.split_once(begin).map(|(_, detail)| detail))?;
        // Ray's advice follows, several sentences long.
        let sentence = found.split_once(". ").map_or(found, |(first, _)| first);
        Some(shortened(sentence))
    };
    // An error in the constructor is named by the traceback's last line.
    let stated = if text.contains("in its creation task") { None } else { text.lines().find_map(detail) };
    stated.or_else(|| exception(text)).unwrap_or_else(|| last_part(text))
}

/// The exception of the last Python traceback: `ValueError: too small`. One that ends with a colon goes on below.
pub(super) fn exception(text: &str) -> Option<String> {
    let is_exception = |line: &str| {
        let name = line.split([':', '(', ' ']).next().unwrap_or_default();
        let plain = name.chars().all(|letter| letter.is_alphanumeric() || "._".contains(letter));
        plain && ["Error", "Exception", "Interrupt", "Exit"].iter().any(|end| name.ends_with(end))
    };
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().rposition(|line| is_exception(line))?;
    let mut said = lines[at].trim_end().to_owned();
    for more in lines[at + 1..].iter().map(|line| line.trim()).filter(|line| !line.is_empty()).take(CONTINUATION) {
        if !said.ends_with(':') {
            break;
        }
        said = format!("{said} {more}");
    }
    Some(shortened(&said))
}

/// Who runs another Python or Ray than the cluster, as Ray refuses it.
fn other_python(log: &str) -> Option<String> {
    let (_, detail) = log.rsplit_once("Version mismatch: The cluster was started with:")?;
    let values = |name: &str| {
        let lines =
            detail.lines().filter_map(|line| line.trim().strip_prefix(name)).map(|value| value.trim().to_owned());
        let mut lines = lines.take(2);
        Some((lines.next()?, lines.next()?))
    };
    let (ray, own_ray) = values("Ray:")?;
    let (python, own_python) = values("Python:")?;
    let (what, theirs, ours) = match ray == own_ray {
        true => ("Python", own_python, python),
        false => ("Ray", own_ray, ray),
    };
    let hint = match what {
        "Python" => format!("uv run --python {ours}"),
        _ => format!("require ray=={ours}"),
    };
    Some(format!("its command ran with {what} {theirs}, and the cluster has {ours}, which must be the same: {hint}"))
}

/// What follows the first colon of a message, on its first line.
fn last_part(message: &str) -> String {
    let line = first_line(message);
    shortened(line.split_once(": ").map_or(line, |(_, rest)| rest))
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default()
}

/// The text without escape sequences of colours: Ray colours names in tracebacks.
pub(super) fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ';');
        rest = rest.strip_prefix('m').unwrap_or(rest);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests;
