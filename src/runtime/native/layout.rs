//! Where things lie in a host's folder, and the short link to it.

use std::path::{Path, PathBuf};

use crate::name::{Key, Tag};
use crate::util::digest;

/// The longest path of Ray's temporary folder: a socket's path takes 107 bytes, and Ray adds
/// `/session_<date>_<time>_<microseconds>_<pid>/sockets/dash_ReportHead` (66 bytes, ray 2.60.0).
pub(super) const LONGEST_TEMP_DIR: usize = 41;

/// The places in one host's folder.
#[derive(Debug, Clone)]
pub struct Layout {
    home: PathBuf,
    link: PathBuf,
}

impl Layout {
    /// The layout of a host: its folder, its tag, and the folder in which the short link lies.
    pub fn new(home: &Path, tag: &Tag, links: &Path) -> Self {
        let name = &digest::short(tag.to_string().as_bytes())[..6];
        Self { home: home.to_owned(), link: links.join(name) }
    }

    /// The host's folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The short link to the folder of Ray's temporary files.
    pub fn link(&self) -> &Path {
        &self.link
    }

    /// Ray's temporary folder of one node, by its short path.
    pub fn temp_dir(&self, key: &Key) -> PathBuf {
        let name = key.as_str();
        self.link.join(if name == "head" { "h".to_owned() } else { name.replacen("worker", "w", 1) })
    }

    /// Ray's temporary folder of one node, by its real path.
    pub fn real_temp_dir(&self, key: &Key) -> PathBuf {
        let short = self.temp_dir(key);
        self.home.join("ray").join(short.file_name().unwrap_or_default())
    }

    /// What a node prints.
    pub fn log(&self, key: &Key) -> PathBuf {
        self.home.join("logs").join(format!("{}.log", key.display_name()))
    }

    /// The file with the cluster's token.
    pub fn token(&self) -> PathBuf {
        self.home.join("secrets/ray_token")
    }

    /// What runs a node and ends all that came of it.
    pub fn reaper_script(&self) -> PathBuf {
        self.home.join("reaper.py")
    }

    /// The launcher of nodes.
    pub fn node_script(&self) -> PathBuf {
        self.home.join("node.py")
    }

    /// Temporary files of tasks, by a short path: Python puts sockets there (`<TMPDIR>/pymp-…/listener-…`).
    pub fn tmp(&self) -> PathBuf {
        self.link.join("t")
    }
}
