//! Turns the output of an exec into events and a report.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::cause::cause;
use super::compile::Resume;
use super::end::End;
use super::facts::Facts;
use super::stage::{Stage, StageReport, StepReport};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::{Bus, EventKind, StepOutcome};
use crate::host::Stream;
use crate::util::human;

/// How many of a step's last lines are searched for a known error.
const KEPT: usize = 400;
/// How many of a step's last lines an error shows.
const SHOWN: usize = 20;

/// How many bytes an exec may print before it confirms them: the longest log of a stage is a few megabytes.
pub(super) const UNCONFIRMED_LIMIT: usize = 64 * 1024 * 1024;

/// A line that is longer is taken in parts, in bytes: a host must not fill this machine's memory with one.
const LINE_LIMIT: usize = 1024 * 1024;

/// The program whose log is being followed.
#[derive(Debug, Clone, Default)]
struct Followed {
    nonce: String,
    id: String,
    stage: String,
    same: bool,
    seen: u64,
    /// The beginning of a line of its log whose end has not been received.
    partial: String,
}

/// The state of following one stage, across all its execs.
pub(super) struct Follower<'a> {
    host: &'a str,
    stage: &'a Stage,
    events: &'a Bus,
    own_id: String,
    exec_mark: String,
    followed: Option<Followed>,
    /// Log lines that the exec has not confirmed yet.
    unconfirmed: Vec<String>,
    /// Bytes received since the last confirmation.
    unconfirmed_bytes: usize,
    report: StageReport,
    values: BTreeMap<String, String>,
    step: Option<(usize, String)>,
    kept: VecDeque<String>,
    stderr: VecDeque<String>,
    end: Option<End>,
    trouble: Option<String>,
    whole: bool,
    /// There was progress since the last exec broke.
    pub(super) progress: bool,
}

impl<'a> Follower<'a> {
    pub(super) fn new(host: &'a str, stage: &'a Stage, events: &'a Bus, own_id: &str) -> Self {
        Self {
            host,
            stage,
            events,
            own_id: own_id.to_owned(),
            exec_mark: String::new(),
            followed: None,
            unconfirmed: Vec::new(),
            unconfirmed_bytes: 0,
            report: StageReport::default(),
            values: BTreeMap::new(),
            step: None,
            kept: VecDeque::new(),
            stderr: VecDeque::new(),
            end: None,
            trouble: None,
            whole: false,
            progress: false,
        }
    }

    /// Prepares for the next exec, whose lines carry this nonce; returns where it resumes.
    pub(super) fn begin_exec(&mut self, nonce: &str) -> Option<Resume> {
        self.exec_mark = format!("::gpucl {nonce} ");
        self.unconfirmed.clear();
        self.unconfirmed_bytes = 0;
        self.stderr.clear();
        self.values.clear();
        self.whole = false;
        self.progress = false;
        self.report.facts = Facts::default();
        self.followed.as_ref().map(|followed| Resume { program: followed.id.clone(), at: followed.seen })
    }

    /// Whether the machine is rebooting or about to: reported by the exec, or by the program's last lines.
    pub(super) fn restarts(&self) -> bool {
        self.end == Some(End::Reboot)
    }

    /// The boot id from the last exec; empty when it broke before reporting it.
    pub(super) fn boot_id(&self) -> &str {
        &self.report.facts.boot_id
    }

    /// Resets for another program after a reboot.
    pub(super) fn start_over(&mut self, own_id: &str) {
        own_id.clone_into(&mut self.own_id);
        self.followed = None;
        self.end = None;
        self.step = None;
    }

    /// Whether the exec's output is complete.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The last line of the exec's stderr.
    pub(super) fn last_words(&self) -> Option<&str> {
        self.stderr.back().map(String::as_str)
    }

    /// The stage name of the followed program.
    pub(super) fn followed_stage(&self) -> Option<&str> {
        self.followed.as_ref().map(|followed| followed.stage.as_str())
    }

    /// Takes one line of the exec.
    pub(super) fn line(&mut self, stream: Stream, line: &str) {
        if stream == Stream::Err {
            push(&mut self.stderr, line, SHOWN);
            return;
        }
        self.unconfirmed_bytes = self.unconfirmed_bytes.saturating_add(line.len() + size_of::<String>());
        if self.unconfirmed_bytes > UNCONFIRMED_LIMIT {
            self.unconfirmed.clear();
            self.trouble = Some(format!("it printed more than {} MiB without an end", UNCONFIRMED_LIMIT >> 20));
            return;
        }
        // The exec's own lines are always whole: it prints them before the log, or after whole lines of it.
        if let Some(rest) = line.strip_prefix(&self.exec_mark) {
            let rest = rest.to_owned();
            self.exec_line(&rest);
        } else if self.followed.is_some() {
            self.unconfirmed.push(line.to_owned());
        }
    }

