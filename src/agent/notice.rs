//! The news of a cluster: what is sent to where `notify` of its spec says, and what was sent before.
//!
//! Each notice is sent by a process of its own, which nobody waits for: a receiver that is silent delays nothing. Commands
//! and the agent decide what is due ([`due`]), that process only sends ([`deliver`]).

mod due;
mod job;
mod said;
mod send;

use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::job::EndedJobs;
pub use self::said::Said;
pub use self::send::deliver;
use super::end::End;
use super::seen::Saved;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::name::ClusterName;
use crate::spec::Route;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, remove_file, write_atomic};
use crate::util::text::printable_line;
use crate::util::{child, digest, human};

/// The version of the format.
const VERSION: u32 = 1;
/// The most entries of a list in a notice, and letters of a text: some of them come from hosts.
const MOST_ENTRIES: usize = 20;
const MOST_LETTERS: usize = 500;
/// The most letters of a whole sentence.
const LONGEST_SENTENCE: usize = 3000;

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It is ready.
    Ready,
    /// A job has ended.
    JobEnded,
    /// It ends soon.
    EndsSoon,
    /// All that its spec names was saved before its end.
    Saved,
    /// The end has come, and not all was saved.
    NotSaved,
    /// It was taken down, or that has failed.
    Down,
}

/// One piece of news, as it is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    v: u32,
    cluster: ClusterName,
    /// What has happened.
    pub event: Event,
    /// It in a sentence, which chats show.
    pub text: String,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl Notice {
    fn new(cluster: &ClusterName, event: Event, text: &str, more: Value) -> Self {
        let more = if let Value::Object(more) = plain(more) { more } else { Map::new() };
        let text = plain_text(text, LONGEST_SENTENCE);
        Self { v: VERSION, cluster: cluster.clone(), event, text, more }
    }

    /// It is ready.
    pub fn ready(cluster: &ClusterName, end: Option<End>) -> Self {
        let ends = end.map(|end| format!("; it ends at {}: {}", human::local(end.at), end.why)).unwrap_or_default();
        let more = json!({ "ends": end.map(|end| end.at) });
        Self::new(cluster, Event::Ready, &format!("{cluster} is ready{ends}"), more)
    }

    /// A job has ended, with this status of Ray's.
    pub fn job_ended(cluster: &ClusterName, id: &str, status: &str) -> Self {
        let how = status.to_lowercase();
        let more = json!({ "job": id, "how": how });
        Self::new(cluster, Event::JobEnded, &format!("job {id} on {cluster} has ended: {how}"), more)
    }

    fn ends_soon(cluster: &ClusterName, end: End, left: Duration) -> Self {
        let minutes = human::count_u64(left.as_secs().div_ceil(60), "minute");
        let text = format!("{cluster} ends in {minutes}, at {}: {}", human::local(end.at), end.why);
        Self::new(cluster, Event::EndsSoon, &text, json!({ "at": end.at, "left_s": left.as_secs(), "why": end.why }))
    }

    fn saved(cluster: &ClusterName, saved: &[Saved]) -> Self {
        let text = format!("{cluster} is saved: {}", lines_of(saved));
        Self::new(cluster, Event::Saved, &text, json!({ "saved": saved }))
    }

    fn not_saved(cluster: &ClusterName, saved: &[Saved]) -> Self {
        let text = match saved.is_empty() {
            true => {
                format!("the end of {cluster} has come, and nothing is known to be saved: its hosts have not answered")
            }
            false => format!("the end of {cluster} has come, and NOT all of it is saved: {}", lines_of(saved)),
        };
        Self::new(cluster, Event::NotSaved, &text, json!({ "saved": saved }))
    }

    /// It was taken down: what it cost, what was saved before, and what is left or unknown.
    pub fn down(cluster: &ClusterName, cost: Option<&str>, saved: &[String], left: &[String]) -> Self {
        let mut text = match left.is_empty() {
            true => format!("{cluster} is down: nothing of it is left"),
            false => format!("{cluster} is down; left: {}", left.join("; ")),
        };
        text.extend(cost.map(|cost| format!("; it cost about {cost}")));
        if !saved.is_empty() {
            text.push_str(&format!("; saved before: {}", saved.join("; ")));
        }
        Self::new(cluster, Event::Down, &text, json!({ "left": left, "cost": cost, "saved": saved }))
    }

    /// It could not be taken down; this is left.
    pub fn not_down(cluster: &ClusterName, left: &[String]) -> Self {
        let text = format!(
            "{cluster} could not be taken down; left: {}; `gpucl down -c {cluster}` goes on",
            if left.is_empty() { "unknown".to_owned() } else { left.join("; ") }
        );
        Self::new(cluster, Event::Down, &text, json!({ "left": left, "failed": true }))
    }
}

