//! Sends a notice: a few times, each within a limit, and then no more.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;

use super::Parcel;
use super::said::{self, Step};
use crate::provider::kit::http::post_json;
use crate::spec::Route;
use crate::util::{child, human};

/// How often and how long it is tried.
struct Tries<'a> {
    /// The pauses before each attempt.
    pauses: &'a [Duration],
    /// How long a webhook may take to answer, and a program to end.
    limit: Duration,
}

/// Receivers that are restarted are back by then; chats answer within a second.
const TRIES: Tries<'_> = Tries {
    pauses: &[Duration::ZERO, Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30)],
    limit: Duration::from_secs(15),
};
/// The variables that a program gets: what it needs to run, and to reach the desktop. No credentials.
const VARIABLES: &[&str] =
    &["HOME", "USER", "LOGNAME", "PATH", "LANG", "TZ", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// Why a notice was not taken.
struct Refused {
    why: String,
    /// Whether it may be taken later.
    may_change: bool,
}

/// Sends a notice, unless it was said or another process is at it. `missed` is given the reason of the first attempt that
/// failed, while there are others to come.
///
/// # Errors
/// Why it was not taken in the end; never the URL of a webhook.
pub async fn deliver(
    parcel: &Parcel,
    environment: &BTreeMap<String, String>,
    missed: impl FnOnce(&str),
) -> Result<(), String> {
    deliver_with(&TRIES, parcel, environment, missed).await
}

async fn deliver_with(
    tries: &Tries<'_>,
    parcel: &Parcel,
    environment: &BTreeMap<String, String>,
    missed: impl FnOnce(&str),
) -> Result<(), String> {
    let Parcel { route, folder, key, again, notice } = parcel;
    if folder.as_ref().is_some_and(|folder| !said::claim(folder, key, *again)) {
        return Ok(());
    }
    let note = |step| folder.iter().for_each(|folder| said::note(folder, key, step));
    let text = serde_json::to_vec(notice).map_err(|error| error.to_string())?;
    let (mut why, mut missed) = (String::new(), Some(missed));
    for pause in tries.pauses {
        tokio::time::sleep(*pause).await;
        let refused = match tokio::time::timeout(tries.limit, attempt(route, &text, environment)).await {
            Ok(Ok(())) => {
                note(Step::Sent);
                return Ok(());
            }
            Ok(Err(refused)) => refused,
            Err(_) => {
                let why = format!("{} did not answer in {}", route.place(), human::short_duration(tries.limit));
                Refused { why, may_change: true }
            }
        };
        why = refused.why;
        missed.take().into_iter().for_each(|missed| missed(&why));
        if !refused.may_change {
            break;
        }
    }
    note(Step::Failed);
    Err(why)
}

async fn attempt(route: &Route, text: &[u8], environment: &BTreeMap<String, String>) -> Result<(), Refused> {
    match route {
        Route::Webhook { url } => post(url, text, &route.place()).await,
        Route::Command { command, folder, .. } => match route.changed() {
            Some(file) => {
                let why = format!("{} is another one than was accepted; `gpucl up` asks", file.display());
                Err(Refused { why, may_change: false })
            }
            None => run(command, folder, text, environment).await,
        },
    }
}

/// Posts it. The answer is not read: its status says enough, and its text is anybody's.
async fn post(url: &str, text: &[u8], place: &str) -> Result<(), Refused> {
    let refused = |why: String, may_change| Err(Refused { why: format!("{place} {why}"), may_change });
    match post_json(url, text.to_vec()).await {
        Ok(200..300) => Ok(()),
        Ok(status @ 300..400) => refused(format!("answered {status}: redirects are not followed"), false),
        Ok(status) => refused(format!("answered {status}"), status >= 500 || [408, 425, 429].contains(&status)),
        Err(why) => refused(format!("cannot be reached: {why}"), true),
    }
}

/// Ends a program with all that it has started.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.map(|group| kill_process_group(group, Signal::KILL));
    }
}

/// Runs the program, and gives it the notice. What it prints goes nowhere.
async fn run(
    command: &[String],
    folder: &Path,
    text: &[u8],
    environment: &BTreeMap<String, String>,
) -> Result<(), Refused> {
    let refused = |why: String| Refused { why, may_change: true };
    let Some((program, args)) = command.split_first() else { return Ok(()) };
    let is_passed = |name: &str| name.starts_with("LC_") || VARIABLES.contains(&name);
    let mut started = child::async_command(program);
    // It is the user's own program, which was accepted for this folder.
    started.args(args).current_dir(folder).env_clear();
    started.envs(environment.iter().filter(|(name, _)| is_passed(name)));
    started.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = started.spawn().map_err(|error| refused(format!("{program} cannot be started: {error}")))?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let mut group = Group(pid);
    if let Some(mut input) = child.stdin.take() {
        // One that does not read it may still end well.
        let _ = input.write_all(text).await;
    }
    let status = child.wait().await.map_err(|error| refused(format!("{program}: {error}")))?;
    // What it has left behind, such as a message on the desktop, may go on.
    group.0 = None;
    if status.success() { Ok(()) } else { Err(refused(format!("{program} failed: {status}"))) }
}
