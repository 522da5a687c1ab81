//! A stage: what one host program does, and what it tells afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Facts;
use crate::error::{Error, ErrorKind, Result};
use crate::event::StepOutcome;
use crate::host::StageFile;
use crate::util::digest;

/// One stage of one host: steps in order, and files that they need.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Its name, such as `prepare`: lower-case letters, digits and hyphens.
    pub name: String,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// Files that are there before the first step.
    pub files: Vec<StageFile>,
    /// What each step finds as shell variables, literally.
    pub variables: BTreeMap<String, String>,
    /// How long all steps together may take.
    pub timeout: Duration,
}

/// One step, ready to be run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// What a person calls it: `create the Ray environment`.
    pub name: String,
    /// A shell text; when it succeeds, the step is skipped. It must change nothing.
    pub unless: Option<String>,
    /// The shell text, run with `set -eu` in the host's folder.
    pub run: String,
    /// A path; when it exists, the step is skipped.
    pub creates: Option<String>,
    /// The host is started anew after it, and the stage is begun again: by then it must be one to be skipped. Not when it was
    /// skipped.
    pub reboot: bool,
    /// It puts back what an earlier step changed for the time of the stage: it is run when a step before it failed, too.
    pub finally: bool,
    /// What this step finds as shell variables besides the stage's.
    pub variables: BTreeMap<String, String>,
    /// How often it is tried again after a failure.
    pub retry: u32,
    /// How long it may take; without it only the stage's limit holds.
    pub timeout: Option<Duration>,
    /// What of the host it may change, in words; no part of what it does.
    pub affected_paths: Vec<String>,
    /// What a person may do when it fails.
    pub hint: Option<String>,
    /// Failures that are known by what they print.
    pub errors: Vec<KnownError>,
}

/// A failure that is known by what it prints.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownError {
    /// Texts separated by `|`, one of which a printed line must hold; `.*` within one stands for anything.
    pub matches: String,
    /// What it means; `{line}` stands for the line that matched.
    pub says: String,
    /// What to do; `{line}` stands for the line that matched.
    #[serde(default)]
    pub hint: Option<String>,
}

impl KnownError {
    /// Whether this line is of this failure.
    pub fn matches(&self, line: &str) -> bool {
        self.matches.split('|').any(|text| {
            let mut rest = Some(line);
            for part in text.split(".*") {
                rest = rest.and_then(|line| line.split_once(part).map(|(_, rest)| rest));
            }
            rest.is_some()
        })
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

/// What a stage told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageReport {
    /// What the host is.
    pub facts: Facts,
    /// The steps that were looked at, in order; none when the whole stage was skipped.
    pub steps: Vec<StepReport>,
    /// What the steps handed back with `value`.
    pub values: BTreeMap<String, String>,
    /// Nothing was started: the stage had succeeded before and still holds.
    pub skipped_as_unchanged: bool,
    /// It was started by another call, and this one followed it.
    pub attached: bool,
}

impl Stage {
    /// One stage of several, one after another; the variables of each stay its own. What is put back at the end of a stage is put
    /// back at the end of all.
    pub fn join(name: &str, stages: Vec<Self>, timeout: Duration) -> Self {
        let mut joined =
            Self { name: name.to_owned(), steps: Vec::new(), files: Vec::new(), variables: BTreeMap::new(), timeout };
        let mut last = Vec::new();
        for stage in stages {
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

    /// The digest of what the stage would do. How long it may take is no part of it.
    pub fn digest(&self) -> String {
        let steps: Vec<_> = self
            .steps
            .iter()
            .map(|step| (&step.name, &step.unless, &step.run, &step.creates, &step.variables, step.reboot))
            .collect();
        let files: Vec<_> = self.files.iter().map(|file| (&file.path, file.mode, digest::short(&file.bytes))).collect();
        digest::of_json(&(1, &self.name, steps, files, &self.variables))
    }

    /// Refuses what cannot be compiled. All of it is a mistake of a playbook or of ours, found before anything is sent.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |cause: String| {
            Err(Error::new(ErrorKind::Internal, format!("compile the stage `{}`", self.name)).because(cause))
        };
        let plain = |name: &str, more: char| {
            name.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '_')
                && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == more)
        };
        if !plain(&self.name, '-') {
            return wrong("its name is not of lower-case letters, digits and hyphens".to_owned());
        }
        let variables = || self.variables.iter().chain(self.steps.iter().flat_map(|step| &step.variables));
        if let Some((name, _)) = variables().find(|(name, _)| !plain(name, '_') || name.starts_with("gpucl_")) {
            return wrong(format!("`{name}` is no name of a variable"));
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
        };
        assert!(known.matches("tar: write error: No space left on device"));
        assert!(known.matches("ERROR: Could not find a matching distribution for ray"));
        assert!(!known.matches("ERROR: distribution: Could not find"));
    }
}