fn lines_of(saved: &[Saved]) -> String {
    saved.iter().map(Saved::line).collect::<Vec<_>>().join("; ")
}

/// A text as one short line, without what chats take as a mention or a link: some of it comes from hosts.
fn plain_text(text: &str, most: usize) -> String {
    let letters = printable_line(text).replace('<', "‹").replace('>', "›").replace('&', "+");
    match letters.char_indices().nth(most) {
        Some((cut, _)) => format!("{}…", &letters[..cut]),
        None => letters,
    }
}

fn plain(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(plain_text(&text, MOST_LETTERS)),
        Value::Array(items) => items.into_iter().take(MOST_ENTRIES).map(plain).collect(),
        Value::Object(entries) => entries.into_iter().map(|(name, value)| (name, plain(value))).collect(),
        other => other,
    }
}

/// A notice on its way.
#[derive(Clone, Serialize, Deserialize)]
pub struct Parcel {
    /// Where it goes.
    pub route: Route,
    /// The folder of the cluster, which has the record of what was said; `None` once that is gone.
    pub folder: Option<PathBuf>,
    /// What is said: each once.
    pub key: String,
    /// Whether it is sent although it failed before.
    pub again: bool,
    /// The notice.
    pub notice: Notice,
}

/// A process that sends a notice.
pub struct Sending {
    child: tokio::process::Child,
    output: std::fs::File,
}

/// Starts the process that sends a notice. It goes on when this one ends. `environment` replaces this process's own; its
/// errors go to `log`.
///
/// # Errors
/// If it cannot be started.
pub fn start(
    program: &Path,
    environment: Option<&BTreeMap<String, String>>,
    log: Stdio,
    parcel: &Parcel,
) -> std::io::Result<Sending> {
    // Neither is a pipe, which somebody would have to read or write, nor a file, which could be read later.
    let (mut input, output) = (in_memory()?, in_memory()?);
    input.write_all(&serde_json::to_vec(parcel)?)?;
    input.rewind()?;
    let mut command = child::async_command(program);
    command.args(["agent", "--notify"]).stdin(input).stdout(output.try_clone()?).stderr(log).process_group(0);
    if let Some(environment) = environment {
        command.env_clear().envs(environment);
    }
    Ok(Sending { child: command.spawn()?, output })
}

fn in_memory() -> std::io::Result<std::fs::File> {
    Ok(rustix::fs::memfd_create("gpucl-notice", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

impl Sending {
    /// Waits so long for what comes of it. An error says why it was not taken yet, or ever; it may be tried again.
    pub async fn taken_within(mut self, limit: Duration) -> Result<(), String> {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        if matches!(ended, Ok(Ok(status)) if status.success()) {
            return Ok(());
        }
        // Without moving its place, which that process writes at.
        let mut why = [0; 1024];
        let read = self.output.read_at(&mut why, 0).unwrap_or_default();
        Err(match String::from_utf8_lossy(&why[..read]).trim() {
            "" => format!("no answer within {} s", limit.as_secs()),
            why => why.to_owned(),
        })
    }
}

/// Records where the news of a cluster goes, and begins the record of what was said; `None` forgets both.
///
/// # Errors
/// If the files cannot be written.
pub fn keep_route(folder: &Path, route: Option<&Route>) -> Result<()> {
    let path = route_file(folder);
    let doing = || format!("write {}", path.display());
    let Some(route) = route else { return forget(folder).doing(ErrorKind::State, doing) };
    let text = serde_json::to_vec(route).doing(ErrorKind::Internal, doing)?;
    path.parent().map_or(Ok(()), create_private_dir).doing(ErrorKind::State, doing)?;
    write_atomic(&path, &text, 0o600).doing(ErrorKind::State, doing)?;
    said::begin(folder).doing(ErrorKind::State, doing)
}

/// Where the news of a cluster goes.
pub fn kept_route(folder: &Path) -> Option<Route> {
    serde_json::from_slice(&read_within(&route_file(folder), RECORD_LIMIT).ok()?).ok()
}

/// The key of the news that a cluster is ready since then: another place is given it anew.
pub fn ready_key(since: Timestamp, route: &Route) -> String {
    format!("ready-{since}-{}", digest::of_json(route))
}

/// Removes all records of a cluster's news.
pub(super) fn forget(folder: &Path) -> std::io::Result<()> {
    remove_file(&route_file(folder))?;
    job::forget(folder)?;
    said::forget(folder)
}

/// The file with the whole URL: beside the cluster's other secrets.
fn route_file(folder: &Path) -> PathBuf {
    folder.join("secrets").join("notify.json")
}
