//! `gpucl up`.

use std::path::PathBuf;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::gpu_table;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cluster::{self, UpOptions};
use crate::error::Result;
use crate::spec::{self, Runtime};
use crate::util::human;

/// The arguments of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The spec
    #[arg(value_name = "FILE", default_value = "cluster.yaml")]
    spec: PathBuf,
    /// Take this file as the cluster's spec, though the cluster runs from another one
    #[arg(long)]
    new_spec: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let loaded = spec::load(&args.spec)?;
    let path = fs_err::canonicalize(&args.spec).ok().map(|path| path.display().to_string());
    let options = UpOptions { path, new_spec: args.new_spec };
    let name = loaded.spec.name.clone();
    let begin = std::time::Instant::now();
    let mut gpus = Vec::new();
    let ended = run_with_events(app, "up", name.as_str(), async |events, cancel| {
        let settings = app.settings(events, cancel)?;
        let report = cluster::up(&settings, &loaded, &options).await?;
        gpus = report.gpus;
        let changed = match report.operations {
            0 => "nothing was changed".to_owned(),
            number => human::count(number, "operation"),
        };
        Ok(Ended {
            summary: format!("ready: {}, {changed}", human::count(report.checks, "check") + " passed"),
            endpoints: report.endpoints,
        })
    })
    .await?;
    if !app.json() {
        gpu_table(&gpus).iter().for_each(|table| app.ui.data(table));
        app.ui.data(format!("{} ({})", ended.summary, human::short_duration(begin.elapsed())));
        let elsewhere = loaded.spec.runtime == Runtime::Docker;
        if elsewhere {
            app.ui.data(format!("these answer while `{}` runs:", with_name("gpucl dashboard", name.as_str())));
        }
        let width = ended.endpoints.iter().map(|endpoint| endpoint.name.len()).max().unwrap_or_default().max(10);
        for endpoint in &ended.endpoints {
            app.ui.data(format!("  {:<width$} {}", endpoint.name, endpoint.url));
        }
        for (command, what) in [
            (
                "gpucl dashboard",
                if elsewhere { "opens them, and says how to log in" } else { "opens the dashboard, logged in" },
            ),
            ("gpucl job submit -- python train.py", "runs a job"),
            ("gpucl stop", "ends Ray and keeps the host"),
            ("gpucl down", "removes everything"),
        ] {
            app.ui.data(format!("  {:<44} {what}", with_name(command, name.as_str())));
        }
    }
    Ok(exit_code::DONE)
}

/// The command with the cluster's name where it belongs.
fn with_name(command: &str, name: &str) -> String {
    match command.split_once(" -- ") {
        Some((before, after)) => format!("{before} -c {name} -- {after}"),
        None => format!("{command} -c {name}"),
    }
}
