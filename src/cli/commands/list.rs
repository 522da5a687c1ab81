//! `gpucl list`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cluster;
use crate::error::Result;
use crate::util::human;

/// The arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> Result<u8> {
    let known = cluster::list(&app.paths)?;
    if app.json() {
        for known in &known {
            app.ui.json(&super::status::json(&known.report, None));
        }
        return Ok(exit_code::DONE);
    }
    if known.is_empty() {
        app.ui.status("no cluster; `gpucl up cluster.yaml` brings one up");
        return Ok(exit_code::DONE);
    }
    let mut table = Table::new(&["cluster", "phase", "provider", "nodes", "age", "spec"]);
    for known in &known {
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
    app.ui.data(table);
    Ok(exit_code::DONE)
}
