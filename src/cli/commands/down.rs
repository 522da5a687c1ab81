//! `gpucl down`.

use std::time::Duration;

use crate::agent::notice::kept_route;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::commands::mlflow::runs_soon;
use crate::cli::exit_code;
use crate::cli::notice;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::target;
use crate::cluster::{self, DownOptions, Proof};
use crate::engine::Cancel;
use crate::error::Result;
use crate::money::describe;
use crate::name::ClusterName;
use crate::provider::Runtime;
use crate::util::human;

/// How long MLflow may take to say how many runs it has.
const COUNT_LIMIT: Duration = Duration::from_secs(3);

/// The arguments of `down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the data folder, the object store's data and MLflow's runs on hosts that stay
    #[arg(long)]
    keep_data: bool,
    /// Also remove what was installed on the hosts for the cluster: packages, repositories, settings
    #[arg(long)]
    purge: bool,
    /// Also delete the lease, even if `up` did not make it
    #[arg(long)]
    release_lease: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let name = target::name(app)?;
    let lost = if args.keep_data { None } else { lost_runs(app, &name).await };
    let (_handle, cancel) = Cancel::new();
    let unsaved = match args.keep_data {
        true => Vec::new(),
        false => cluster::loss(&app.settings_to_inspect(app.plain_events(), cancel)?, &name).await,
    };
    if !app.yes && !app.json() && app.ui.asks() {
        for line in what_goes(app, &args, &name)? {
            app.ui.error_line(&line);
        }
        if let Some(lost) = &lost {
            app.ui.error_line(&format!("  {}", lost.with_ways_out()));
        }
        unsaved.iter().for_each(|line| app.ui.error_line(&format!("  {line}")));
        let answer = app.ui.ask(&format!("remove everything of the cluster {name}? [y/N] "));
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(usage("remove the cluster", "not confirmed; nothing was changed").into());
        }
    } else {
        if let Some(lost) = &lost {
            app.ui.status(format_args!("removed with the cluster: {}", lost.with_ways_out()));
        }
        unsaved.iter().for_each(|line| app.ui.error_line(&format!("warning: {line}")));
    }
    let options = DownOptions { keep_data: args.keep_data, purge: args.purge, release_lease: args.release_lease };
    let down = take_down(app, &name, options).await?;
    if app.ui.shows_both() {
        // What was removed, checked and kept is already above it on the same screen.
        app.ui.data(down.summary);
    } else if !app.json() {
        app.ui.data(down.summary);
        if let Some(cost) = down.cost {
            app.ui.data(format!("  it cost about {cost} in all"));
        }
        for line in down.proof {
            app.ui.data(format!("  {line}"));
        }
        for line in down.unknown {
            app.ui.data(format!("  unknown: {line}"));
        }
        for line in down.saved {
            app.ui.data(format!("  saved: {line}"));
        }
        for line in down.lost {
            app.ui.data(format!("  lost: {line}"));
        }
        for line in down.kept {
            app.ui.data(format!("  kept: {line}"));
        }
    }
    Ok(exit_code::DONE)
}

/// A cluster that was taken down.
pub(crate) struct Down {
    /// What is left, in one line.
    pub(crate) summary: String,
    proof: Vec<String>,
    unknown: Vec<String>,
    saved: Vec<String>,
    lost: Vec<String>,
    kept: Vec<String>,
    cost: Option<String>,
}

/// Takes a cluster down without asking; its events say what was removed, checked and kept.
pub(crate) async fn take_down(app: &App, name: &ClusterName, options: DownOptions) -> Result<Down> {
    let mut found = None;
    let mut cost = None;
    let ended = run_with_events(app, "down", name.as_str(), async |events, cancel| {
        let settings = app.settings(events.clone(), cancel.clone())?;
        // It goes with the cluster.
        let route = kept_route(&app.paths.cluster(name));
        let done = match cluster::down(&settings, name, options).await {
            Ok(done) => done,
            Err(error) => {
                route.iter().for_each(|route| notice::not_down(app, name, route, &error));
                return Err(error);
            }
        };
        if let Some(route) = route {
            notice::down(app, name, route, &done, &events, &cancel).await;
        }
        for line in &done.removed {
            events.note(format!("removed: {line}"));
        }
        for line in &done.seen {
            events.note(format!("checked: {line}"));
        }
        for line in &done.unknown {
            events.warn(format!("unknown: {line}"));
        }
        for line in &done.saved {
            events.note(format!("saved: {line}"));
        }
        for line in &done.lost {
            events.warn(format!("lost: {line}"));
        }
        for line in &done.kept {
            events.note(format!("kept: {line}"));
        }
        cost = (!done.spending.is_none()).then(|| describe(&done.spending.so_far));
        if let Some(cost) = &cost {
            events.note(format!("cost: about {cost} in all"));
        }
        // Claim only what was verified.
        let is_data = |line: &String| line.starts_with("data folder ") || line.starts_with("volume ");
        let summary = match done.unknown.is_empty() {
            true if done.kept.iter().any(is_data) => {
                format!("only the data of {name} is left: the next `up` uses it, and a later `down` removes it")
            }
            true => format!("nothing of {name} is left"),
            false => format!("all of {name} that could be found is gone"),
        };
        found = Some(done);
        Ok(Ended { summary, endpoints: Vec::new() })
    })
    .await?;
    let Proof { seen: proof, unknown, saved, lost, kept, .. } = found.unwrap_or_default();
    Ok(Down { summary: ended.summary, proof, unknown, saved, lost, kept, cost })
}

