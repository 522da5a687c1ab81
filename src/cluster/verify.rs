//! `verify`: all checks of a cluster once more.

use std::time::Duration;

use super::errors::unknown;
use super::open::open;
use super::outcome::Verified;
use super::serve::check_of_spec;
use super::settings::Settings;
use super::substrate::{Look, Opening};
use super::which_machine::refuse_other_machine;
use crate::engine::Ledger;
use crate::error::Result;
use crate::name::ClusterName;
use crate::state::{Lock, Record, Store};

/// Runs all checks.
pub async fn verify(settings: &Settings, name: &ClusterName) -> Result<Verified> {
    let _lock = Lock::take(&settings.paths, name, "verify")?;
    let store = Store::open(&settings.paths, name)?.ok_or_else(|| unknown(&settings.paths, name))?;
    refuse_other_machine(&settings.paths, store.state(), "verify")?;
    let spec = store.state().running_spec().cloned().ok_or_else(|| unknown(&settings.paths, name))?;
    let substrate = open(&Opening::of(settings, &spec, &store, Look::Checks { at_most: Duration::ZERO }))?;
    let ledger = Ledger::new(store);
    substrate.inspect_again(&ledger.state()).await?;
    let mut verified = substrate.verify(&ledger, None).await?;
    verified.passed += check_of_spec(settings, &ledger.state(), &ledger.folder(), &spec).await?.passed;
    if !substrate.is_ready_since(ledger.state().ready_since) {
        ledger.write(Record::ClusterReady)?;
    }
    Ok(verified)
}
