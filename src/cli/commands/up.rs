//! `gpucl up`.

use std::path::Path;
use std::time::Duration;

use crate::cli::app::App;
use crate::cli::consent::Consent;
use crate::cli::exit_code;
use crate::cli::money;
use crate::cli::notice;
use crate::cli::output::{Table, gpu_table};
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::scheduled_up::{follow, start, waiting};
use crate::cli::spec_args::SpecArgs;
use crate::cluster::{self, UpOptions, UpOutcome};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::event::WorkerGpus;
use crate::name::ClusterName;
use crate::spec::{Amount, Loaded};
use crate::util::duration::SpecDuration;
use crate::util::fs::resolve;
use crate::util::human;

/// The arguments of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
    /// Use this file as the cluster's spec, even though the cluster was brought up from another one
    #[arg(long)]
    pub(crate) new_spec: bool,
    /// Take the commits that the repositories under `files:` have now, instead of those of the last `up`
    #[arg(long)]
    pub(crate) update_files: bool,
    /// How long to wait for capacity at the provider, such as `6h`; default: as the spec says, else none
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) wait_capacity: Option<Duration>,
    /// Where the cluster may run, for the first one there without a question: CONTEXT/NAMESPACE of Kubernetes
    #[arg(long, value_name = "PLACE")]
    pub(crate) at: Option<String>,
    /// Ask only above this price an hour, such as `20` (dollars) or `"40 SU"`; default: GPUCL_ASK_ABOVE, else 5 USD. A spec
    /// may ask for less, never for more
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) ask_above: Option<Amount>,
}

/// Who brings a cluster up, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A user, who works on it afterwards. Hosts that become available later are waited for in the background.
    Work,
    /// The process in the background that waits for such hosts.
    Scheduled,
    /// `gpucl run`, which takes down what there is when this fails, and waits for hosts itself.
    Run,
}

impl Purpose {
    /// The command that does the same with `--yes`.
    fn with_yes(self, file: &Path) -> String {
        match self {
            Self::Work | Self::Scheduled => format!("gpucl up {} --yes", file.display()),
            Self::Run => format!("gpucl run {} --yes -- COMMAND", file.display()),
        }
    }

    /// The command that accepts what the spec asks for.
    fn with_accept(self, file: &Path) -> String {
        match self {
            Self::Work | Self::Scheduled => format!("gpucl up {} --accept DIGEST", file.display()),
            Self::Run => format!("gpucl run {} --accept DIGEST -- COMMAND", file.display()),
        }
    }
}

/// A cluster that is ready.
pub(crate) struct Up {
    name: ClusterName,
    ended: Ended,
    gpus: Vec<WorkerGpus>,
    is_here: bool,
    took: Duration,
}

impl Up {
    /// The result in one line.
    pub(crate) fn summary(&self) -> String {
        format!("{} ({})", self.ended.summary, human::short_duration(self.took))
    }

    /// The GPUs that its workers were observed to own; `None` if there are none.
    pub(crate) fn gpus(&self) -> Option<Table> {
        gpu_table(&self.gpus)
    }
}

/// Parses a length of time, such as `6h`.
pub(crate) fn time(text: &str) -> std::result::Result<Duration, String> {
    SpecDuration::try_from(text.to_owned()).map(|time| time.0)
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let up = bring_up(app, &args, &args.spec.load(app)?, Purpose::Work).await?;
    if !app.json() {
        show(app, &up);
    }
    Ok(exit_code::DONE)
}

/// Brings the cluster of a loaded spec up, and verifies it.
pub(crate) async fn bring_up(app: &App, args: &Args, loaded: &Loaded, purpose: Purpose) -> Result<Up> {
    let Args { spec, new_spec, update_files, wait_capacity, at, ask_above } = args;
    let at = at.clone();
    let (new_spec, update_files, wait_capacity) = (*new_spec, *update_files, *wait_capacity);
    let (scheduled_up, one_run) = (purpose != Purpose::Work, purpose == Purpose::Run);
    let file = spec.spec.as_path();
    let path = resolve(file).doing(ErrorKind::Usage, || format!("find {}", file.display()))?;
    let path = path.map(|path| path.display().to_string());
    let name = loaded.spec.name.clone();
    let with_yes = purpose.with_yes(file);
    Consent::of(app, spec, loaded)?.ask(app, file, &purpose.with_accept(file))?;
    let secrets = money::secrets_to_keep(app, &loaded.spec, &with_yes)?;
    let ask_above = ask_above.map_or_else(|| money::ask_above(app), |given| Ok(Some(given)))?;
    let approval = money::approval(app, file, with_yes);
    let options = UpOptions {
        path,
        new_spec,
        update_files,
        scheduled_up,
        one_run,
        wait_capacity,
        at,
        ask_above,
        approval,
        secrets,
    };
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
        let report = match cluster::up(&settings, loaded, &options).await? {
            UpOutcome::Ready(report) => report,
            UpOutcome::Later(begins) => {
                let identity = start(app, &name, spec, new_spec, update_files, wait_capacity)?;
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
        notice::ready(app, &name, &events, &cancel).await;
        (gpus, is_here) = (report.gpus, report.is_here);
        if !report.spending.is_none() {
            events.note(format!("it costs {}", report.spending.describe()));
        }
        let changed = match report.operations {
            0 => "nothing was changed".to_owned(),
            number => human::count(number, "operation"),
        };
        if report.is_ending {
            let summary = "about to end: nothing was changed, and workers that are drained stay so".to_owned();
            return Ok(Ended { summary, endpoints: report.endpoints });
        }
        Ok(Ended {
            summary: format!("ready: {}, {changed}", human::count(report.checks, "check") + " passed"),
            endpoints: report.endpoints,
        })
    })
    .await?;
    Ok(Up { name, ended, gpus, is_here, took: begin.elapsed() })
}

/// Prints what a cluster has, and what to do with it.
fn show(app: &App, up: &Up) {
    let name = up.name.as_str();
    up.gpus().iter().for_each(|table| app.ui.data(table));
    app.ui.data(up.summary());
    if !up.is_here {
        app.ui.data(format!(
            "while `{}` runs, programs with the credential can use:",
            with_name("gpucl dashboard", name)
        ));
    }
    let endpoints = &up.ended.endpoints;
    let width = endpoints.iter().map(|endpoint| endpoint.name.len()).max().unwrap_or_default().max(10);
    for endpoint in endpoints {
        app.ui.data(format!("  {:<width$} {}", endpoint.name, endpoint.url));
    }
    for (command, what) in [
        (
            "gpucl dashboard",
            if up.is_here { "opens the dashboard, logged in" } else { "opens the pages, and shows how to log in" },
        ),
        ("gpucl job submit --working-dir . -- python train.py", "runs a job on files of this folder"),
        ("gpucl stop", "stops Ray and keeps the hosts"),
        ("gpucl down", "removes everything"),
    ] {
        app.ui.data(format!("  {:<62} {what}", with_name(command, name)));
    }
}

/// Inserts the cluster's name into a command.
fn with_name(command: &str, name: &str) -> String {
    match command.split_once(" -- ") {
        Some((before, after)) => format!("{before} -c {name} -- {after}"),
        None => format!("{command} -c {name}"),
    }
}
