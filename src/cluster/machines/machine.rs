//! One machine of a cluster: what commands copy, and where its paths lead.

use std::path::{Path, PathBuf};

use super::pod::PodHost;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{Copied, End, Here, HostPath, LeftOut, SshHost, StreamHost, There, copy_here, download, upload};
use crate::util::folder::{Existing, Goal};

/// Where a path on a host begins, and the rest of it.
#[derive(Debug, PartialEq, Eq)]
enum StartsIn<'a> {
    /// In the cluster's data folder.
    Data(&'a str),
    /// In the login user's home folder.
    Home(&'a str),
    /// At the root of the host.
    Root(&'a str),
}

impl<'a> StartsIn<'a> {
    /// Where this path begins; `in_nodes` is the data folder as nodes see it, if that is another path.
    fn of(path: &'a str, in_nodes: Option<&str>) -> Result<Self> {
        let of_nodes = || {
            let rest = path.strip_prefix(in_nodes?)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
        };
        if path == "~" || path.starts_with("~/") {
            let rest = path[1..].trim_start_matches('/');
            return Ok(Self::Home(if rest.is_empty() { "./" } else { rest }));
        }
        let below = match of_nodes() {
            Some(below) => below,
            None if path.starts_with('/') => return Ok(Self::Root(path)),
            None => path,
        };
        if below.split('/').any(|part| part == "..") {
            return Err(Error::new(ErrorKind::Usage, "copy")
                .because(format!("`{path}` leads out of the cluster's data folder"))
                .hint(
                    "outside of it, name a path from the root, such as HOST:/mnt/x, or from the home folder: HOST:~/x",
                ));
        }
        Ok(Self::Data(if below.is_empty() { "./" } else { below }))
    }
}

/// One machine of a cluster.
pub enum Machine {
    /// This one.
    Here {
        /// The cluster's data folder.
        data: PathBuf,
        /// The user's home folder.
        home: PathBuf,
    },
    /// Another one.
    There {
        /// How it is reached.
        way: Way,
        /// The data folder there.
        data: String,
        /// The data folder as nodes see it, if that is another path.
        data_in_nodes: Option<&'static str>,
        /// Whether the data folder is root's.
        data_is_roots: bool,
    },
}

/// How another machine is reached.
pub enum Way {
    /// By SSH.
    Ssh(SshHost),
    /// Through its platform.
    Pod(PodHost),
}

impl Way {
    fn machine(&self) -> &dyn StreamHost {
        match self {
            Self::Ssh(ssh) => ssh,
            Self::Pod(pod) => pod,
        }
    }
}

impl Machine {
    /// Closes the connection to it.
    pub async fn close(self) {
        if let Self::There { way: Way::Ssh(ssh), .. } = self {
            ssh.close().await;
        }
    }

    /// A path of the host as one end of a sync.
    pub fn end(&self, path: &str, is_root: bool) -> Result<End<'_>> {
        match self {
            Self::There { way, data, .. } => {
                let HostPath { path, within, is_root } = self.on_host(path, data, is_root)?;
                Ok(End::There(There {
                    machine: way.machine(),
                    path: path.to_owned(),
                    within: within.map(str::to_owned),
                    is_root,
                }))
            }
            Self::Here { data, home } => {
                no_root(is_root)?;
                let within = matches!(StartsIn::of(path, None)?, StartsIn::Data(_)).then(|| data.clone());
                Ok(End::Here(Here { path: on_this_machine(path, data, home)?, within }))
            }
        }
    }

    /// Copies to the host.
    pub async fn put(&self, sources: &[PathBuf], path: &str, is_root: bool) -> Result<Copied> {
        match self {
            Self::There { way, data, .. } => {
                let goal = self.on_host(path, data, is_root)?;
                let bytes = upload(way.machine(), sources, goal).await?;
                Ok(Copied { bytes, left_out: LeftOut::default() })
            }
            Self::Here { data, home } => {
                no_root(is_root)?;
                let is_folder = sources.len() > 1 || path.ends_with('/') || path.is_empty();
                let goal = on_this_machine(path, data, home)?;
                if let (Ok(below), true) = (goal.strip_prefix(data), data.is_dir()) {
                    // A job may have put links there.
                    let (folder, name) = match below.file_name() {
                        Some(name) if !is_folder => (below.parent().unwrap_or(Path::new("")), Some(Path::new(name))),
                        _ => (below, None),
                    };
                    Goal::chosen(data, folder)
                        .open(name, Existing::Merged)
                        .doing(ErrorKind::Host, || format!("copy to {}", goal.display()))?;
                }
                let mut all = Copied::default();
                for source in sources {
                    if is_folder && !goal.is_dir() {
                        return Err(Error::new(ErrorKind::NotFound, format!("copy to {}", goal.display()))
                            .because("it is not a folder"));
                    }
                    all.add(copy_here(source, &goal)?);
                }
                Ok(all)
            }
        }
    }

    /// Copies from the host.
    pub async fn get(&self, path: &str, goal: &Path, is_root: bool) -> Result<Copied> {
        match self {
            Self::There { way, data, .. } => download(way.machine(), self.on_host(path, data, is_root)?, goal).await,
            Self::Here { data, home } => {
                no_root(is_root)?;
                copy_here(&on_this_machine(path, data, home)?, goal)
            }
        }
    }

    /// A path on another machine.
    fn on_host<'a>(&self, path: &'a str, data: &'a str, is_root: bool) -> Result<HostPath<'a>> {
        let Self::There { way, data_in_nodes, data_is_roots, .. } = self else {
            return Err(Error::new(ErrorKind::Internal, "copy").because("this machine is not another one"));
        };
        if is_root && matches!(way, Way::Pod(_)) {
            return Err(Error::new(ErrorKind::Unsupported, "copy as root")
                .because("nothing in the cluster's pods may become root"));
        }
        Ok(match StartsIn::of(path, *data_in_nodes)? {
            StartsIn::Data(path) => HostPath { path, within: Some(data), is_root: *data_is_roots },
            StartsIn::Home(path) | StartsIn::Root(path) => HostPath::plain(path, is_root),
        })
    }
}

/// A path of a cluster on this machine.
fn on_this_machine(path: &str, data: &Path, home: &Path) -> Result<PathBuf> {
    let below = |folder: &Path, path: &str| if path == "./" { folder.to_owned() } else { folder.join(path) };
    Ok(match StartsIn::of(path, None)? {
        StartsIn::Data(path) => below(data, path),
        StartsIn::Home(path) => below(home, path),
        StartsIn::Root(path) => PathBuf::from(path),
    })
}

fn no_root(is_root: bool) -> Result<()> {
    if is_root {
        return Err(
            Error::new(ErrorKind::Unsupported, "copy as root").because("the cluster runs on this machine, as you")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_begins_in_the_data_folder() {
        let (docker, native) = (Some("/data"), None);
        for (path, in_nodes, begins) in [
            ("x/y", native, StartsIn::Data("x/y")),
            ("", native, StartsIn::Data("./")),
            ("/data/x", docker, StartsIn::Data("x")),
            ("/data/", docker, StartsIn::Data("./")),
            ("/data", docker, StartsIn::Data("./")),
            ("/data/x", native, StartsIn::Root("/data/x")),
            ("/database", docker, StartsIn::Root("/database")),
            ("/mnt/x", docker, StartsIn::Root("/mnt/x")),
            ("~/x", docker, StartsIn::Home("x")),
            ("~", docker, StartsIn::Home("./")),
            ("~x", docker, StartsIn::Data("~x")),
        ] {
            assert_eq!(StartsIn::of(path, in_nodes).unwrap(), begins, "{path}");
        }
        for path in ["../x", "a/../../x", "/data/../x"] {
            assert_eq!(StartsIn::of(path, docker).unwrap_err().kind(), ErrorKind::Usage, "{path}");
        }
        assert!(StartsIn::of("/data/../x", native).is_ok());
    }

    /// Jobs write in the data folder of a cluster on this machine.
    #[tokio::test]
    async fn a_copy_into_the_data_folder_follows_no_link_there() {
        let root = tempfile::tempdir().unwrap();
        let (data, home) = (root.path().join("data"), root.path().join("home"));
        fs_err::create_dir(&data).unwrap();
        fs_err::create_dir(&home).unwrap();
        std::os::unix::fs::symlink(&home, data.join("out")).unwrap();
        let file = root.path().join("file");
        fs_err::write(&file, "new").unwrap();
        let machine = Machine::Here { data: data.clone(), home: home.clone() };
        for path in ["out", "out/", "out/x", "out/deeper/x", &data.join("out/x").display().to_string()] {
            let error = machine.put(std::slice::from_ref(&file), path, false).await.unwrap_err().to_string();
            assert!(error.contains("out is a link"), "{path}: {error}");
        }
        assert_eq!(fs_err::read_dir(&home).unwrap().count(), 0);
        for path in ["", "x", "a/b/", "a/b/c"] {
            machine.put(std::slice::from_ref(&file), path, false).await.unwrap();
        }
        for path in ["file", "x", "a/b/file", "a/b/c"] {
            assert_eq!(fs_err::read_to_string(data.join(path)).unwrap(), "new", "{path}");
        }
    }
}
