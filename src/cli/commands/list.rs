//! `gpucl list`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cluster::{self, Known};
use crate::engine::Cancel;
use crate::error::{Error, Result};
use crate::money::{Money, describe, sums};
use crate::name::ClusterName;
use crate::state::{Spending, Store};
use crate::util::human;
use serde_json::json;

/// The arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> anyhow::Result<u8> {
    let mut known = Vec::new();
    // A cluster that cannot be read does not hide the others.
    let mut unreadable = Vec::new();
    for name in Store::names(&app.paths)? {
        match inspect(app, &name).await {
            Ok(found) => known.extend(found),
            Err(error) => unreadable.push((name, error)),
        }
    }
    if app.json() {
        for known in &known {
            app.ui.json(&super::status::json(&known.report, None));
        }
        for (name, error) in &unreadable {
            let line = json!({ "v": 1, "type": "cluster", "cluster": name, "phase": "unreadable", "error": error.to_string() });
            app.ui.json(&line);
        }
    } else if known.is_empty() && unreadable.is_empty() {
        app.ui.status("no cluster; `gpucl up cluster.yaml` brings one up");
    } else {
        show(app, &known, &unreadable);
    }
    Ok(if unreadable.is_empty() { exit_code::DONE } else { exit_code::FAILED })
}

/// The state of a cluster; only this machine is inspected, no remote host.
async fn inspect(app: &App, name: &ClusterName) -> Result<Option<Known>> {
    let known = cluster::status(&app.paths, name)?;
    if !known.as_ref().is_some_and(|known| known.state.is_here()) {
        return Ok(known);
    }
    let (_handle, cancel) = Cancel::new();
    cluster::inspect(&app.settings_to_inspect(app.plain_events(), cancel)?, name).await
}

fn show(app: &App, known: &[Known], unreadable: &[(ClusterName, Error)]) {
    // The cost columns appear only if something costs money.
    let costs = known.iter().any(|known| !known.report.cost.is_none());
    let header = ["cluster", "phase", "provider", "nodes", "age", "costs an hour", "so far", "spec"];
    let mut table = Table::new(&header.into_iter().filter(|name| costs || !COSTS.contains(name)).collect::<Vec<_>>());
    for known in known {
        let report = &known.report;
        let running = report.nodes.iter().filter(|node| node.running).count();
        let age = report.created.duration_until(jiff::Timestamp::now()).unsigned_abs();
        let mut row = vec![
            report.cluster.to_string(),
            report.machine.as_ref().map_or_else(|| report.phase.to_string(), |machine| format!("on {machine}")),
            report.provider.clone(),
            format!("{running}/{}", report.nodes.len()),
            human::short_duration(age),
        ];
        if costs {
            row.extend([amounts(&report.cost.per_hour), amounts(&report.cost.so_far)]);
        }
        row.push(report.spec_path.clone().unwrap_or_default());
        table.row(row);
    }
    let sum =
        |of: fn(&Spending) -> &Vec<Money>| sums(known.iter().flat_map(|known| of(&known.report.cost).iter().copied()));
    let (per_hour, so_far) = (sum(|cost| &cost.per_hour), sum(|cost| &cost.so_far));
    if known.len() > 1 && costs {
        let blank = String::new;
        let all = [blank(), blank(), blank(), blank(), amounts(&per_hour), amounts(&so_far)];
        table.row(std::iter::once("total".to_owned()).chain(all));
    }
    for (name, error) in unreadable {
        table.row([name.as_str(), "unreadable"]);
        app.ui.status(format!("warning: {error}"));
        for hint in error.hints() {
            app.ui.status(format!("hint: {hint}"));
        }
    }
    app.ui.data(table);
}

/// The cost columns.
const COSTS: [&str; 2] = ["costs an hour", "so far"];

/// The amounts in a cell; empty if there are none.
fn amounts(amounts: &[Money]) -> String {
    if amounts.is_empty() { String::new() } else { describe(amounts) }
}
