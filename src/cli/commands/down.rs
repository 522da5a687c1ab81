//! `gpucl down`.

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::target;
use crate::cluster;
use crate::error::Result;
use crate::money::describe;
use crate::name::ClusterName;
use crate::provider::Runtime;
use crate::util::human;

/// The arguments of `down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the data volumes on the hosts
    #[arg(long)]
    keep_data: bool,
    /// Remove what was installed on the hosts for the cluster as well: packages, repositories, settings
    #[arg(long)]
    purge: bool,
    /// Delete the lease as well, though it was not made by `up`
    #[arg(long)]
    release_lease: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let name = target::name(app)?;
    if !app.yes && !app.json() && app.ui.asks() {
        for line in what_goes(app, &args, &name)? {
            app.ui.error_line(&line);
        }
        let answer = app.ui.ask(&format!("remove everything of the cluster {name}? [y/N] "));
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(usage("remove the cluster", "you did not say yes; nothing was changed"));
        }
    }
    let options =
        cluster::DownOptions { keep_data: args.keep_data, purge: args.purge, release_lease: args.release_lease };
    let (mut proof, mut unknown, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    let mut cost = None;
    let ended = run_with_events(app, "down", name.as_str(), async |events, cancel| {
        let settings = app.settings(events.clone(), cancel)?;
        let done = cluster::down(&settings, &name, options).await?;
        for line in &done.removed {
            events.note(format!("removed: {line}"));
        }
        for line in &done.seen {
            events.note(format!("looked: {line}"));
        }
        for line in &done.unknown {
            events.warn(format!("not known: {line}"));
        }
        for line in &done.kept {
            events.note(format!("stays: {line}"));
        }
        cost = (!done.spending.is_none()).then(|| describe(&done.spending.so_far));
        if let Some(cost) = &cost {
            events.note(format!("cost: about {cost} in all"));
        }
        // What cannot be known is not claimed.
        let summary = match done.unknown.is_empty() {
            true => format!("nothing of {name} is left"),
            false => format!("all of {name} that could be found is gone"),
        };
        (proof, unknown, kept) = (done.seen, done.unknown, done.kept);
        Ok(Ended { summary, endpoints: Vec::new() })
    })
    .await?;
    if app.ui.shows_both() {
        // What went, what was looked at and what stays stands above it on the same screen.
        app.ui.data(ended.summary);
    } else if !app.json() {
        app.ui.data(ended.summary);
        if let Some(cost) = cost {
            app.ui.data(format!("  it cost about {cost} in all"));
        }
        for line in proof {
            app.ui.data(format!("  {line}"));
        }
        for line in unknown {
            app.ui.data(format!("  not known: {line}"));
        }
        for line in kept {
            app.ui.data(format!("  stays: {line}"));
        }
    }
    Ok(exit_code::DONE)
}

/// What will be removed, by what is known of it, and what stays.
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
        lines.push("on each host: processes, the folder of ours".to_owned());
        lines.push(match args.purge {
            true => "the Ray environment there, where it was made for it (--purge)".to_owned(),
            false => "the Ray environment there stays for the next one (--purge removes it too)".to_owned(),
        });
    }
    if spec.is_some_and(|spec| spec.runtime == Runtime::Docker) {
        lines.push(
            "on each host: containers, networks, firewall rules, settings of ours, the folder of ours".to_owned(),
        );
        lines.push(match args.keep_data {
            true => "data volumes stay (--keep-data)".to_owned(),
            false => {
                "data volumes, with the buckets of its object store and Jupyter's workspace (--keep-data keeps them)"
                    .to_owned()
            }
        });
        lines.push(match args.purge {
            true => "what was installed for it: packages, repositories, keys (--purge)".to_owned(),
            false => "what was installed for it stays (--purge removes it too)".to_owned(),
        });
    }
    lines.push(format!("its credentials and its state in {}", app.paths.cluster(name).display()));
    Ok(std::iter::once("this goes:".to_owned()).chain(lines.into_iter().map(|line| format!("  {line}"))).collect())
}
