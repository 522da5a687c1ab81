//! A stage: the work of one host program, and its report.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Facts;
use crate::error::{Error, ErrorKind, Result};
use crate::event::StepOutcome;
use crate::host::StageFile;
use crate::util::digest;

/// One stage of one host: ordered steps and the files they need.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Its name, such as `prepare`: lower-case letters, digits and hyphens.
    pub name: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Files delivered before the first step.
    pub files: Vec<StageFile>,
    /// Shell variables of every step, passed literally.
    pub variables: BTreeMap<String, String>,
    /// How long all steps together may take.
    pub timeout: Duration,
    /// Whether the host's facts are collected at its end: it may change them, and collecting takes a second.
    pub wants_facts: bool,
}

/// One step, ready to be run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// The name shown to the user: `create the Ray environment`.
    pub name: String,
    /// Shell code; when it succeeds, the step is skipped. It must change nothing.
    pub unless: Option<String>,
    /// The shell code, run with `set -eu` in the host's folder.
    pub run: String,
    /// A path; when it exists, the step is skipped.
    pub creates: Option<String>,
    /// Reboot the host after the step, unless it was skipped, and run the stage again: the step must be skipped then.
    pub reboot: bool,
    /// Undoes a temporary change of an earlier step: it also runs when a step before it failed.
    pub finally: bool,
    /// Shell variables of this step, besides the stage's.
    pub variables: BTreeMap<String, String>,
    /// How many times to retry it after a failure.
    pub retry: u32,
    /// How long it may take; `None` leaves only the stage's limit.
    pub timeout: Option<Duration>,
    /// What it may change on the host, in words; for display only.
    pub affected_paths: Vec<String>,
    /// What the user can do when it fails.
    pub hint: Option<String>,
    /// Known failures, recognized by their output.
    pub errors: Vec<KnownError>,
}

/// A known failure, recognized by its output.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownError {
    /// Texts separated by `|`, one of which a line of output must contain; `.*` within one matches anything. Lines that
    /// only say what is being done are not searched.
    pub matches: String,
    /// What it means; `{line}` stands for the line that matched, `{before}` for the line before it, `{what}` for
    /// what the first `.*` stood for.
    pub says: String,
    /// What to do; with the same placeholders.
    #[serde(default)]
    pub hint: Option<String>,
    /// Whether another try may succeed, with other values. Playbooks cannot say so: nothing there chooses others.
    #[serde(skip)]
    pub retry: bool,
}

impl KnownError {
    /// One that no repetition helps against: what a line matches, what is said then, and what to do.
    pub fn new(matches: &str, says: &str, hint: Option<&str>) -> Self {
        Self { matches: matches.to_owned(), says: says.to_owned(), hint: hint.map(str::to_owned), retry: false }
    }
}

impl KnownError {
    /// Whether this line shows this failure.
    pub fn matches(&self, line: &str) -> bool {
        self.what(line).is_some()
    }

    /// What the first `.*` stands for in this line, or nothing if there is none; `None` if the line does not match.
    fn what<'a>(&self, line: &'a str) -> Option<&'a str> {
        self.matches.split('|').find_map(|text| {
            let mut parts = text.split(".*");
            let (_, behind) = line.split_once(parts.next()?)?;
            let Some(second) = parts.next() else { return Some("") };
            let (what, mut rest) = if second.is_empty() { (behind, "") } else { behind.split_once(second)? };
            for part in parts {
                (_, rest) = rest.split_once(part)?;
            }
            Some(what)
        })
    }

    /// A text with its placeholders filled in for this line.
    pub(super) fn fill(&self, text: &str, line: &str) -> String {
        text.replace("{what}", self.what(line).unwrap_or_default()).replace("{line}", line)
    }
}

/// How one step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    /// The step's name.
    pub name: String,
    /// How it ended.
    pub outcome: StepOutcome,
    /// How long it took.
    pub milliseconds: u64,
}

