//! Why a job waits or failed, as one sentence.

use super::fit::{Fit, amounts, fit};
use super::jobs::{Job, JobStatus};
use super::situation::{Demand, Situation, Wanting};
use crate::util::text::shortened;

/// The parts of a runtime environment that take time to set up.
const SLOW_PARTS: &[&str] = &["conda", "container", "image_uri", "pip", "py_modules", "uv", "working_dir"];

/// Says in one sentence why a job waits or failed; `None` if it does neither, or nothing is known.
///
/// It is made from the job, Ray's message about it, and what surrounds it ([`Situation`]).
pub fn reason(job: &Job, situation: &Situation) -> Option<String> {
    match job.status {
        JobStatus::Succeeded | JobStatus::Stopped => None,
        JobStatus::Pending => Some(unmet(situation).unwrap_or_else(|| starting(job))),
        JobStatus::Running => unmet(situation),
        JobStatus::Failed => failure(job, situation),
    }
}

/// The first demand that cannot be met, else the first that waits for others.
fn unmet(situation: &Situation) -> Option<String> {
    let (mut busy, mut coming) = (None, None);
    for demand in &situation.demands {
        match fit(demand, situation) {
            Fit::Never(why) => return Some(format!("{} {why}", subject(&demand.by))),
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
    coming.or_else(|| busy.map(|demand| waits(demand, full)))
}

fn subject(by: &Wanting) -> String {
    match by {
        Wanting::Command => "the command".to_owned(),
        Wanting::Actor(class) => format!("actor `{class}`"),
        Wanting::Task(function) => format!("task `{function}`"),
        Wanting::Group => "a placement group".to_owned(),
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
        Some("JOB_SUPERVISOR_ACTOR_START_TIMEOUT") => Some(match unmet(situation) {
            Some(why) => format!("{why}; Ray gave up waiting"),
            None => "Ray did not start the command in time".to_owned(),
        }),
        Some("JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE") => Some(match unmet(situation) {
            Some(why) => why,
            None => format!("Ray found no node for the command: {}", last_part(&message)),
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
    let installer = |line: &str| {
        let said = line.trim();
        let pip = said.strip_prefix("ERROR: ").map(|why| format!("pip failed: {}", shortened(why)));
        pip.or_else(|| said.strip_prefix("╰─▶ ").map(|why| format!("uv failed: {}", shortened(why))))
    };
    if let Some(why) = message.lines().find_map(installer) {
        return why;
    }
    let why = exception(message).unwrap_or_else(|| last_part(message));
    format!("its runtime environment could not be set up: {why}")
}

/// Why the process that runs a job's command died.
fn death(message: &str) -> String {
    if is_out_of_memory(message) {
        return "out of memory: Ray ended its command, because the host ran low on memory".to_owned();
    }
    if message.contains("node has died") || message.contains("marked dead") || message.contains("node was terminated") {
        return "the node that ran its command was lost".to_owned();
    }
    if message.contains("it was cancelled before it started") {
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

/// The last line of a Python traceback: `ValueError: too small`.
fn exception(text: &str) -> Option<String> {
    let is_exception = |line: &&str| {
        let name = line.split([':', '(', ' ']).next().unwrap_or_default();
        let plain = name.chars().all(|letter| letter.is_alphanumeric() || "._".contains(letter));
        plain && ["Error", "Exception", "Interrupt", "Exit"].iter().any(|end| name.ends_with(end))
    };
    text.lines().rfind(is_exception).map(shortened)
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
fn without_colours(text: &str) -> String {
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
