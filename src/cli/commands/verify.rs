//! `gpucl verify`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::gpu_table;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::target;
use crate::cluster::{self, Verified};
use crate::error::Result;
use crate::name::ClusterName;
use crate::util::human;

/// The arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> anyhow::Result<u8> {
    let name = target::name(app)?;
    let verified = check(app, &name).await?;
    if !app.json() {
        gpu_table(&verified.gpus).iter().for_each(|table| app.ui.data(table));
        app.ui.data(summary(&verified));
    }
    Ok(exit_code::DONE)
}

/// Runs all checks of a cluster again, and shows each.
pub(crate) async fn check(app: &App, name: &ClusterName) -> Result<Verified> {
    let mut seen = Verified::default();
    run_with_events(app, "verify", name.as_str(), async |events, cancel| {
        let settings = app.settings(events, cancel)?;
        seen = cluster::verify(&settings, name).await?;
        Ok(Ended { summary: summary(&seen), endpoints: Vec::new() })
    })
    .await?;
    Ok(seen)
}

fn summary(verified: &Verified) -> String {
    format!("ready: {} passed", human::count(verified.passed, "check"))
}
