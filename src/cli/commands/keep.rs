//! `gpucl keep`.

use jiff::SignedDuration;

use crate::agent::seen::GuardPhase;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::target;
use crate::cluster::{self, Kept};
use crate::engine::Cancel;
use crate::error::Result;
use crate::util::{human, when};

/// The arguments of `keep`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How much longer than its end: 2 or 2.5 (hours), 90m, 1h30m or 2d
    #[arg(value_name = "TIME")]
    time: String,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let by = when::parse_length(&args.time).map_err(|why| usage("read the time", why))?;
    let name = target::name(app)?;
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings(app.plain_events(), cancel)?;
    let kept = cluster::keep(&settings, &name, by).await?;
    report(app, &kept)?;
    Ok(exit_code::DONE)
}

/// Extends the lease for its agent.
pub(super) async fn extend(app: &App, by: SignedDuration) -> anyhow::Result<u8> {
    let name = target::name(app)?;
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings(app.plain_events(), cancel)?;
    let kept = cluster::extend(&settings, &name, by).await?;
    report(app, &kept)?;
    Ok(exit_code::DONE)
}

fn report(app: &App, kept: &Kept) -> Result<()> {
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "kept", "before": kept.before, "end": kept.end, "until": kept.until,
            "hosts": kept.seen.as_ref().map(|seen| &seen.hosts),
        }));
        return Ok(());
    }
    match kept.end {
        Some(end) => app.ui.data(format!("it ends at {}: {}", human::in_time(end.at), end.why)),
        None => app.ui.data(format!("it is not taken down before {}", human::in_time(kept.until))),
    }
    if let Some(before) = kept.before {
        app.ui.data(format!("  before: {}", human::local(before.at)));
    }
    for host in kept.seen.iter().flat_map(|seen| &seen.hosts) {
        match (&host.guard, &host.error) {
            (Some(guard), _) if guard.phase != GuardPhase::Waiting => {
                app.ui.data(format!("  {}: {}", host.host, guard.phase));
            }
            (None, Some(why)) => app.ui.status(format!("warning: {} does not know of it yet: {why}", host.host)),
            _ => {}
        }
    }
    Ok(())
}
