//! `gpucl save`.

mod here;

use jiff::Timestamp;

use crate::agent::seen::{GuardsReport, Saved, SavedHere, all_saved_of};
use crate::agent::watcher::Watcher;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::output::BytesBar;
use crate::cli::target::Target;
use crate::cluster::{self, Phase};
use crate::engine::Cancel;
use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::provider::Runtime;
use crate::spec::{SaveSpec, SaveTo};

/// The arguments of `save`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let all = wanted(&target);
    if all.is_empty() {
        return Err(usage(format!("save {}", target.name), "its spec names nothing to save")
            .hint("`end: {save: [{from: results, to: here:results}]}` does; `gpucl up` takes it over")
            .into());
    }
    save_all(app, &target).await?;
    report(app, &target)?;
    Ok(exit_code::DONE)
}

/// Saves what the spec of a cluster names, on the hosts and to this machine, and records what came of it.
async fn save_all(app: &App, target: &Target) -> Result<()> {
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings(app.plain_events(), cancel)?;
    if wanted(target).iter().any(|save| !matches!(save.to, SaveTo::Here(_))) {
        app.ui.status("saving on the hosts");
        let bar = BytesBar::new(&app.ui);
        cluster::save_on_hosts(&settings, &target.name, &|done, all| bar.set(done, all)).await?;
    }
    pass_here(app, target, None).await.map(|_| ())
}

/// The same before a cluster goes with its job: each line is said on stderr. Nothing is done where the spec names nothing.
///
/// # Errors
/// If not all was saved.
pub(super) async fn before_it_goes(app: &App, target: &Target) -> Result<()> {
    if wanted(target).is_empty() {
        return Ok(());
    }
    save_all(app, target).await?;
    for saved in all_saved_of(target.folder()) {
        app.ui.status(format_args!("saved {}", saved.line()));
    }
    is_all_saved(target)
}

/// When a `stop` saves what the spec names: no guard runs once nodes have ended, and at the end nothing is saved but by this
/// machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AroundStop {
    /// It names nothing, or its agent has seen to it.
    Never,
    /// Before nodes end: the guard's program ends with them.
    Before,
    /// Once nodes have ended, as nothing is written any more then: the guard's program stays on the host.
    After,
    /// Not now, as the end is far: the agent does it in the last minutes.
    AtEnd,
}

/// When a `stop` of this cluster saves.
///
/// # Errors
/// If the state cannot be read.
pub(super) fn around_stop(app: &App, name: &ClusterName) -> Result<AroundStop> {
    let Some(known) = cluster::status(&app.paths, name)? else { return Ok(AroundStop::Never) };
    let spec = known.state.running_spec();
    let saves = spec.and_then(|spec| spec.end.as_ref()).is_some_and(|end| !end.save.is_empty());
    if !saves || known.report.phase == Phase::Stopped || Watcher::why(&app.paths.cluster(name)).is_some() {
        return Ok(AroundStop::Never);
    }
    let begins = known.report.end.and_then(|end| end.begins);
    let keeps_guard =
        known.state.projects().next().is_some() && spec.is_some_and(|spec| spec.runtime == Runtime::Native);
    Ok(match (keeps_guard, begins.is_some_and(|begins| begins <= Timestamp::now())) {
        (false, _) => AroundStop::Before,
        (true, true) => AroundStop::After,
        (true, false) => AroundStop::AtEnd,
    })
}

/// Copies what the spec saves to this machine, for its agent. A pass that begins when the hosts have saved all is the last.
pub(super) async fn copy_here(app: &App) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let seen = GuardsReport::of(target.folder());
    let revision = seen.as_ref().map(GuardsReport::revision).unwrap_or_default();
    let is_last = seen.is_some_and(|seen| seen.guards().all(|(_, guard)| guard.phase.is_done()));
    let saved = pass_here(app, &target, is_last.then_some(revision)).await?;
    for one in &saved {
        app.ui.status(one.line());
    }
    let failed = saved.iter().filter(|one| !one.complete).count();
    Ok(if failed == 0 { exit_code::DONE } else { exit_code::FAILED })
}

/// What the spec of what runs names to save.
fn wanted(target: &Target) -> Vec<SaveSpec> {
    let spec = target.known.state.running_spec();
    spec.and_then(|spec| spec.end.as_ref()).map(|end| end.save.clone()).unwrap_or_default()
}

/// Copies to this machine, and records what came of it.
async fn pass_here(app: &App, target: &Target, last_pass_of: Option<u64>) -> Result<Vec<Saved>> {
    let mut saved = Vec::new();
    for save in wanted(target) {
        let SaveTo::Here(to) = &save.to else { continue };
        saved.push(here::copy(app, target, &save.from, to).await);
    }
    if !saved.is_empty() {
        SavedHere::now(saved.clone(), last_pass_of).write(target.folder())?;
    }
    Ok(saved)
}

/// Prints what came of each.
///
/// # Errors
/// If not all was saved.
fn report(app: &App, target: &Target) -> Result<()> {
    let saved = all_saved_of(target.folder());
    for one in &saved {
        if app.json() {
            app.ui.json(&serde_json::json!({
                "v": 1, "type": "saved", "from": one.from, "to": one.to, "files": one.files, "bytes": one.bytes,
                "complete": one.complete, "failed": one.failed, "newest": one.newest,
            }));
        } else {
            app.ui.data(one.line());
        }
    }
    is_all_saved(target)
}

/// An error with all that is not saved.
fn is_all_saved(target: &Target) -> Result<()> {
    let silent =
        GuardsReport::of(target.folder()).into_iter().flat_map(|seen| seen.hosts).filter(|host| host.guard.is_none());
    let silent: Vec<String> = silent.map(|host| format!("{}: {}", host.host, host.error.unwrap_or_default())).collect();
    let saved = all_saved_of(target.folder());
    if silent.is_empty() && saved.iter().all(|one| one.complete) {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Host, "save everything");
    let missing = saved.iter().filter(|one| !one.complete).map(Saved::line);
    Err(missing
        .chain(silent)
        .fold(error, |error, line| error.because(line))
        .hint(format!("gpucl save -c {}   # goes on from here", target.name)))
}
