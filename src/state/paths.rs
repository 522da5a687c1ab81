//! Where everything of one user lies.

use std::path::{Path, PathBuf};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::util::fs::create_private_dir;

/// The folders of one user; the command line finds them.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Configuration: the owner, the user's own playbooks and templates.
    pub config: PathBuf,
    /// State: clusters and run records. It must outlive a reboot.
    pub state: PathBuf,
    /// What hosts of this machine hold.
    pub data: PathBuf,
    /// What can be made again: the shared Ray environments.
    pub cache: PathBuf,
    /// A short folder for sockets; gone at a reboot.
    pub runtime: PathBuf,
}

impl Paths {
    /// The folder of all clusters' states.
    pub fn clusters(&self) -> PathBuf {
        self.state.join("clusters")
    }

    /// The folder of one cluster's state.
    pub fn cluster(&self, name: &ClusterName) -> PathBuf {
        self.clusters().join(name.as_str())
    }

    /// The folder of the run records.
    pub fn runs(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// The file that holds the owner.
    pub fn owner(&self) -> PathBuf {
        self.config.join("owner")
    }
}

/// Makes a folder for sockets, and refuses one that somebody else could write into: in `/tmp` anybody may have made it first.
pub fn make_runtime_dir(folder: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let doing = || format!("use {} for sockets", folder.display());
    create_private_dir(folder).doing(ErrorKind::Host, doing)?;
    let metadata = fs_err::symlink_metadata(folder).doing(ErrorKind::Host, doing)?;
    let ours =
        metadata.is_dir() && metadata.uid() == rustix::process::getuid().as_raw() && metadata.mode() & 0o022 == 0;
    if ours {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Host, doing())
            .because("it belongs to somebody else, or others may write into it")
            .hint("set XDG_RUNTIME_DIR to a short folder of your own with mode 0700"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_for_sockets_that_others_may_write_into_is_refused() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("gpucl-1");
        make_runtime_dir(&folder).unwrap();
        assert_eq!(fs_err::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_runtime_dir(&folder).unwrap_err().to_string().contains("others may write into it"));
        // A link may lead to a folder of ours, and is still whoever's who made it.
        fs_err::os::unix::fs::symlink(above.path(), above.path().join("link")).unwrap();
        assert!(make_runtime_dir(&above.path().join("link")).is_err());
    }
}
