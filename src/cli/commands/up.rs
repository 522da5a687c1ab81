//! `gpucl up`.

use std::time::Duration;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::money;
use crate::cli::output::gpu_table;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::scheduled_up::{follow, start, waiting};
use crate::cli::spec_args::SpecArgs;
use crate::cluster::{self, UpOptions, UpOutcome};
use crate::error::Result;
use crate::util::duration::SpecDuration;
use crate::util::human;

/// The arguments of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    /// Use this file as the cluster's spec, even though the cluster was brought up from another one
    #[arg(long)]
    new_spec: bool,
    /// How long to wait for capacity at the provider, such as `6h`; default: as the spec says, else none
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait_capacity: Option<Duration>,
}

/// Parses a length of time, such as `6h`.
pub(crate) fn time(text: &str) -> std::result::Result<Duration, String> {
    SpecDuration::try_from(text.to_owned()).map(|time| time.0)
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    Ok(bring_up(app, &args.spec, args.new_spec, args.wait_capacity, false).await?)
}

/// Brings a cluster up. With `scheduled_up`, this process itself waits for hosts that become available later.
pub(crate) async fn bring_up(
    app: &App,
    spec: &SpecArgs,
    new_spec: bool,
    wait_capacity: Option<Duration>,
    scheduled_up: bool,
) -> Result<u8> {
    let loaded = spec.load()?;
    let file = spec.spec.as_path();
    let path = fs_err::canonicalize(file).ok().map(|path| path.display().to_string());
    let name = loaded.spec.name.clone();
    let (approval, secrets) = (money::approval(app, file), money::secrets_to_keep(app, &loaded.spec, file)?);
    let options = UpOptions { path, new_spec, scheduled_up, wait_capacity, approval, secrets };
    let begin = std::time::Instant::now();
    let (mut gpus, mut is_here) = (Vec::new(), false);
    let ended = run_with_events(app, "up", name.as_str(), async |events, cancel| {
        if let Some(identity) = waiting(app, &name).filter(|_| !scheduled_up).and_then(|waiting| waiting.identity()) {
            events.note(format!("process {} is already waiting for its hosts; following it", identity.pid));
            let (ended, observed) = follow(app, &name, &identity, &events, &cancel).await?;
            gpus = observed;
            return Ok(ended);
        }
        let settings = app.settings(events.clone(), cancel.clone())?;
        let report = match cluster::up(&settings, &loaded, &options).await? {
            UpOutcome::Ready(report) => report,
            UpOutcome::Later(begins) => {
                let identity = start(app, &name, spec, new_spec, wait_capacity)?;
                events.note(format!(
                    "{} begins at {}: process {} waits for it in the background, even if this terminal is closed",
                    begins.what,
                    human::local(begins.at),
                    identity.pid
                ));
                let (ended, observed) = follow(app, &name, &identity, &events, &cancel).await?;
                gpus = observed;
                return Ok(ended);
            }
        };
        (gpus, is_here) = (report.gpus, report.is_here);
        if !report.spending.is_none() {
            events.note(format!("it costs {}", report.spending.describe()));
        }
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
        if !is_here {
            app.ui.data(format!(
                "while `{}` runs, programs with the credential can use:",
                with_name("gpucl dashboard", name.as_str())
            ));
        }
        let width = ended.endpoints.iter().map(|endpoint| endpoint.name.len()).max().unwrap_or_default().max(10);
        for endpoint in &ended.endpoints {
            app.ui.data(format!("  {:<width$} {}", endpoint.name, endpoint.url));
        }
        for (command, what) in [
            (
                "gpucl dashboard",
                if is_here { "opens the dashboard, logged in" } else { "opens the pages, and shows how to log in" },
            ),
            ("gpucl job submit -- python train.py", "runs a job"),
            ("gpucl stop", "stops Ray and keeps the hosts"),
            ("gpucl down", "removes everything"),
        ] {
            app.ui.data(format!("  {:<44} {what}", with_name(command, name.as_str())));
        }
    }
    Ok(exit_code::DONE)
}

/// Inserts the cluster's name into a command.
fn with_name(command: &str, name: &str) -> String {
    match command.split_once(" -- ") {
        Some((before, after)) => format!("{before} -c {name} -- {after}"),
        None => format!("{command} -c {name}"),
    }
}
