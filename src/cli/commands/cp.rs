//! `gpucl cp`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::target::{ANSWER, Target};
use crate::cluster::{self, PodHost, Pods, Remote};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{Account, Copied, End, Here, HostPath, LeftOut, Run, SshHost, There, copy_here, download, upload};
use crate::util::folder::{Existing, Goal};
use crate::util::human;

/// The arguments of `cp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Accepted for compatibility with `cp`: folders are always copied recursively
    #[arg(short, long)]
    recursive: bool,
    /// Read and write on the host as root; in the data folder, its owner always does
    #[arg(long)]
    root: bool,
    /// Sources, then the destination: a local path or HOST:PATH; a relative PATH starts in the cluster's data folder
    /// on the host, which jobs know as $GPUCL_DATA, and `~/` in the login user's home folder
    #[arg(required = true, num_args = 2.., value_name = "SRC... DEST")]
    paths: Vec<String>,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Side<'a> {
    Here(&'a str),
    There { host: &'a str, path: &'a str },
}

impl<'a> Side<'a> {
    /// A path with a colon before any slash is on a host, as with `scp`; `./a:b` is local.
    pub(super) fn of(text: &'a str) -> Self {
        match text.split_once(':') {
            Some((host, path)) if !host.is_empty() && !host.contains('/') => Self::There { host, path },
            _ => Self::Here(text),
        }
    }
}

/// Where a path on a host begins, and the rest of it.
#[derive(Debug, PartialEq, Eq)]
enum Begins<'a> {
    /// In the cluster's data folder.
    Data(&'a str),
    /// In the login user's home folder.
    Home(&'a str),
    /// At the root of the host.
    Root(&'a str),
}

impl<'a> Begins<'a> {
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
            return Err(usage("copy", format!("`{path}` leads out of the cluster's data folder")).hint(
                "outside of it, name a path from the root, such as HOST:/mnt/x, or from the home folder: HOST:~/x",
            ));
        }
        Ok(Self::Data(if below.is_empty() { "./" } else { below }))
    }
}

/// A host to copy to or from.
pub(super) enum Machine {
    /// This machine: the cluster's data folder and the user's home folder.
    Here { data: PathBuf, home: PathBuf },
    /// Another one: the data folder there, and how nodes see it.
    There { way: Way, data: String, data_in_nodes: Option<&'static str>, data_is_roots: bool },
}

/// How another machine is reached.
pub(super) enum Way {
    /// By SSH.
    Ssh(SshHost),
    /// Through its platform.
    Pod(PodHost),
}

impl Way {
    fn machine(&self) -> &dyn Run {
        match self {
            Self::Ssh(ssh) => ssh,
            Self::Pod(pod) => pod,
        }
    }
}

/// Copies to a host or from hosts.
pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let sides: Vec<Side<'_>> = args.paths.iter().map(|path| Side::of(path)).collect();
    let Some((goal, sources)) = sides.split_last() else { return Err(usage("copy", "no path was given").into()) };
    let target = Target::choose(app)?;
    let machines = Machines::of(app, &target).await?;
    let mut all = Copied::default();
    match goal {
        Side::There { host, path } => {
            let local: Option<Vec<PathBuf>> = sources
                .iter()
                .map(|side| if let Side::Here(path) = side { Some(PathBuf::from(path)) } else { None })
                .collect();
            let local = local.ok_or_else(|| usage("copy", "both sides are on a host; copy to this machine first"))?;
            let machine = machines.open(host).await?;
            add(&mut all, machine.put(&local, path, args.root).await?);
            machine.close().await;
        }
        Side::Here(goal) => {
            if sources.len() > 1 && !Path::new(goal).is_dir() {
                return Err(usage("copy", format!("{goal} is not a folder, and there are several sources")).into());
            }
            for side in sources {
                let Side::There { host, path } = side else {
                    return Err(usage("copy", "neither side is on a host")
                        .hint("a path on a host is HOST:PATH, such as head:results.txt")
                        .into());
                };
                let machine = machines.open(host).await?;
                add(&mut all, machine.get(path, Path::new(goal), args.root).await?);
                machine.close().await;
            }
        }
    }
    report(app, &all);
    Ok(exit_code::DONE)
}

/// Warns of what was left out.
pub(super) fn warn_left_out(app: &App, left_out: &LeftOut) {
    for named in &left_out.named {
        app.ui.status(format_args!("warning: left out {named}"));
    }
    if left_out.count > left_out.named.len() {
        app.ui.status(format_args!("warning: left out {} more", left_out.count - left_out.named.len()));
    }
}

fn report(app: &App, Copied { bytes, left_out }: &Copied) {
    warn_left_out(app, left_out);
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "copied", "bytes": bytes, "left_out": left_out.named, "left_out_count": left_out.count,
        }));
    } else {
        app.ui.status(format_args!("copied: {}", human::bytes(*bytes)));
    }
}

fn add(all: &mut Copied, one: Copied) {
    let LeftOut { named, count } = one.left_out;
    all.bytes += one.bytes;
    all.left_out.named.extend(named);
    all.left_out.count += count;
}

