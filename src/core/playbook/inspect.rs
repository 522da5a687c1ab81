//! Inspects a host: one exec that changes nothing.

use std::collections::BTreeMap;

use super::compile::{self, ProgramPlace};
use super::facts::Facts;
use super::follow::UNCONFIRMED_LIMIT;
use super::stage::Stage;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::host::{ExecEnd, Host, Stream};
use crate::util::random;

/// The result of one read-only exec on a host.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// The host's facts.
    pub facts: Facts,
    /// The stages completed there, by name.
    pub stages: BTreeMap<String, StageState>,
    /// The stage whose program is running there.
    pub running: Option<String>,
    /// A reboot was requested and has not happened yet.
    pub rebooting: bool,
    /// The output of the script.
    pub lines: Vec<String>,
}

/// A completed stage of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StageState {
    /// The stage's digest when it was completed.
    pub digest: String,
    /// The values its steps returned.
    pub values: BTreeMap<String, String>,
    /// Whether its cheap checks still pass; `None` unless the stage was asked about with this digest.
    pub holds: Option<bool>,
}

/// Inspects a host in one read-only exec: facts, stages, and the output of `script`.
pub async fn inspect(host: &dyn Host, stages: &[&Stage], script: &str) -> Result<Inspection> {
    for stage in stages {
        stage.check()?;
    }
    let nonce = random::letters(20)?;
    run_inspection(host, &compile::inspect_program(&ProgramPlace::of(host), stages, script, &nonce), &nonce).await
}

/// Returns only the output of `script` and the boot id: fast enough to be called often.
pub async fn glance(host: &dyn Host, script: &str) -> Result<Inspection> {
    let nonce = random::letters(20)?;
    run_inspection(host, &compile::glance_program(&ProgramPlace::of(host), script, &nonce), &nonce).await
}

async fn run_inspection(host: &dyn Host, program: &str, nonce: &str) -> Result<Inspection> {
    let mut inspection = Inspection::default();
    let doing = format!("inspect the host {}", host.name());
    ask(host, &doing, program, nonce, &mut |word, rest| inspection.take(word, rest)).await?;
    Ok(inspection)
}

/// Collects a host's facts in one read-only exec.
pub async fn facts(host: &dyn Host) -> Result<Facts> {
    let nonce = random::letters(20)?;
    let mut inspection = Inspection::default();
    let program = compile::facts_program(&ProgramPlace::of(host), &nonce);
    let doing = format!("collect facts from the host {}", host.name());
    ask(host, &doing, &program, &nonce, &mut |word, rest| inspection.take(word, rest)).await?;
    Ok(inspection.facts)
}

impl Inspection {
    fn take(&mut self, word: &str, rest: &str) {
        let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "fact" => self.facts.take(first, more),
            "stage" => more.clone_into(&mut self.stages.entry(first.to_owned()).or_default().digest),
            "stage-value" => {
                let (key, value) = more.split_once(' ').unwrap_or((more, ""));
                let values = &mut self.stages.entry(first.to_owned()).or_default().values;
                values.insert(key.to_owned(), value.to_owned());
            }
            "holds" => self.stages.entry(first.to_owned()).or_default().holds = Some(more == "yes"),
            "running" => self.running = Some(rest.to_owned()),
            "rebooting" => self.rebooting = true,
            "line" => self.lines.push(rest.to_owned()),
            _ => {}
        }
    }
}

/// Runs a program that reports in marked lines, the last of them `bye`.
async fn ask(
    host: &dyn Host,
    doing: &str,
    program: &str,
    nonce: &str,
    take: &mut (dyn FnMut(&str, &str) + Send),
) -> Result<()> {
    let mark = format!("::gpucl {nonce} ");
    let (mut whole, mut last_words) = (false, None);
    let mut said_bytes = 0_usize;
    let mut on_line = |stream: Stream, line: &str| {
        said_bytes = said_bytes.saturating_add(line.len() + size_of::<String>());
        if said_bytes > UNCONFIRMED_LIMIT {
            // The rest is dropped, so the output is incomplete.
            whole = false;
            last_words = Some(format!("it printed more than {} MiB", UNCONFIRMED_LIMIT >> 20));
        } else if stream == Stream::Err {
            last_words = Some(line.to_owned());
        } else if let Some(said) = line.strip_prefix(&mark) {
            let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
            whole |= said == "bye";
            take(word, rest);
        }
    };
    let ended = host.exec(program, &mut on_line).await?;
    if whole {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Host, doing).status(Status::Temporary).because(match ended {
        ExecEnd::Broken => "the connection to the host broke".to_owned(),
        ExecEnd::Exited(code) => format!("the shell on the host ended with exit code {code}"),
    });
    Err(match last_words {
        Some(words) => error.because(words),
        None => error,
    })
}
