//! Platforms: providers that run a whole cluster from objects of theirs, without hosts of ours.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::ResourceRequest;
use crate::error::Result;
use crate::host::ExecEnd;
use crate::name::{Scope, Tag};

/// The folder that every node has for what jobs keep; it ends with the node where the spec mounts nothing there.
pub const DATA: &str = "/data";

/// The folder that every node has with the files of its [`Preparation`].
pub const PREPARATION: &str = "/opt/gpucl";

/// The folder that every node has with the cluster's token, and with the secrets of jobs.
pub const SECRETS: &str = "/opt/gpucl-secrets";

/// The folder of the guard of the end in its own container of the head's pod, with its files and its state.
pub const GUARD: &str = "/run/gpucl/end";

/// What every node does before its Ray starts: it runs `start.py` of the folder [`PREPARATION`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preparation {
    /// The digest of the packages and commands: nodes that have others must be made again.
    pub setup: Option<String>,
    /// How long it may take.
    pub limit: Duration,
    /// The files of the folder, by name. Other files are brought to nodes that run, without a restart.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// The Prometheus of a platform, and how it finds what it collects from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prometheus {
    /// What messages call it.
    pub name: String,
    /// The labels by which it selects.
    pub labels: BTreeMap<String, String>,
    /// The namespace that it runs in, from which it connects to nodes.
    pub namespace: String,
    /// Its own address, for Ray's dashboard.
    pub address: String,
}

/// Nodes of a cluster that are alike: the head alone, or a group of workers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeGroup {
    /// `head`, or the group's name; `workers` for the only group of a spec.
    pub name: String,
    /// Logical CPUs of each node; the provider's default when absent. 0 for a head that runs no tasks.
    pub cpus: Option<u32>,
    /// GPUs of each node.
    pub gpus: u32,
    /// The memory of each node in bytes; the provider's default when absent.
    pub memory: Option<u64>,
    /// Shared memory for objects in bytes, of each node; Ray's default when absent.
    pub object_store_memory: Option<u64>,
    /// Custom resources of each node.
    pub resources: BTreeMap<String, f64>,
    /// Labels of each node.
    pub labels: BTreeMap<String, String>,
    /// How many there are; where there may be more or fewer, how many at the start.
    pub count: u32,
    /// The fewest that there may be.
    pub min: u32,
    /// The most that there may be. Ray's autoscaler adds and removes nodes where this is more than `min`.
    pub max: u32,
}

impl NodeGroup {
    /// Whether Ray's autoscaler decides how many there are.
    pub fn scales(&self) -> bool {
        self.max > self.min
    }
}

/// A cluster as a platform is asked for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterRequest {
    /// The version of Ray.
    pub ray_version: String,
    /// The head.
    pub head: NodeGroup,
    /// The groups of workers, in the order of the spec.
    pub workers: Vec<NodeGroup>,
    /// Environment variables of every node.
    pub environment: BTreeMap<String, String>,
    /// The platform's own Prometheus, which collects the metrics of all nodes; none does when absent.
    pub prometheus: Option<Prometheus>,
    /// What every node does before its Ray starts; nothing when absent.
    pub preparation: Option<Preparation>,
    /// Beside the head, a container of its own waits for the guard of the end in [`GUARD`], and runs it.
    pub guard: bool,
    /// No node runs, and what is not a node stays: the cluster is stopped.
    pub stopped: bool,
}

impl ClusterRequest {
    /// Whether Ray's autoscaler decides how many workers some group has.
    pub fn scales(&self) -> bool {
        self.workers.iter().any(NodeGroup::scales)
    }
}

/// Where a platform's clusters run, and as whom; shown before the first cluster there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Site {
    /// The address of its API.
    pub server: String,
    /// The place within it: the context and the namespace.
    pub place: String,
    /// The user there, as far as it is known.
    pub user: String,
}

/// What an update would change, and do to nodes that run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consequences {
    /// In words: which nodes restart, and why.
    pub lines: Vec<String>,
    /// The head is one of them.
    pub restarts_head: bool,
}

/// One node of a cluster, as the platform runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The platform's name for it: a pod's name.
    pub name: String,
    /// The name of its group; `head` for the head.
    pub group: String,
    /// It is the head.
    pub is_head: bool,
    /// Its address within the cluster, once it has one.
    pub address: Option<String>,
    /// It runs, and is ready for work.
    pub ready: bool,
    /// What it waits for, or how it ended, in one line; empty when it is ready.
    pub detail: String,
    /// The machine that it runs on, once it has one.
    pub machine: String,
    /// When it was created.
    pub since: Option<jiff::Timestamp>,
    /// How often its Ray was started again.
    pub restarts: u32,
}

