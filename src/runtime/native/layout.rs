//! Where things lie in a host's folder, and the short link to it.

use std::path::{Path, PathBuf};

use crate::error::{Doing as _, ErrorKind, Result};
use crate::name::{Key, Tag};
use crate::util::{digest, fs};

/// The longest path of Ray's temporary folder: a socket's path takes 107 bytes, and Ray adds
/// `/session_<date>_<time>_<microseconds>_<pid>/sockets/dash_ReportHead` (66 bytes, ray 2.60.0).
const LONGEST_TEMP_DIR: usize = 41;

/// The places in one host's folder.
#[derive(Debug, Clone)]
pub struct Layout {
    home: PathBuf,
    link: PathBuf,
}

impl Layout {
    /// The layout of a host: its folder, its tag, and the folders in which the short link may lie.
    pub fn new(home: &Path, tag: &Tag, runtime_dir: &Path) -> Self {
        let name = &digest::short(tag.to_string().as_bytes())[..6];
        let fits = |folder: &Path| folder.as_os_str().len() + "/123456/w255".len() <= LONGEST_TEMP_DIR;
        let folder = if fits(runtime_dir) {
            runtime_dir.to_owned()
        } else {
            PathBuf::from(format!("/tmp/gpucl-{}", rustix::process::getuid().as_raw()))
        };
        Self { home: home.to_owned(), link: folder.join(name) }
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

    /// What a node is started with.
    pub fn launch_file(&self, key: &Key) -> PathBuf {
        self.home.join("nodes").join(format!("{key}.json"))
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

    /// The prover.
    pub fn probe_script(&self) -> PathBuf {
        self.home.join("probe.py")
    }

    /// Temporary files of tasks, by a short path: Python puts sockets there (`<TMPDIR>/pymp-…/listener-…`).
    pub fn tmp(&self) -> PathBuf {
        self.link.join("t")
    }

    /// Makes the folders of a node and the short link.
    pub fn create(&self, key: &Key) -> Result<()> {
        let doing = || format!("make the folders of {} in {}", key.display_name(), self.home.display());
        for folder in
            [self.home.join("logs"), self.home.join("nodes"), self.home.join("ray/t"), self.real_temp_dir(key)]
        {
            fs::create_private_dir(&folder).doing(ErrorKind::Host, doing)?;
        }
        if let Some(folder) = self.link.parent() {
            crate::util::runtime_dir::make_runtime_dir(folder)?;
        }
        let target = self.home.join("ray");
        if fs_err::read_link(&self.link).is_ok_and(|to| to == target) {
            return Ok(());
        }
        match fs_err::remove_file(&self.link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).doing(ErrorKind::Host, doing);
            }
            _ => {}
        }
        match fs_err::os::unix::fs::symlink(&target, &self.link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error).doing(ErrorKind::Host, doing),
            _ => Ok(()),
        }
    }

    /// Removes the short link; the host's folder is the provider's to remove.
    pub fn remove_link(&self) -> Result<()> {
        match fs_err::remove_file(&self.link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).doing(ErrorKind::Host, || format!("remove the link {}", self.link.display()))
            }
            _ => {
                // The folder above is the user's runtime folder of gpucl: it goes when nothing is left in it.
                if let Some(folder) = self.link.parent() {
                    let _ = fs_err::remove_dir(folder);
                }
                Ok(())
            }
        }
    }
}
