//! The layout of a host's folder, and the short link to it.

use std::path::{Path, PathBuf};

use crate::name::Key;
use crate::runtime::project::DATA_FOLDER;

/// The paths in one host's folder.
#[derive(Debug, Clone)]
pub struct Layout {
    home: PathBuf,
    link: PathBuf,
}

impl Layout {
    /// The layout of a host, from its folder and its folder of short paths, where `r` leads to Ray's files in the first.
    pub fn new(home: &Path, links: &Path) -> Self {
        Self { home: home.to_owned(), link: links.join("r") }
    }

    /// The host's folder.
    pub fn home(&self) -> &Path {
        &self.home
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

    /// The guard's program.
    pub fn guard_script(&self) -> PathBuf {
        self.home.join("end/guard.py")
    }

    /// The program that starts the MLflow server.
    pub fn tracking_script(&self) -> PathBuf {
        self.home.join("tracking.py")
    }

    /// The file with the address and the login of MLflow, for jobs.
    pub fn mlflow_login(&self) -> PathBuf {
        self.home.join("secrets/mlflow.json")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest path of Ray's temporary folder: a socket path is limited to 107 bytes, and Ray adds
    /// `/session_<date>_<time>_<microseconds>_<pid>/sockets/dash_ReportHead` (66 bytes, ray 2.60.0).
    const LONGEST_TEMP_DIR: usize = 41;

    #[test]
    fn paths_of_sockets_are_short_enough_for_the_system() {
        // As the claim script names it.
        let layout = Layout::new(Path::new("/home/somebody/.gpucl/host"), Path::new("/tmp/gpucl-0123abcd"));
        for key in [Key::head(), Key::worker(999)] {
            let folder = layout.temp_dir(&key);
            assert!(folder.as_os_str().len() <= LONGEST_TEMP_DIR, "{}", folder.display());
        }
    }
}