/// Whether other nodes of the platform are kept away from a cluster's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// They do not connect.
    Enforced,
    /// They connect, so that only the token keeps them out.
    Open,
    /// It could not be tried, for this reason.
    Unknown(String),
}

/// A part of a node that programs run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    /// Where Ray and jobs are.
    #[default]
    Ray,
    /// Where the guard of the end is, beside the head alone.
    Guard,
}

/// Which lines of a log are wanted.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Of which part of the node.
    pub part: Part,
    /// Only so many of the last lines; all when absent.
    pub tail: Option<u32>,
    /// Go on with new lines until the node ends.
    pub follow: bool,
    /// Of the node's run before its last restart.
    pub previous: bool,
}

/// A byte stream in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A program that runs on a node. It ends with this.
pub struct Running {
    /// What the program reads; dropped, it reads the end.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    /// What it writes.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// What it writes to stderr; nothing in a terminal, where all is output.
    pub errors: Box<dyn AsyncRead + Send + Unpin>,
    /// Takes the terminal's new size, columns and rows.
    pub resize: mpsc::Sender<(u16, u16)>,
    /// How it ended, once its output was read.
    pub ended: BoxFuture<'static, ExecEnd>,
}

/// What a platform does beside acquiring and releasing objects.
///
/// As for [`super::Provider`], nothing relies on state kept in memory. Its errors are final: what passes is retried
/// inside.
#[async_trait]
pub trait Platform: Send + Sync {
    /// Where its clusters run, and as whom. Read-only, and no call to the platform where that is not needed.
    async fn site(&self) -> Result<Site>;

    /// Finds the Prometheus of the platform that collects metrics where the clusters run. Read-only.
    ///
    /// # Errors
    /// If there is none, or the user may not see it; the error says what to do.
    async fn prometheus(&self) -> Result<Prometheus>;

    /// Refuses what the platform cannot run, and looks at what is there: the operator and its version, the rights of
    /// the user. Returns notes for the user. Read-only.
    async fn check(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<Vec<String>>;

    /// The objects of a cluster, in an order in which they can be made; the last one runs it. Pure.
    fn objects(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<Vec<ResourceRequest>>;

    /// The objects as documents that another tool takes, without secrets. Pure.
    fn manifest(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<String>;

    /// Changes an object in place to what is requested now.
    ///
    /// # Behavior
    /// - Affects only this id. Fails if it is gone, or if somebody else has changed the same fields; the error says who.
    /// - May be called again.
    async fn update(&self, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()>;

    /// What [`Self::update`] would change, and do to nodes that run. Changes nothing.
    ///
    /// # Errors
    /// Those of [`Self::update`], as far as they can be known before.
    async fn consequences(&self, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<Consequences>;

    /// The nodes of a cluster, the head first. Read-only.
    async fn members(&self, scope: &Scope) -> Result<Vec<Member>>;

    /// Tries whether something beside the cluster connects to this port of its head.
    ///
    /// # Behavior
    /// - Leaves nothing: what tries it belongs to the cluster, and is gone with it at the latest.
    async fn isolation(&self, scope: &Scope, head: &Member, port: u16) -> Result<Isolation>;

    /// Shows the dashboards that this version of Ray has for Grafana in that of the platform; without a version they are
    /// removed.
    ///
    /// # Behavior
    /// - They are gone with the cluster at the latest.
    /// - May be called again; unchanged ones cost one look.
    async fn show_dashboards(&self, scope: &Scope, version: Option<&str>) -> Result<()>;

    /// Keeps a job's secrets, under this id, for nodes that come later; without a text it forgets them. Nodes that run
    /// may have them only after a minute.
    ///
    /// # Behavior
    /// - They are gone with the cluster at the latest.
    /// - May be called again.
    async fn keep_secrets(&self, scope: &Scope, id: &str, text: Option<&SecretString>) -> Result<()>;

    /// Starts a program on a node; with the size of a terminal, columns and rows, in a terminal of its own.
    async fn start(&self, member: &str, part: Part, command: &[&str], terminal: Option<(u16, u16)>) -> Result<Running>;

    /// Connects to a port on a node's loopback.
    async fn connect(&self, member: &str, port: u16) -> Result<Box<dyn Duplex>>;

    /// The lines that a node has written.
    async fn logs(
        &self,
        member: &str,
        options: &LogOptions,
        on_line: &mut (dyn for<'line> FnMut(&'line str) + Send),
    ) -> Result<()>;

    /// Ends one node without warning; the platform makes another where its group wants one.
    async fn kill(&self, scope: &Scope, member: &str) -> Result<()>;
}