/// What is lost of a cluster's own MLflow when it is taken down.
pub(crate) struct LostRuns {
    /// So many runs, and models.
    pub(crate) what: String,
    /// Whether the hosts are gone then, so that no data on them is kept.
    hosts_vanish: bool,
}

impl LostRuns {
    /// It, and how it is kept.
    fn with_ways_out(&self) -> String {
        let or = if self.hosts_vanish { "" } else { ", or down --keep-data" };
        format!("{} (to keep them: gpucl mlflow export DIR{or})", self.what)
    }
}

/// What is lost of a cluster's own MLflow; `None` if it has none, or no runs, or if that is not known: a state that cannot be
/// read is no reason to keep what costs money.
pub(crate) async fn lost_runs(app: &App, name: &ClusterName) -> Option<LostRuns> {
    let known = cluster::status(&app.paths, name).ok().flatten()?;
    let spec = known.state.spec.as_ref().filter(|spec| spec.own_mlflow())?;
    let hosts_vanish = crate::providers::find(spec.provider.name()).is_ok_and(|one| one.capability().hosts_vanish);
    let runs = match target::Target::of(app, name.clone()) {
        Ok(target) => runs_soon(app, &target, COUNT_LIMIT).await,
        Err(_) => None,
    };
    let what = match runs {
        Some(0) => return None,
        Some(runs) => format!("{} in MLflow, and its models", human::count(runs, "run")),
        None => "runs and models in MLflow".to_owned(),
    };
    Some(LostRuns { what, hosts_vanish })
}

/// What will be removed, as far as the local state knows, and what will be kept.
fn what_goes(app: &App, args: &Args, name: &ClusterName) -> Result<Vec<String>> {
    let Some(known) = cluster::status(&app.paths, name)? else { return Ok(Vec::new()) };
    let report = &known.report;
    let names: Vec<&str> = report.nodes.iter().map(|node| node.name.as_str()).collect();
    let mut lines = Vec::new();
    if !names.is_empty() {
        lines.push(format!("{}: {}", human::count(names.len(), "node"), names.join(", ")));
    }
    lines.extend(report.resources.iter().cloned());
    let spec = known.state.spec.as_ref();
    if spec.is_some_and(|spec| spec.runtime == Runtime::Native) && !known.state.is_here() {
        lines.push(match args.keep_data {
            true => "on each host: processes, gpucl's folder except data (--keep-data)".to_owned(),
            false => {
                "on each host: processes, gpucl's folder with the data folder in it (--keep-data keeps it)".to_owned()
            }
        });
        lines.push(match args.purge {
            true => "the Ray environment there, if it was made for this cluster (--purge)".to_owned(),
            false => "the Ray environment there is kept for the next cluster (--purge removes it too)".to_owned(),
        });
    }
    if spec.is_some_and(|spec| spec.runtime == Runtime::Docker) {
        lines.push("on each host: containers, networks, firewall rules, gpucl's settings, gpucl's folder".to_owned());
        lines.push(match args.keep_data {
            true => "the data folder and data volumes are kept (--keep-data)".to_owned(),
            false => "the data folder, and volumes with object store buckets and the Jupyter workspace (--keep-data \
                      keeps them)"
                .to_owned(),
        });
        lines.push(match args.purge {
            true => "what was installed for the cluster: packages, repositories, keys (--purge)".to_owned(),
            false => "what was installed for the cluster is kept (--purge removes it too)".to_owned(),
        });
    }
    lines.push(format!("its credentials and its state in {}", app.paths.cluster(name).display()));
    Ok(std::iter::once("to be removed:".to_owned()).chain(lines.into_iter().map(|line| format!("  {line}"))).collect())
}
