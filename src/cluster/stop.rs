//! `stop`: ends Ray and keeps the hosts.

use super::errors::unknown;
use super::open::open;
use super::settings::Settings;
use super::substrate::{Look, Opening};
use super::up::pipeline;
use super::which_machine::refuse_other_machine;
use crate::engine::Ledger;
use crate::error::Result;
use crate::name::ClusterName;
use crate::state::{Lock, Store};

/// Ends all nodes and returns the resources that are kept.
pub async fn stop(settings: &Settings, name: &ClusterName) -> Result<Vec<String>> {
    let _lock = Lock::take(&settings.paths, name, "stop")?;
    let store = Store::open(&settings.paths, name)?.ok_or_else(|| unknown(&settings.paths, name))?;
    refuse_other_machine(&settings.paths, store.state(), "stop")?;
    let spec = store.state().spec.clone().ok_or_else(|| unknown(&settings.paths, name))?;
    let mut substrate = open(&Opening::of(settings, &spec, &store, Look::Stages))?;
    substrate.to_stop();
    let ledger = Ledger::new(store);
    let pipeline = pipeline(substrate.as_ref(), &ledger, settings);
    let observed = pipeline.observe_consistent().await?;
    let goal = substrate.goal_of_stop(&observed)?;
    let planned = pipeline.plan_for(&goal, observed)?;
    let result = pipeline.execute(&planned.plan).await.into_result();
    let kept = ledger.compact();
    result.map_err(|error| error.hint(format!("gpucl stop -c {name}   # goes on from here")))?;
    kept?;
    let resources = planned.observed.resources.iter();
    Ok(resources.map(|found| format!("{} {}", found.kind.0, found.key.display_name())).collect())
}
