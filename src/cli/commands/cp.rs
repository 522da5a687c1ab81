//! `gpucl cp`.

use std::path::{Path, PathBuf};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::host::{Copied, LeftOut};
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

/// Copies to a host or from hosts.
pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let sides: Vec<Side<'_>> = args.paths.iter().map(|path| Side::of(path)).collect();
    let Some((goal, sources)) = sides.split_last() else { return Err(usage("copy", "no path was given").into()) };
    let target = Target::choose(app)?;
    let machines = target.machines(app).await?;
    let mut all = Copied::default();
    match goal {
        Side::There { host, path } => {
            let local: Option<Vec<PathBuf>> = sources
                .iter()
                .map(|side| if let Side::Here(path) = side { Some(PathBuf::from(path)) } else { None })
                .collect();
            let local = local.ok_or_else(|| usage("copy", "both sides are on a host; copy to this machine first"))?;
            let machine = machines.named(host).await?;
            all.bytes += machine.put(&local, path, args.root).await?;
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
                let machine = machines.named(host).await?;
                all.add(machine.get(path, Path::new(goal), args.root).await?);
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
}
