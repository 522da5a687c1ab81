//! `gpucl cp`.

use std::path::{Path, PathBuf};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::target::{ANSWER, Target};
use crate::cluster::{self, Remote};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{Account, Copied, End, Here, HostPath, LeftOut, SshHost, There, copy_here};
use crate::runtime::project::ProjectRuntime;
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
    /// Over SSH: the data folder there, and how nodes run.
    There { ssh: SshHost, data: String, runtime: &'static dyn ProjectRuntime },
}

/// Copies to a host or from hosts.
pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let sides: Vec<Side<'_>> = args.paths.iter().map(|path| Side::of(path)).collect();
    let Some((goal, sources)) = sides.split_last() else { return Err(usage("copy", "no path was given").into()) };
    let target = Target::choose(app)?;
    let remote =
        cluster::connections(&app.paths, &target.known.state, app.provider_context(app.plain_events())).await?;
    let mut all = Copied::default();
    match goal {
        Side::There { host, path } => {
            let local: Option<Vec<PathBuf>> = sources
                .iter()
                .map(|side| if let Side::Here(path) = side { Some(PathBuf::from(path)) } else { None })
                .collect();
            let local = local.ok_or_else(|| usage("copy", "both sides are on a host; copy to this machine first"))?;
            let machine = Machine::open(app, &target, remote.as_ref(), host).await?;
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
                let machine = Machine::open(app, &target, remote.as_ref(), host).await?;
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

impl Machine {
    pub(super) async fn open(app: &App, target: &Target, remote: Option<&Remote>, name: &str) -> Result<Self> {
        let Some(remote) = remote else {
            let home = app.provider_context(app.plain_events()).user_environment.home;
            return Ok(Self::Here { data: cluster::data_here(&target.known.state, name)?, home });
        };
        let host = remote.host(name)?;
        let ssh = remote.connections.connect(host.name(), host.home(), ANSWER, std::future::pending()).await?;
        Ok(Self::There { ssh, data: host.folders().data(), runtime: host.runtime })
    }

    pub(super) async fn close(self) {
        if let Self::There { ssh, .. } = self {
            ssh.close().await;
        }
    }

    /// A path of the host as one end of a sync.
    pub(super) fn end(&self, path: &str, is_root: bool) -> Result<End<'_>> {
        match self {
            Self::There { ssh, data, runtime } => {
                let HostPath { path, within, is_root } = on_host(path, data, *runtime, is_root)?;
                Ok(End::There(There {
                    machine: ssh,
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
            Self::There { ssh, data, runtime } => {
                let goal = on_host(path, data, *runtime, is_root)?;
                let bytes = ssh.upload(sources, goal, &mut |_| {}).await?;
                Ok(Copied { bytes, left_out: LeftOut::default() })
            }
            Self::Here { data, home } => {
                no_root(is_root)?;
                let is_folder = sources.len() > 1 || path.ends_with('/') || path.is_empty();
                let goal = on_this_machine(path, data, home)?;
                if goal.starts_with(data) && data.is_dir() {
                    let folder = if is_folder { Some(goal.as_path()) } else { goal.parent() };
                    let doing = || format!("copy to {}", goal.display());
                    folder.map_or(Ok(()), fs_err::create_dir_all).doing(ErrorKind::Host, doing)?;
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
            Self::There { ssh, data, runtime } => {
                ssh.download(on_host(path, data, *runtime, is_root)?, goal, &mut |_| {}).await
            }
            Self::Here { data, home } => {
                no_root(is_root)?;
                copy_here(&on_this_machine(path, data, home)?, goal)
            }
        }
    }
}

/// A path on a host that is reached by SSH.
fn on_host<'a>(path: &'a str, data: &'a str, runtime: &dyn ProjectRuntime, is_root: bool) -> Result<HostPath<'a>> {
    Ok(match Begins::of(path, runtime.data_in_nodes())? {
        Begins::Data(path) => HostPath { path, within: Some(data), is_root: runtime.account() == Account::Root },
        Begins::Home(path) | Begins::Root(path) => HostPath::plain(path, is_root),
    })
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
}
