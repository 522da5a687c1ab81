//! What the agent of a cluster's end has done by commands: `gpucl agent --look-at-end`, `--copy-here` and `--extend`.

use jiff::SignedDuration;

use super::{keep, save};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::target;
use crate::cluster;
use crate::engine::Cancel;

/// By how much a lease is extended at a time: little is paid for in vain when the work is done.
const EXTENDS_BY: SignedDuration = SignedDuration::from_hours(1);

/// Looks at the end, and prints how far the guards are.
pub(super) async fn look(app: &App) -> anyhow::Result<u8> {
    let name = target::name(app)?;
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings_to_inspect(app.plain_events(), cancel)?;
    let seen = cluster::look_at_end(&settings, &name).await?;
    if let Err(error) = cluster::look_at_jobs(&settings, &name).await {
        app.ui.error_line(&format!("warning: it is not known which jobs have ended: {error}"));
    }
    for host in seen.into_iter().flat_map(|seen| seen.hosts) {
        if app.json() {
            app.ui.json(&serde_json::json!({
                "v": 1, "type": "guard", "host": host.host, "state": host.guard, "error": host.error,
            }));
        } else {
            let how = host.guard.map(|guard| guard.phase.to_string()).or(host.error).unwrap_or_default();
            app.ui.data(format!("{}: {how}", host.host));
        }
    }
    Ok(exit_code::DONE)
}

/// Copies to this machine.
pub(super) async fn copy_here(app: &App) -> anyhow::Result<u8> {
    save::copy_here(app).await
}

/// Extends the lease.
pub(super) async fn extend(app: &App) -> anyhow::Result<u8> {
    keep::extend(app, EXTENDS_BY).await
}
