//! `gpucl cp`.

use std::path::{Path, PathBuf};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::target::ANSWER;
use crate::cli::target::Target;
use crate::cluster::{self, Remote};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{LeftOut, SshHost};
use crate::util::human;

/// The arguments of `cp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Accepted for compatibility with `cp`: folders are always copied recursively
    #[arg(short, long)]
    recursive: bool,
    /// Read and write on the host as root
    #[arg(long)]
    root: bool,
    /// Sources, then the destination: a local path or HOST:PATH; a relative PATH starts in the home folder on the host
    #[arg(required = true, num_args = 2.., value_name = "SRC... DEST")]
    paths: Vec<String>,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side<'a> {
    Here(&'a str),
    There { host: &'a str, path: &'a str },
}

impl<'a> Side<'a> {
    /// A path with a colon before any slash is on a host, as with `scp`; `./a:b` is local.
    fn of(text: &'a str) -> Self {
        match text.split_once(':') {
            Some((host, path)) if !host.is_empty() && !host.contains('/') => {
                // A session starts in the home folder.
                let path = path.strip_prefix("~/").unwrap_or(path);
                Self::There { host, path: if path.is_empty() { "./" } else { path } }
            }
            _ => Self::Here(text),
        }
    }
}

/// Copies to a host or from hosts.
pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let sides: Vec<Side<'_>> = args.paths.iter().map(|path| Side::of(path)).collect();
    let Some((goal, sources)) = sides.split_last() else { return Err(usage("copy", "no path was given").into()) };
    let target = Target::choose(app)?;
    let remote = cluster::connections(&app.paths, &target.known.state, app.provider_context(app.plain_events()))
        .await?
        .ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "copy files")
                .because(format!("the hosts of {} are this machine", target.name))
                .hint("use `cp -r`")
        })?;
    let mut bytes = 0;
    let mut left_out = LeftOut::default();
    match goal {
        Side::There { host, path } => {
            let local: Option<Vec<PathBuf>> = sources
                .iter()
                .map(|side| if let Side::Here(path) = side { Some(PathBuf::from(path)) } else { None })
                .collect();
            let local = local.ok_or_else(|| usage("copy", "both sides are on a host; copy to this machine first"))?;
            let host = connect(&remote, host).await?;
            bytes += host.upload(&local, path, args.root, &mut |_| {}).await?;
            host.close().await;
        }
        Side::Here(goal) => {
            if sources.len() > 1 && !Path::new(goal).is_dir() {
                return Err(usage("copy", format!("{goal} is not a folder, and there are several sources")).into());
            }
            for side in sources {
                let Side::There { host, path } = side else {
                    return Err(usage("copy", "neither side is on a host")
                        .hint("a path on a host is HOST:PATH, such as worker-0:/mnt/data")
                        .into());
                };
                let host = connect(&remote, host).await?;
                let copied = host.download(path, Path::new(goal), args.root, &mut |_| {}).await?;
                bytes += copied.bytes;
                left_out.named.extend(copied.left_out.named);
                left_out.count += copied.left_out.count;
                host.close().await;
            }
        }
    }
    for named in &left_out.named {
        app.ui.status(format_args!("warning: left out {named}"));
    }
    if left_out.count > left_out.named.len() {
        app.ui.status(format_args!("warning: left out {} more", left_out.count - left_out.named.len()));
    }
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "copied", "bytes": bytes, "left_out": left_out.named, "left_out_count": left_out.count,
        }));
    } else {
        app.ui.status(format_args!("copied: {}", human::bytes(bytes)));
    }
    Ok(exit_code::DONE)
}

/// Connects to a host of a cluster, by one of its names.
pub(super) async fn connect(remote: &Remote, name: &str) -> Result<SshHost> {
    let host = remote.host(name)?;
    remote.connections.connect(host.name(), host.home(), ANSWER, std::future::pending()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_a_host_when_a_name_and_a_colon_come_first() {
        assert_eq!(Side::of("worker-0:/mnt/"), Side::There { host: "worker-0", path: "/mnt/" });
        assert_eq!(Side::of("head:~/x"), Side::There { host: "head", path: "x" });
        assert_eq!(Side::of("head:"), Side::There { host: "head", path: "./" });
        assert_eq!(Side::of("./a:b"), Side::Here("./a:b"));
        assert_eq!(Side::of("data/"), Side::Here("data/"));
    }
}
