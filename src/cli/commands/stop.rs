//! `gpucl stop`.

use super::save::{self, AroundStop};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::target::{self, Target};
use crate::cluster;
use crate::error::Result;
use crate::money::describe;
use crate::name::ClusterName;

/// The arguments of `stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> anyhow::Result<u8> {
    let name = target::name(app)?;
    let saving = save::around_stop(app, &name)?;
    if saving == AroundStop::Before {
        saved_or_warned(app, &name).await;
    }
    let summary = end_nodes(app, &name).await?;
    match saving {
        AroundStop::After => saved_or_warned(app, &name).await,
        AroundStop::AtEnd => app.ui.status(format_args!(
            "no guard runs any more: what `end.save` names is saved in the last minutes before the end only if this machine \
             is on then; `gpucl save -c {name}` saves it now"
        )),
        AroundStop::Never | AroundStop::Before => {}
    }
    if !app.json() {
        app.ui.data(summary);
        // Stopping Ray does not stop the billing.
        let cost = cluster::status(&app.paths, &name)?.map(|known| known.report.cost.per_hour).unwrap_or_default();
        if !cost.is_empty() {
            app.ui.data(format!("  what is kept costs {} an hour", describe(&cost)));
        }
        app.ui.data(format!("  gpucl up    starts it again\n  gpucl down -c {name}    removes everything"));
    }
    Ok(exit_code::DONE)
}

/// Saves what the spec names; what is not saved then is no reason to let nodes run on.
async fn saved_or_warned(app: &App, name: &ClusterName) {
    let saved = async {
        let target = Target::of(app, name.clone())?;
        save::before_it_goes(app, &target).await
    };
    if let Err(error) = saved.await {
        app.ui.error_line(&format!("warning: {error}"));
    }
}

/// Ends a cluster's nodes and keeps its hosts; returns the result in one line.
pub(crate) async fn end_nodes(app: &App, name: &ClusterName) -> Result<String> {
    let ended = run_with_events(app, "stop", name.as_str(), async |events, cancel| {
        let settings = app.settings(events, cancel)?;
        let kept = cluster::stop(&settings, name).await?;
        let kept = if kept.is_empty() { "nothing".to_owned() } else { kept.join(", ") };
        Ok(Ended { summary: format!("stopped: no node runs; kept: {kept}"), endpoints: Vec::new() })
    })
    .await?;
    Ok(ended.summary)
}
