//! Running a stage on a host: one exec when all goes well, another for each that breaks.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use super::compile::{self, Ids};
use super::facts::Facts;
use super::follow::Follower;
use super::stage::{Stage, StageReport};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::Bus;
use crate::host::{ExecEnd, Host, Stream};
use crate::util::random;

/// How many execs in a row may break without any news before it is given up.
const ATTEMPTS: u32 = 6;

/// Runs a stage on a host and follows it to its end.
///
/// A program that runs there already is followed first; when it is this very stage, its report is ours. When `cancel` is
/// done, following stops and the program goes on: [`end_program`] ends it.
///
/// # Errors
/// When a step fails or takes too long, when the host cannot be written, or when its connection breaks again and again.
pub async fn run_stage(
    host: &dyn Host,
    stage: &Stage,
    events: &Bus,
    cancel: impl Future<Output = ()> + Send,
) -> Result<StageReport> {
    stage.check()?;
    let doing = || format!("{} {}", stage.name, host.name());
    let mut ids =
        Ids { program: random::letters(16)?, program_nonce: random::letters(20)?, exec_nonce: random::letters(20)? };
    let mut follower = Follower::new(host.name(), stage, events, &ids.program);
    let mut cancel = std::pin::pin!(cancel);
    let mut broken = 0;
    loop {
        ids.exec_nonce = random::letters(20)?;
        let resume = follower.begin_exec(&ids.exec_nonce);
        let program = compile::stage_program(host.home(), stage, &ids, resume.as_ref());
        let mut on_line = |stream: Stream, line: &str| follower.line(stream, line);
        let ended = tokio::select! {
            ended = host.exec(&program, &mut on_line) => ended,
            () = &mut cancel => {
                let mut error = Error::new(ErrorKind::Cancelled, doing()).because("it was stopped");
                if follower.followed_stage().is_some() {
                    error = error.hint("its program goes on there; run the same command again to follow it");
                }
                return Err(error);
            }
        };
        if follower.is_whole() {
            return follower.finish();
        }
        broken = if follower.progress { 1 } else { broken + 1 };
        let why = match ended {
            Ok(ExecEnd::Broken) => "the connection to the host broke".to_owned(),
            Ok(ExecEnd::Exited(code)) => {
                format!("the shell on the host ended with exit code {code}")
            }
            Err(error) if broken >= ATTEMPTS => return Err(error.while_doing(doing())),
            Err(error) => error.to_string(),
        };
        if broken >= ATTEMPTS {
            let mut error = Error::new(ErrorKind::Host, doing()).status(Status::Persistent).because(why);
            if let Some(words) = follower.last_words() {
                error = error.because(words);
            }
            return Err(error.hint("a program that was begun goes on there; run the same command again to follow it"));
        }
        events.note(format!("{}: {why}; connecting again", host.name()));
        let pause = Duration::from_millis(100 << broken);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut cancel => return Err(Error::new(ErrorKind::Cancelled, doing()).because("it was stopped")),
        }
    }
}

/// The program that [`run_stage`] sends, for a person to read: words stand where it has random letters.
pub fn program_text(home: &str, stage: &Stage) -> Result<String> {
    stage.check()?;
    let ids = Ids {
        program: "PROGRAM".to_owned(),
        program_nonce: "MARK-OF-THE-PROGRAM".to_owned(),
        exec_nonce: "MARK-OF-THE-EXEC".to_owned(),
    };
    Ok(compile::stage_program(home, stage, &ids, None))
}

/// Learns what a host is, by one exec that changes nothing.
pub async fn facts(host: &dyn Host) -> Result<Facts> {
    let doing = || format!("learn what the host {} is", host.name());
    let nonce = random::letters(20)?;
    let mark = format!("::gpucl {nonce} ");
    let (mut facts, mut whole, mut last_words) = (Facts::default(), false, None);
    let mut on_line = |stream: Stream, line: &str| {
        if stream == Stream::Err {
            last_words = Some(line.to_owned());
        } else if let Some(said) = line.strip_prefix(&mark) {
            match said.split_once(' ') {
                Some(("fact", rest)) => {
                    let (key, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                    facts.take(key, rest);
                }
                _ => whole |= said == "bye",
            }
        }
    };
    let ended = host.exec(&compile::facts_program(host.home(), &nonce), &mut on_line).await?;
    if whole {
        return Ok(facts);
    }
    let error = Error::new(ErrorKind::Host, doing()).status(Status::Temporary).because(match ended {
        ExecEnd::Broken => "the connection to the host broke".to_owned(),
        ExecEnd::Exited(code) => format!("the shell on the host ended with exit code {code}"),
    });
    Err(match last_words {
        Some(words) => error.because(words),
        None => error,
    })
}

/// What one exec saw of a host; it changed nothing.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// What the host is.
    pub facts: Facts,
    /// The stages that were last seen through there, by name.
    pub stages: BTreeMap<String, StageState>,
    /// What the script printed.
    pub lines: Vec<String>,
}

/// A stage that was last seen through on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StageState {
    /// The digest of what it did.
    pub digest: String,
    /// What its steps handed back.
    pub values: BTreeMap<String, String>,
    /// Whether all that can be looked at cheaply is still there; only known for a stage that was asked about, with this digest.
    pub holds: Option<bool>,
}

/// Looks at a host by one exec: facts, stages, and what `script` prints besides. Changes nothing.
pub async fn look(host: &dyn Host, stages: &[&Stage], script: &str) -> Result<Look> {
    let _ = (stages, script);
    Ok(Look { facts: facts(host).await?, ..Look::default() })
}

/// Ends the program that runs on a host, and every process of its steps; hands back its stage when one ran.
pub async fn end_program(host: &dyn Host) -> Result<Option<String>> {
    let nonce = random::letters(20)?;
    let mark = format!("::gpucl {nonce} ");
    let (mut ended, mut whole) = (None, false);
    let mut on_line = |stream: Stream, line: &str| {
        if let (Stream::Out, Some(said)) = (stream, line.strip_prefix(&mark)) {
            match said.split_once(' ') {
                Some(("ended", stage)) => ended = Some(stage.to_owned()),
                _ => whole |= said == "bye",
            }
        }
    };
    host.exec(&compile::end_program(host.home(), &nonce), &mut on_line).await?;
    if whole {
        Ok(ended)
    } else {
        Err(Error::new(ErrorKind::Host, format!("end the program on the host {}", host.name()))
            .status(Status::Temporary)
            .because("the connection to the host broke"))
    }
}
