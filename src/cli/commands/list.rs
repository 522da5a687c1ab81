//! `gpucl list`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cluster::{self, Known};
use crate::error::{Error, Result};
use crate::name::ClusterName;
use crate::state::Store;
use crate::util::human;
use serde_json::json;

/// The arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> Result<u8> {
    let mut known = Vec::new();
    // One cluster that cannot be read does not hide the others.
    let mut unreadable = Vec::new();
    for name in Store::names(&app.paths)? {
        match cluster::status(&app.paths, &name) {
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

fn show(app: &App, known: &[Known], unreadable: &[(ClusterName, Error)]) {
    let mut table = Table::new(&["cluster", "phase", "provider", "nodes", "age", "spec"]);
    for known in known {
        let report = &known.report;
        let running = report.nodes.iter().filter(|node| node.running).count();
        let age = report.created.duration_until(jiff::Timestamp::now()).unsigned_abs();
        table.row([
            report.cluster.to_string(),
            report.phase.to_owned(),
            report.provider.clone(),
            format!("{running}/{}", report.nodes.len()),
            human::short_duration(age),
            report.spec_path.clone().unwrap_or_default(),
        ]);
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
