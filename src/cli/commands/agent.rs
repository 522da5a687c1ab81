//! `gpucl agent`: started by `up` and others, not by people.

use std::path::PathBuf;

use crate::agent::{Watched, watch};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::spec_args::SpecArgs;
use crate::cli::target;
use crate::error::Result;

/// The arguments of `agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bring this spec up, and wait for hosts that can be had later
    #[arg(long, value_name = "FILE")]
    scheduled_up: Option<PathBuf>,
    /// Let the spec send files from this folder as well as from its own
    #[arg(long, requires = "scheduled_up", value_name = "DIR")]
    allow_path: Vec<PathBuf>,
    /// Take this file as the cluster's spec, though the cluster runs from another one
    #[arg(long, requires = "scheduled_up")]
    new_spec: bool,
    /// Ask again for so long while the provider has none of what is asked for
    #[arg(long, requires = "scheduled_up", value_name = "TIME", value_parser = super::up::time)]
    wait_capacity: Option<std::time::Duration>,
    /// Look after the cluster's deadline
    #[arg(long, conflicts_with = "scheduled_up", required_unless_present = "scheduled_up")]
    deadline: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    if let Some(spec) = args.scheduled_up {
        // Away from the terminal of whoever asked for it.
        let _ = rustix::process::setsid();
        let spec = SpecArgs { spec, allow_path: args.allow_path };
        return super::up::bring_up(app, &spec, args.new_spec, args.wait_capacity, true).await;
    }
    watch(Watched { paths: app.paths.clone(), cluster: target::name(app)? }).await?;
    Ok(exit_code::DONE)
}
