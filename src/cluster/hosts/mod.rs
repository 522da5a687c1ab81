//! Clusters on hosts: one project per host, in either runtime, on this machine or by SSH.

mod affected_paths;
mod capacity;
mod connector;
mod files;
mod fleet;
mod goal;
mod images;
mod layout;
mod observe;
mod on_hosts;
mod outside;
mod places;
mod promise;
mod replan;
mod rounds;
mod status;
mod steps;
mod substrate;
mod supply;
#[cfg(test)]
mod tests;
mod verify;
mod worker;

use std::sync::Arc;

use super::settings::Settings;
use super::substrate::{Look, Opening, Substrate};
use crate::engine::Ledger;
use crate::error::Result;
use crate::runtime::project::ByHand;
use crate::spec::{NodeSpec, Spec};
use crate::state::Store;
use connector::HostConnections;
pub use connector::HostConnector;
pub(super) use layout::{Addresses, Layout};
use on_hosts::OnHosts;
pub(super) use on_hosts::playbooks_fit;

/// Opens a cluster on hosts; none is connected yet.
///
/// # Errors
/// If the spec has what its hosts cannot use, or credentials or files cannot be read.
pub(super) fn open(opening: &Opening<'_>) -> Result<Box<dyn Substrate>> {
    Ok(Box::new(open_hosts(opening)?))
}

fn open_hosts(opening: &Opening<'_>) -> Result<OnHosts> {
    let connector = HostConnections::new(opening.connections, opening.spec, opening.settings)?;
    OnHosts::open(opening, Arc::new(connector))
}

/// Stops, starts or kills one worker, and disturbs no other node.
///
/// # Errors
/// If its host does not do it.
pub(super) async fn by_hand(
    settings: &Settings,
    spec: &Spec,
    store: Store,
    worker: &NodeSpec,
    by_hand: ByHand,
) -> Result<()> {
    let on = open_hosts(&Opening::of(settings, spec, &store, Look::Running))?;
    worker::by_hand(&on, &Ledger::new(store), worker, by_hand).await
}
