//! What is said over the control socket: one JSON line each way, one question per connection.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::name::{Key, Scope};
use crate::runtime::native::Launch;

/// The version of this form.
pub(super) const VERSION: u32 = 1;

/// The longest line that is read, in bytes: a question holds a node's environment.
pub(super) const MESSAGE_LIMIT: u64 = 4 * 1024 * 1024;

/// A question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Who are you, and what runs?
    Status,
    /// Start this node, unless it runs already.
    Start {
        /// What it is started with.
        launch: Box<Launch>,
    },
    /// Do not look after this node any more: it is about to be ended.
    LetGo {
        /// The node.
        key: Key,
    },
    /// From now on start workers again when they end by themselves.
    Supervise,
    /// End; the nodes go on.
    End,
}

/// An answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The version of this form.
    pub v: u32,
    /// The agent's version.
    pub agent: String,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The identity of the process that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it looks after.
    #[serde(default)]
    pub nodes: Vec<NodeStatus>,
}

/// One node as the agent sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub key: Key,
    /// The identity of its process.
    pub id: String,
    /// It runs.
    pub alive: bool,
    /// How it ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// How often it was started again.
    pub restarts: u32,
}

/// Whether a process of this user is at the other end: the folder keeps others out, and the kernel says it of each connection.
pub(super) fn is_of_this_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::getuid().as_raw())
}

/// Where a cluster's agent listens.
pub(super) fn socket(runtime_dir: &Path, scope: &Scope) -> PathBuf {
    let name = crate::util::digest::short(format!("{}/{}", scope.owner, scope.cluster).as_bytes());
    let path = runtime_dir.join(format!("{}.sock", &name[..8]));
    // A socket's path takes 107 bytes.
    if path.as_os_str().len() <= 100 {
        path
    } else {
        PathBuf::from(format!("/tmp/gpucl-{}/{}.sock", rustix::process::getuid().as_raw(), &name[..8]))
    }
}
