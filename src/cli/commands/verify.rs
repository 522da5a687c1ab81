//! `gpucl verify`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::gpu_table;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::target;
use crate::cluster;
use crate::util::human;

/// The arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> anyhow::Result<u8> {
    let name = target::name(app)?;
    let mut gpus = Vec::new();
    let ended = run_with_events(app, "verify", name.as_str(), async |events, cancel| {
        let settings = app.settings(events, cancel)?;
        let verified = cluster::verify(&settings, &name).await?;
        gpus = verified.gpus;
        let summary = format!("ready: {} passed", human::count(verified.passed, "check"));
        Ok(Ended { summary, endpoints: Vec::new() })
    })
    .await?;
    if !app.json() {
        gpu_table(&gpus).iter().for_each(|table| app.ui.data(table));
        app.ui.data(ended.summary);
    }
    Ok(exit_code::DONE)
}