    fn exec_line(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split(' ').collect();
        match word {
            "fact" => {
                let (key, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                self.report.facts.take(key, rest);
            }
            "value" => {
                if let Some((key, value)) = rest.split_once(' ') {
                    self.values.insert(key.to_owned(), value.to_owned());
                }
            }
            "unchanged" => {
                self.report.values = std::mem::take(&mut self.values);
                self.report.skipped_as_unchanged = true;
                self.end = Some(End::Done);
            }
            "log" => {
                if let &[nonce, id, same, stage] = words.as_slice() {
                    self.attach(nonce, id, same == "same", stage);
                }
            }
            "at" => {
                self.progress = true;
                self.unconfirmed_bytes = 0;
                let mut lines = std::mem::take(&mut self.unconfirmed);
                if let Some(followed) = &mut self.followed {
                    followed.seen = rest.parse().unwrap_or(followed.seen);
                    if let Some(first) = lines.first_mut() {
                        first.insert_str(0, &std::mem::take(&mut followed.partial));
                    }
                    // The exec ends the last line, whole or not.
                    followed.partial = lines.pop().unwrap_or_default();
                    if followed.partial.len() > LINE_LIMIT {
                        lines.push(std::mem::take(&mut followed.partial));
                    }
                }
                for line in lines {
                    self.log_line(&line);
                }
            }
            "over" => self.over(&words),
            "rebooting" => self.end = Some(End::Reboot),
            "waiting" => {
                if let &[limit, stage, tag] = words.as_slice() {
                    let limit_milliseconds = limit.parse().map_or(0, |limit: u64| limit.saturating_mul(1000));
                    let what = format!("{}: the program `{stage}` of {tag} to end", self.host);
                    self.progress = true;
                    self.events.send(EventKind::Waiting { what, limit_milliseconds });
                }
            }
            "trouble" => self.trouble = Some(rest.to_owned()),
            "bye" => self.whole = true,
            _ => {}
        }
    }

    fn attach(&mut self, nonce: &str, id: &str, same: bool, stage: &str) {
        if self.followed.as_ref().is_some_and(|followed| followed.id == id) {
            return;
        }
        let own = id == self.own_id;
        if !own {
            let doing = if same { "this stage" } else { "another program" };
            self.events.note(format!("{}: {doing} (`{stage}`) already runs there; following it", self.host));
        }
        self.report.steps.clear();
        self.report.attached = same && !own;
        self.step = None;
        self.followed = Some(Followed {
            nonce: nonce.to_owned(),
            id: id.to_owned(),
            stage: stage.to_owned(),
            same,
            ..Followed::default()
        });
    }

    /// Takes one whole line of the log. A marked line may follow a line that a step did not finish.
    fn log_line(&mut self, line: &str) {
        let Some(followed) = &self.followed else {
            return;
        };
        let mark = format!("::gpucl {} ", followed.nonce);
        match line.split_once(&mark) {
            None => self.step_line(line),
            Some((before, marked)) => {
                if !before.is_empty() {
                    self.step_line(before);
                }
                let marked = marked.to_owned();
                self.marked_line(&marked);
            }
        }
    }

    fn step_line(&mut self, line: &str) {
        // A progress bar overwrites its line: show only its last state.
        let line = line.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or("");
        push(&mut self.kept, line, KEPT);
        self.events.send(EventKind::HostLine { host: self.host.to_owned(), line: line.to_owned() });
    }

    fn marked_line(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "step" => {
                if let Some((number, name)) = rest.split_once(' ') {
                    self.step = Some((number.parse().unwrap_or(0), name.to_owned()));
                    self.kept.clear();
                    let line = format!("[{name}]");
                    self.events.send(EventKind::HostLine { host: self.host.to_owned(), line });
                }
            }
            "skip" => self.step_ended(rest, 2, StepOutcome::Skipped),
            "change" => self.step_ended(rest, 2, StepOutcome::Changed),
            "fail" => {
                let code = rest.split(' ').nth(2).unwrap_or_default().to_owned();
                self.step_ended(rest, 3, StepOutcome::Failed);
                self.end = Some(End::Failed { code });
            }
            "timeout" => {
                let mut words = rest.split(' ').skip(2);
                let limit = Duration::from_secs(words.next().and_then(|word| word.parse().ok()).unwrap_or(0));
                let of_step = words.next() == Some("step");
                self.step_ended(rest, 4, StepOutcome::Failed);
                self.end = Some(End::TimedOut { limit, of_step });
            }
            "reboot" => {
                self.step_ended(rest, 2, StepOutcome::Changed);
                // The exec seldom has time to report the end.
                self.end = Some(End::Reboot);
            }
            "retry" => {
                if let Some((attempt, name)) = rest.split_once(' ').and_then(|(_, rest)| rest.split_once(' ')) {
                    self.events.note(format!("{}: `{name}` failed; retrying ({attempt})", self.host));
                }
            }
            _ => {}
        }
    }

    /// `NUMBER MILLISECONDS … NAME`, with the name after `words` words.
    fn step_ended(&mut self, rest: &str, words: usize, outcome: StepOutcome) {
        let milliseconds = rest.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let name = rest.splitn(words + 1, ' ').nth(words).unwrap_or_default().to_owned();
        self.events.send(EventKind::Step {
            host: self.host.to_owned(),
            stage: self.followed_stage().unwrap_or(&self.stage.name).to_owned(),
            step: name.clone(),
            outcome,
            milliseconds,
        });
        self.report.steps.push(StepReport { name, outcome, milliseconds });
    }

