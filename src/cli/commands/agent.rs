//! `gpucl agent`: started by `up` and other commands, not by users.

use std::path::PathBuf;

use super::up::{self, Purpose};
use crate::agent::{Watched, watch};
use crate::cli::app::App;
use crate::cli::commands::end;
use crate::cli::exit_code;
use crate::cli::notice;
use crate::cli::spec_args::SpecArgs;
use crate::cli::target;

/// The arguments of `agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bring up this spec, and wait for hosts that become available later
    #[arg(long, value_name = "FILE")]
    scheduled_up: Option<PathBuf>,
    /// Let the spec send files from this folder as well as from its own; repeatable
    #[arg(long, requires = "scheduled_up", value_name = "DIR")]
    allow_path: Vec<PathBuf>,
    /// Let the spec mount this folder of a host, although it is sensitive, such as `/etc`; repeatable
    #[arg(long, requires = "scheduled_up", value_name = "PATH")]
    allow_mount: Vec<String>,
    /// Use this file as the cluster's spec, even though the cluster was brought up from another one
    #[arg(long, requires = "scheduled_up")]
    new_spec: bool,
    /// Take the commits that the repositories under `files:` have now
    #[arg(long, requires = "scheduled_up")]
    update_files: bool,
    /// How long to wait for capacity at the provider
    #[arg(long, requires = "scheduled_up", value_name = "TIME", value_parser = up::time)]
    wait_capacity: Option<std::time::Duration>,
    /// Enforce the cluster's deadline
    #[arg(long, conflicts_with = "scheduled_up", required_unless_present_any = ["scheduled_up", "errand"])]
    deadline: bool,
    #[command(flatten)]
    errand: Errand,
}

/// What the agent of a cluster's end has done by a command of its own.
#[derive(Debug, clap::Args)]
#[group(id = "errand", multiple = false, conflicts_with_all = ["scheduled_up", "deadline"])]
struct Errand {
    /// Ask the provider whether the cluster's end has moved, give it to the hosts, and read how far their guards are
    #[arg(long)]
    look_at_end: bool,
    /// Copy what the spec saves to this machine
    #[arg(long)]
    copy_here: bool,
    /// Extend the lease by an hour, if that is possible
    #[arg(long)]
    extend: bool,
    /// Send the notice on standard input to where the spec of its cluster says
    #[arg(long)]
    notify: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    if let Some(spec) = args.scheduled_up {
        // Detach from the terminal of the command that started it.
        let _ = rustix::process::setsid();
        let spec = SpecArgs { spec, allow_path: args.allow_path, allow_mount: args.allow_mount, accept: None };
        let (new_spec, update_files) = (args.new_spec, args.update_files);
        let args =
            up::Args { spec, new_spec, update_files, wait_capacity: args.wait_capacity, at: None, ask_above: None };
        up::bring_up(app, &args, &args.spec.load(app)?, Purpose::Scheduled).await?;
        return Ok(exit_code::DONE);
    }
    if args.errand.look_at_end {
        return end::look(app).await;
    }
    if args.errand.copy_here {
        return end::copy_here(app).await;
    }
    if args.errand.extend {
        return end::extend(app).await;
    }
    if args.errand.notify {
        return Ok(notice::deliver(app).await);
    }
    watch(Watched { paths: app.paths.clone(), cluster: target::name(app)? }).await?;
    Ok(exit_code::DONE)
}