/// The result of a stage.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageReport {
    /// The host's facts at the end of the stage, if it wants them; else only the boot id.
    pub facts: Facts,
    /// The steps that were run or skipped, in order; empty when the whole stage was skipped.
    pub steps: Vec<StepReport>,
    /// The values that the steps returned with `value`.
    pub values: BTreeMap<String, String>,
    /// Nothing was started: the stage had succeeded before and still holds.
    pub skipped_as_unchanged: bool,
    /// Another call started the stage, and this one followed it.
    pub attached: bool,
}

impl Stage {
    /// Joins several stages into one, in order; each step keeps the variables of its stage. All `finally` steps come
    /// last.
    pub fn join(name: &str, stages: Vec<Self>, timeout: Duration) -> Self {
        let mut joined = Self {
            name: name.to_owned(),
            steps: Vec::new(),
            files: Vec::new(),
            variables: BTreeMap::new(),
            timeout,
            wants_facts: false,
        };
        let mut last = Vec::new();
        for stage in stages {
            joined.wants_facts |= stage.wants_facts;
            for file in stage.files {
                // Playbooks share their libraries.
                if !joined.files.contains(&file) {
                    joined.files.push(file);
                }
            }
            for mut step in stage.steps {
                step.variables.extend(stage.variables.clone());
                if step.finally { last.push(step) } else { joined.steps.push(step) }
            }
        }
        joined.steps.extend(last);
        joined
    }

    /// The digest of what the stage would do, without its timeouts.
    pub fn digest(&self) -> String {
        let steps: Vec<_> = self
            .steps
            .iter()
            .map(|step| (&step.name, &step.unless, &step.run, &step.creates, &step.variables, step.reboot))
            .collect();
        let files: Vec<_> = self.files.iter().map(|file| (&file.path, file.mode, digest::short(&file.bytes))).collect();
        digest::of_json(&(1, &self.name, steps, files, &self.variables))
    }

    /// Rejects a stage that cannot be compiled: a mistake in a playbook or in gpucl, found before anything is sent.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |cause: String| {
            Err(Error::new(ErrorKind::Internal, format!("compile the stage `{}`", self.name)).because(cause))
        };
        let plain = |name: &str, more: char| {
            name.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '_')
                && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == more)
        };
        if !plain(&self.name, '-') {
            return wrong("its name must consist of lower-case letters, digits and hyphens".to_owned());
        }
        let variables = || self.variables.iter().chain(self.steps.iter().flat_map(|step| &step.variables));
        if let Some((name, _)) = variables().find(|(name, _)| !plain(name, '_') || name.starts_with("gpucl_")) {
            return wrong(format!("`{name}` is not a valid variable name"));
        }
        if let Some((name, _)) = variables().find(|(_, value)| value.contains('\0')) {
            return wrong(format!("the variable `{name}` holds a zero byte"));
        }
        for step in &self.steps {
            if step.name.contains('\n') {
                return wrong(format!("the name of the step `{}` is not one line", step.name));
            }
            let texts = [Some(&step.run), step.unless.as_ref(), step.creates.as_ref()];
            if texts.into_iter().flatten().any(|text| text.contains('\0')) {
                return wrong(format!("the step `{}` holds a zero byte", step.name));
            }
        }
        for file in &self.files {
            if file.path.split('/').any(|part| matches!(part, "" | "." | "..")) || file.path.contains('\0') {
                return wrong(format!("the file `{}` is not below the host's folder", file.path));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_error_is_found_by_its_texts_in_order() {
        let known = KnownError {
            matches: "No space left|Could not find.*distribution".to_owned(),
            says: String::new(),
            hint: None,
            retry: false,
        };
        assert!(known.matches("tar: write error: No space left on device"));
        assert!(known.matches("ERROR: Could not find a matching distribution for ray"));
        assert!(!known.matches("ERROR: distribution: Could not find"));
        assert_eq!(
            known.fill("no {what}: {line}", "Could not find a distribution"),
            "no  a : Could not find a distribution"
        );
        assert_eq!(known.fill("{what}", "No space left"), "");
    }
}
