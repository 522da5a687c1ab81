//! The end of a run: what it made is taken down, stopped or left.

use super::keep::Keep;
use crate::cli::app::App;
use crate::cli::commands::down::{lost_runs, take_down};
use crate::cli::commands::stop::end_nodes;
use crate::cli::scheduled_up::waiting;
use crate::cluster::{self, DownOptions};
use crate::error::Result;
use crate::money::{Money, describe};
use crate::name::ClusterName;

/// Whether there is anything of a cluster, as far as this machine knows.
///
/// # Errors
/// If the state cannot be read.
pub(super) fn exists(app: &App, name: &ClusterName) -> Result<bool> {
    Ok(cluster::status(&app.paths, name)?.is_some() || waiting(app, name).is_some())
}

/// Ends what is not kept; returns the result in one line, if something was ended.
///
/// # Errors
/// As `down` and `stop`; something may be left then.
pub(super) async fn end(app: &App, name: &ClusterName, keep: Keep) -> Result<Option<String>> {
    if !exists(app, name)? {
        return Ok(None);
    }
    match keep {
        Keep::Nothing => {
            if let Some(lost) = lost_runs(app, name).await {
                let what = lost.what;
                app.ui.status(format_args!("removed with the cluster: {what} (to keep them: --keep all)"));
            }
            app.ui.status(format_args!("taking {name} down"));
            take_down(app, name, DownOptions::default()).await.map(|down| Some(down.summary))
        }
        Keep::Hosts => end_nodes(app, name).await.map(Some),
        Keep::All => Ok(None),
    }
}

/// What is left of a cluster.
pub(super) struct Left {
    /// Nodes and resources by name; empty if the state cannot be read.
    pub(super) items: Vec<String>,
    /// What it costs an hour, one amount for each unit.
    pub(super) per_hour: Vec<Money>,
}

impl Left {
    /// It in one line, with the command that removes it.
    pub(super) fn describe(&self, name: &ClusterName) -> String {
        let what = if self.items.is_empty() { "unknown".to_owned() } else { self.items.join(", ") };
        let cost = match self.per_hour.as_slice() {
            [] => String::new(),
            amounts => format!(", which costs {} an hour", describe(amounts)),
        };
        format!("left of {name}: {what}{cost}; to remove it: gpucl down -c {name}")
    }
}

/// What is left of a cluster, from its state; `None` if that is nothing.
pub(super) fn what_is_left(app: &App, name: &ClusterName) -> Option<Left> {
    let report = match cluster::status(&app.paths, name) {
        Ok(known) => known?.report,
        // What cannot be read is not nothing.
        Err(_) => return Some(Left { items: Vec::new(), per_hour: Vec::new() }),
    };
    let nodes = report.nodes.iter().filter(|node| node.running).map(|node| node.name.clone());
    let items: Vec<String> = report.resources.iter().cloned().chain(nodes).collect();
    let items =
        if items.is_empty() { vec![format!("its state in {}", app.paths.cluster(name).display())] } else { items };
    Some(Left { items, per_hour: report.cost.per_hour })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Unit;

    #[test]
    fn the_last_line_says_what_is_left_what_it_costs_and_how_to_remove_it() {
        let name: ClusterName = "demo".parse().unwrap();
        let mut left = Left { items: vec!["host host-0".to_owned(), "head".to_owned()], per_hour: Vec::new() };
        assert_eq!(left.describe(&name), "left of demo: host host-0, head; to remove it: gpucl down -c demo");
        left.per_hour = vec![Money { micros: 1_290_000, unit: Unit::Usd }];
        assert_eq!(
            left.describe(&name),
            "left of demo: host host-0, head, which costs 1.29 USD an hour; to remove it: gpucl down -c demo"
        );
        let unknown = Left { items: Vec::new(), per_hour: Vec::new() };
        assert_eq!(unknown.describe(&name), "left of demo: unknown; to remove it: gpucl down -c demo");
    }
}
