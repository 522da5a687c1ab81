//! The layout of a host's folder, and the short link to it.

use std::path::{Path, PathBuf};

use crate::name::{Key, Tag};
use crate::runtime::project::DATA_FOLDER;
use crate::util::digest;

/// The longest path of Ray's temporary folder: a socket path is limited to 107 bytes, and Ray adds
/// `/session_<date>_<time>_<microseconds>_<pid>/sockets/dash_ReportHead` (66 bytes, ray 2.60.0).
pub(super) const LONGEST_TEMP_DIR: usize = 41;

/// The paths in one host's folder.
#[derive(Debug, Clone)]
pub struct Layout {
    home: PathBuf,
    link: PathBuf,
}

impl Layout {
    /// The layout of a host, from its folder, its tag, and the folder for the short link.
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

    /// The short path of a node's temporary folder.
    pub fn temp_dir(&self, key: &Key) -> PathBuf {
        let name = key.as_str();
        self.link.join(if name == "head" { "h".to_owned() } else { name.replacen("worker", "w", 1) })
    }

    /// The real path of a node's temporary folder.
    pub fn real_temp_dir(&self, key: &Key) -> PathBuf {
        let short = self.temp_dir(key);
        self.home.join("ray").join(short.file_name().unwrap_or_default())
    }

    /// The log file of a node's output.
    pub fn log(&self, key: &Key) -> PathBuf {
        self.home.join("logs").join(format!("{}.log", key.display_name()))
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.home.join(DATA_FOLDER)
    }

    /// The file with the cluster's token.
    pub fn token(&self) -> PathBuf {
        self.home.join("secrets/ray_token")
    }

    /// The program that runs a node and ends all its descendants.
    pub fn reaper_script(&self) -> PathBuf {
        self.home.join("reaper.py")
    }

    /// The program that starts the object store.
    pub fn store_script(&self) -> PathBuf {
        self.home.join("store.py")
    }

    /// The folder of the object store's sockets, with a short path, and its name beside those of nodes.
    pub fn store_sockets(&self) -> (PathBuf, &'static str) {
        (self.link.join("o"), "o")
    }

    /// The file with the credentials of the object store.
    pub fn store_credentials(&self) -> PathBuf {
        self.home.join("secrets/aws_credentials")
    }

    /// The launcher of nodes.
    pub fn node_script(&self) -> PathBuf {
        self.home.join("node.py")
    }

    /// The folder for tasks' temporary files, with a short path: Python puts sockets there
    /// (`<TMPDIR>/pymp-…/listener-…`).
    pub fn tmp(&self) -> PathBuf {
        self.link.join("t")
    }
}