    /// `ID result|died|stuck|gone VERDICT…`
    fn over(&mut self, words: &[&str]) {
        let partial = self.followed.as_mut().map(|followed| std::mem::take(&mut followed.partial)).unwrap_or_default();
        if !partial.is_empty() {
            self.log_line(&partial);
        }
        let end = match words {
            [_, "result", "ok", ..] => End::Done,
            [_, "result", "ended", ..] => End::Ended,
            [_, "result", "reboot", ..] => End::Reboot,
            // A marked line has reported how.
            [_, "result", ..] => self.end.clone().unwrap_or(End::Failed { code: "1".to_owned() }),
            [_, "stuck", ..] => End::Stuck,
            // A full disk keeps the result from being written, not always the log.
            _ => match self.end.take() {
                Some(end @ (End::Failed { .. } | End::TimedOut { .. })) => end,
                _ => End::Died,
            },
        };
        let values = std::mem::take(&mut self.values);
        let Some(followed) = &self.followed else {
            return;
        };
        if followed.same || end == End::Stuck {
            self.report.values = values;
            self.end = Some(end);
            return;
        }
        if !matches!(end, End::Done | End::Reboot) {
            self.events.warn(format!("{}: the program `{}` that ran there failed", self.host, followed.stage));
        }
        self.end = None;
        self.followed = None;
        self.report.steps.clear();
    }

    /// Returns the report, or the error described by the host's lines.
    pub(super) fn finish(self) -> Result<StageReport> {
        let doing = |what: &str| format!("{} {}{what}", self.stage.name, self.host);
        if let Some(trouble) = &self.trouble {
            let mut error = Error::new(ErrorKind::Host, doing("")).because(trouble);
            for line in &self.stderr {
                error = error.because(line);
            }
            if self.stderr.iter().chain([trouble]).any(|line| line.contains("No space left on device")) {
                error = error.hint("make room on the disk (see `df -h`), then run the same command again");
            }
            return Err(error);
        }
        let step = self.step.as_ref().map(|(_, name)| format!(": step `{name}`")).unwrap_or_default();
        match &self.end {
            Some(End::Done) => Ok(self.report),
            Some(End::Failed { code }) => {
                let error = Error::new(ErrorKind::Host, doing(&step));
                Err(self.explain(error, format!("it ended with exit code {code} and printed nothing")))
            }
            Some(End::TimedOut { limit, of_step }) => {
                let whose = if *of_step { "the step's" } else { "the stage's" };
                let error = Error::new(ErrorKind::Timeout, doing(&step)).because(format!(
                    "it did not end within {}, {whose} limit, and was ended",
                    human::duration(*limit)
                ));
                Err(self.explain(error, "it printed nothing".to_owned()))
            }
            Some(End::Ended) => Err(Error::new(ErrorKind::Cancelled, doing(&step))
                .because("its program was ended by another gpucl command")
                .hint("run the same command again")),
            Some(End::Reboot) => Err(Error::new(ErrorKind::Host, doing("")).because("the machine is rebooting")),
            Some(End::Stuck) => Err(Error::new(ErrorKind::Timeout, doing(&step)).because(format!(
                "the program `{}` on the host is past its limit and still running",
                self.followed_stage().unwrap_or(&self.stage.name)
            ))),
            Some(End::Died) | None => Err(Error::new(ErrorKind::Host, doing(&step))
                .because("its program disappeared without a result: it was killed, or the machine is out of memory")
                .status(Status::Temporary)
                .hint("run the same command again: finished steps are skipped")),
        }
    }

    /// Adds the meaning of the failed step's lines, and a hint.
    fn explain(&self, mut error: Error, silent: String) -> Error {
        let step = self.step.as_ref().and_then(|(number, _)| self.stage.steps.get(number.checked_sub(1)?));
        let known = step.and_then(|step| cause(&step.errors, self.kept.iter().map(String::as_str)));
        let lines = last_lines(&self.kept);
        match known {
            Some(cause) => {
                let known = &cause.known;
                error = error.because(cause.fill(&known.says));
                if known.retry {
                    error = error.status(Status::Temporary);
                }
                if known.says != "{line}" && !lines.is_empty() {
                    error = error.because(format!("its last lines were\n{lines}"));
                }
                if let Some(hint) = known.hint.as_ref().or(step.and_then(|step| step.hint.as_ref())) {
                    error = error.hint(cause.fill(hint));
                }
            }
            None => {
                error = error.because(if lines.is_empty() { silent } else { lines });
                if let Some(hint) = step.and_then(|step| step.hint.as_ref()) {
                    error = error.hint(hint);
                }
            }
        }
        error
    }
}

fn push(lines: &mut VecDeque<String>, line: &str, limit: usize) {
    if lines.len() == limit {
        lines.pop_front();
    }
    lines.push_back(line.to_owned());
}

fn last_lines(lines: &VecDeque<String>) -> String {
    let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}
