//! Runs a stage on a host: one exec when all goes well, another for each that breaks.

use std::future::Future;
use std::time::Duration;

use super::compile::{self, Ids, ProgramPlace};
use super::follow::Follower;
use super::restart::Restart;
use super::stage::{Stage, StageReport};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::Bus;
use crate::host::{ExecEnd, Host, Stream};
use crate::util::random;

/// How many execs in a row may break without progress before giving up.
const ATTEMPTS: u32 = 6;

/// Runs a stage on a host and follows it to its end.
///
/// A step may reboot the machine: once it is back, the stage is sent again and skips what is done.
/// A program that already runs there is followed first; if it is the same stage, its report is returned. When `cancel`
/// completes, following stops and the program goes on: [`end_program`] ends it.
///
/// # Errors
/// When a step fails or exceeds its limit, the host cannot be written, or the connection breaks repeatedly.
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
    let place = ProgramPlace::of(host);
    let mut restart = Restart::default();
    loop {
        ids.exec_nonce = random::letters(20)?;
        let resume = follower.begin_exec(&ids.exec_nonce);
        let program = compile::stage_program(&place, stage, &ids, resume.as_ref());
        let mut on_line = |stream: Stream, line: &str| follower.line(stream, line);
        let ended = tokio::select! {
            ended = host.exec(&program, &mut on_line) => ended,
            () = &mut cancel => {
                let mut error = Error::new(ErrorKind::Cancelled, doing()).because("it was interrupted");
                if follower.followed_stage().is_some() {
                    error = error.hint("its program goes on there; run the same command again to follow it");
                }
                return Err(error);
            }
        };
        if restart.is_back(follower.boot_id()) {
            events.note(format!("{} rebooted", host.name()));
        }
        if follower.restarts() || (restart.is_awaited() && !follower.is_whole()) {
            tokio::select! {
                waited = restart.wait(host, follower.boot_id(), events) => waited.map_err(|error| error.while_doing(doing()))?,
                () = &mut cancel => {
                    let error = Error::new(ErrorKind::Cancelled, doing());
                    return Err(error.because("it was stopped while the machine reboots"));
                }
            }
            ids.program = random::letters(16)?;
            ids.program_nonce = random::letters(20)?;
            follower.start_over(&ids.program);
            broken = 0;
            continue;
        }
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
            return Err(error.hint("a started program goes on there; run the same command again to follow it"));
        }
        events.note(format!("{}: {why}; connecting again", host.name()));
        let pause = Duration::from_millis(100 << broken);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut cancel => return Err(Error::new(ErrorKind::Cancelled, doing()).because("it was interrupted")),
        }
    }
}

/// The program that [`run_stage`] sends, for a person to read: with placeholders for its random ids.
pub fn program_text(home: &str, stage: &Stage) -> Result<String> {
    stage.check()?;
    let ids = Ids {
        program: "PROGRAM".to_owned(),
        program_nonce: "MARK-OF-THE-PROGRAM".to_owned(),
        exec_nonce: "MARK-OF-THE-EXEC".to_owned(),
    };
    Ok(compile::stage_program(&ProgramPlace::at(home), stage, &ids, None))
}

/// Ends the program running on a host, and every process of its steps; returns its stage if one ran.
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
    host.exec(&compile::end_program(&ProgramPlace::of(host), &nonce), &mut on_line).await?;
    if whole {
        Ok(ended)
    } else {
        Err(Error::new(ErrorKind::Host, format!("end the program on the host {}", host.name()))
            .status(Status::Temporary)
            .because("the connection to the host broke"))
    }
}
