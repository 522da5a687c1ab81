//! The ports of a node: a block of its own, so that neither two nodes nor two clusters collide.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::pids;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::{Key, Scope};
use crate::util::fs::create_private_dir;
use crate::util::ports::{holder, is_free, listeners};

/// How many ports a block has: twelve for Ray's servers, the rest for worker processes.
const BLOCK: u16 = 100;
/// Where blocks lie: below the ports that Linux hands out by itself (32768 and up).
const BLOCKS: std::ops::Range<u16> = 200..327;

/// The ports of one node, all derived from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePorts {
    /// The first port of the block; the head's GCS.
    pub base: u16,
    /// The head's dashboard and job API.
    pub dashboard: u16,
}

impl NodePorts {
    /// The head's GCS.
    pub fn gcs(&self) -> u16 {
        self.base
    }
    /// The head's Ray Client server.
    pub fn client(&self) -> u16 {
        self.base + 2
    }
    /// Metrics of the node.
    pub fn metrics(&self) -> u16 {
        self.base + 3
    }
    /// The raylet.
    pub fn node_manager(&self) -> u16 {
        self.base + 4
    }
    /// The object manager.
    pub fn object_manager(&self) -> u16 {
        self.base + 5
    }
    /// The dashboard agent's HTTP server.
    pub fn agent_http(&self) -> u16 {
        self.base + 6
    }
    /// The dashboard agent's gRPC server.
    pub fn agent_grpc(&self) -> u16 {
        self.base + 7
    }
    /// The runtime environment agent.
    pub fn runtime_env(&self) -> u16 {
        self.base + 8
    }
    /// The head's autoscaler metrics.
    pub fn autoscaler_metrics(&self) -> u16 {
        self.base + 9
    }
    /// The head's dashboard metrics.
    pub fn dashboard_metrics(&self) -> u16 {
        self.base + 10
    }
    /// The ports of worker processes, both ends included.
    pub fn workers(&self) -> (u16, u16) {
        (self.base + 12, self.base + BLOCK - 1)
    }
}

/// Refuses a port for the dashboard on which somebody else than this cluster listens, and says who.
pub fn refuse_taken(scope: &Scope, port: u16) -> Result<()> {
    if is_free(port) || listeners(&pids(scope)).iter().any(|listener| listener.port == port) {
        return Ok(());
    }
    let who = match holder(port) {
        Some((pid, command)) => format!("process {pid} (`{command}`) listens on it"),
        None => "a process that this user may not see listens on it".to_owned(),
    };
    Err(Error::new(ErrorKind::Host, format!("use port {port} for the dashboard (ray.head.dashboard_port)"))
        .because(who)
        .hint("end that process, name another port, or leave `dashboard_port` out: then gpucl finds a free one"))
}

/// Claims a free block for a node; the one that it had before, if that is still free.
///
/// A claim is a file named by the block, with the tag in it: two gpucl that look at the same time do not choose the same.
pub fn allocate(
    claims: &Path,
    scope: &Scope,
    key: &Key,
    before: Option<NodePorts>,
    dashboard: Option<u16>,
) -> Result<NodePorts> {
    let doing = || format!("find ports for {}", key.display_name());
    if let Some(port) = dashboard {
        refuse_taken(scope, port)?;
    }
    let tag = scope.tag(key).to_string();
    for base in before.map(|ports| ports.base).into_iter().chain(blocks(&tag)) {
        if (base..base + BLOCK).all(is_free)
            && claim(&claims.join(base.to_string()), &tag).doing(ErrorKind::Host, doing)?
        {
            return Ok(NodePorts { base, dashboard: dashboard.unwrap_or(base + 1) });
        }
    }
    Err(Error::new(ErrorKind::Host, doing())
        .because(format!(
            "no {BLOCK} ports in a row are free between {} and {}",
            BLOCKS.start * BLOCK,
            BLOCKS.end * BLOCK
        ))
        .hint("`gpucl list` shows the clusters that hold ports; `gpucl down -c NAME` frees them"))
}

/// The ports that a node is given when nobody has them, without a look at who has; `others` are those of the nodes before it.
pub fn first_choice(scope: &Scope, key: &Key, others: &[NodePorts], dashboard: Option<u16>) -> NodePorts {
    let taken = |base: &u16| others.iter().any(|other| other.base == *base);
    let base = blocks(&scope.tag(key).to_string()).find(|base| !taken(base)).unwrap_or(BLOCKS.start * BLOCK);
    NodePorts { base, dashboard: dashboard.unwrap_or(base + 1) }
}

/// The first ports of all blocks, in the order in which this tag tries them.
///
/// Where to begin depends on the tag, so that clusters side by side rarely meet at all.
fn blocks(tag: &str) -> impl Iterator<Item = u16> {
    let seed = crate::util::digest::short(tag.as_bytes());
    let seed = u16::from_str_radix(&seed[..4], 16).unwrap_or_default();
    let span = BLOCKS.end - BLOCKS.start;
    (0..span).map(move |offset| (BLOCKS.start + (seed % span + offset) % span) * BLOCK)
}

/// Claims a block; one that this very node claimed before is its own.
fn claim(path: &Path, tag: &str) -> std::io::Result<bool> {
    use std::io::Write as _;
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    // The tag stands in the file before the file has its name: a crash leaves no claim of nobody.
    let write = || -> std::io::Result<tempfile::NamedTempFile> {
        // Another cluster's end may take the empty folder away between the two.
        create_private_dir(folder)?;
        let mut file = tempfile::Builder::new().prefix(".claim-").tempfile_in(folder)?;
        file.write_all(tag.as_bytes())?;
        Ok(file)
    };
    let file =
        write().or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { write() } else { Err(error) })?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
            Ok(fs_err::read_to_string(path).is_ok_and(|holder| holder == tag))
        }
        Err(error) => Err(error.error),
    }
}

/// Gives up all blocks of these tags.
pub fn release(claims: &Path, holds: impl Fn(&str) -> bool) {
    let Ok(entries) = fs_err::read_dir(claims) else { return };
    for entry in entries.flatten() {
        if fs_err::read_to_string(entry.path()).is_ok_and(|tag| holds(&tag)) {
            let _ = fs_err::remove_file(entry.path());
        }
    }
    let _ = fs_err::remove_dir(claims);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_never_share_a_block_and_a_node_keeps_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let claims = folder.path().join("ports");
        let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "a".parse().unwrap() };
        let head = allocate(&claims, &scope, &Key::head(), None, None).unwrap();
        let worker = allocate(&claims, &scope, &Key::worker(0), Some(head), None).unwrap();
        assert_ne!(head.base, worker.base, "a block that another holds is not taken, though nobody listens yet");
        assert_eq!(allocate(&claims, &scope, &Key::head(), Some(head), None).unwrap(), head);
        release(&claims, |tag| tag.ends_with("-head"));
        assert!(!claims.join(head.base.to_string()).exists());
        assert!(claims.join(worker.base.to_string()).exists());
    }

    #[test]
    fn a_taken_port_names_who_takes_it() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "a".parse().unwrap() };
        let error = allocate(&folder.path().join("p"), &scope, &Key::head(), None, Some(port)).unwrap_err();
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        assert!(!folder.path().join("p").exists(), "nothing was changed");
    }
}