/// The machines of a cluster.
pub(super) enum Machines<'a> {
    /// This one.
    Here(&'a App, &'a Target),
    /// Hosts that are reached by SSH.
    There(Remote),
    /// Nodes on a platform.
    Pods(Arc<Pods>),
}

impl<'a> Machines<'a> {
    pub(super) async fn of(app: &'a App, target: &'a Target) -> Result<Self> {
        if let Some(pods) = target.pods(app)? {
            return Ok(Self::Pods(pods));
        }
        let context = app.provider_context(app.plain_events());
        let remote = cluster::connections(&app.paths, &target.known.state, context).await?;
        Ok(remote.map_or(Self::Here(app, target), Self::There))
    }

    /// Opens the one of this name, of its own or of a node on it.
    pub(super) async fn open(&self, name: &str) -> Result<Machine> {
        match self {
            Self::Here(app, target) => {
                let home = app.provider_context(app.plain_events()).user_environment.home;
                Ok(Machine::Here { data: cluster::data_here(&target.known.state, name)?, home })
            }
            Self::There(remote) => {
                let host = remote.host(name)?;
                let ssh = remote.connections.connect(host.name(), host.home(), ANSWER, std::future::pending()).await?;
                Ok(Machine::There {
                    way: Way::Ssh(ssh),
                    data: host.folders().data(),
                    data_in_nodes: host.runtime.data_in_nodes(),
                    data_is_roots: host.runtime.account() == Account::Root,
                })
            }
            Self::Pods(pods) => {
                let pod = PodHost::new(pods, &pods.named(name).await?);
                let data = pod.data().to_owned();
                Ok(Machine::There { way: Way::Pod(pod), data, data_in_nodes: None, data_is_roots: false })
            }
        }
    }
}

impl Machine {
    pub(super) async fn close(self) {
        if let Self::There { way: Way::Ssh(ssh), .. } = self {
            ssh.close().await;
        }
    }

    /// A path of the host as one end of a sync.
    pub(super) fn end(&self, path: &str, is_root: bool) -> Result<End<'_>> {
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
                let within = matches!(Begins::of(path, None)?, Begins::Data(_)).then(|| data.clone());
                Ok(End::Here(Here { path: on_this_machine(path, data, home)?, within }))
            }
        }
    }

    /// Copies to the host.
    async fn put(&self, sources: &[PathBuf], path: &str, is_root: bool) -> Result<Copied> {
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
                    add(&mut all, copy_here(source, &goal)?);
                }
                Ok(all)
            }
        }
    }

    /// Copies from the host.
    pub(super) async fn get(&self, path: &str, goal: &Path, is_root: bool) -> Result<Copied> {
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
        Ok(match Begins::of(path, *data_in_nodes)? {
            Begins::Data(path) => HostPath { path, within: Some(data), is_root: *data_is_roots },
            Begins::Home(path) | Begins::Root(path) => HostPath::plain(path, is_root),
        })
    }
}

/// A path of a cluster on this machine.
fn on_this_machine(path: &str, data: &Path, home: &Path) -> Result<PathBuf> {
    let below = |folder: &Path, path: &str| if path == "./" { folder.to_owned() } else { folder.join(path) };
    Ok(match Begins::of(path, None)? {
        Begins::Data(path) => below(data, path),
        Begins::Home(path) => below(home, path),
        Begins::Root(path) => PathBuf::from(path),
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
    fn a_path_is_on_a_host_when_a_name_and_a_colon_come_first() {
        assert_eq!(Side::of("worker-0:/mnt/"), Side::There { host: "worker-0", path: "/mnt/" });
        assert_eq!(Side::of("head:~/x"), Side::There { host: "head", path: "~/x" });
        assert_eq!(Side::of("head:"), Side::There { host: "head", path: "" });
        assert_eq!(Side::of("./a:b"), Side::Here("./a:b"));
        assert_eq!(Side::of("data/"), Side::Here("data/"));
    }

    #[test]
    fn a_relative_path_begins_in_the_data_folder() {
        let (docker, native) = (Some("/data"), None);
        for (path, in_nodes, begins) in [
            ("x/y", native, Begins::Data("x/y")),
            ("", native, Begins::Data("./")),
            ("/data/x", docker, Begins::Data("x")),
            ("/data/", docker, Begins::Data("./")),
            ("/data", docker, Begins::Data("./")),
            ("/data/x", native, Begins::Root("/data/x")),
            ("/database", docker, Begins::Root("/database")),
            ("/mnt/x", docker, Begins::Root("/mnt/x")),
            ("~/x", docker, Begins::Home("x")),
            ("~", docker, Begins::Home("./")),
            ("~x", docker, Begins::Data("~x")),
        ] {
            assert_eq!(Begins::of(path, in_nodes).unwrap(), begins, "{path}");
        }
        for path in ["../x", "a/../../x", "/data/../x"] {
            assert_eq!(Begins::of(path, docker).unwrap_err().kind(), ErrorKind::Usage, "{path}");
        }
        assert!(Begins::of("/data/../x", native).is_ok());
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
