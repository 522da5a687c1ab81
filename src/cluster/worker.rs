//! `worker stop`, `start` and `kill`: one worker by hand. How many there are is the spec's.

use super::errors::{not_running, unknown};
use super::hosts;
use super::settings::Settings;
use super::which_machine::refuse_other_machine;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{ClusterName, Key};
use crate::runtime::project::ByHand;
use crate::spec::{NodeRole, NodeSpec};
use crate::state::{ClusterState, Lock, Store};
use crate::util::near;

/// Stops, starts or kills one worker.
///
/// # Errors
/// If there is no worker of that name, or its host does not do it.
pub async fn by_hand(settings: &Settings, name: &ClusterName, worker: &Key, by_hand: ByHand) -> Result<()> {
    let _lock = Lock::take(&settings.paths, name, by_hand.verb())?;
    let store = Store::open(&settings.paths, name)?.ok_or_else(|| unknown(&settings.paths, name))?;
    refuse_other_machine(&settings.paths, store.state(), "change a worker of")?;
    let spec = store.state().spec.clone().ok_or_else(|| unknown(&settings.paths, name))?;
    let worker = named(store.state(), &worker.display_name(), by_hand.name())?;
    hosts::by_hand(settings, &spec, store, &worker, by_hand).await
}

/// Finds a running cluster's worker by its name, with or without the hyphen.
///
/// # Errors
/// If there is none of that name, with a near one; if it is the head; if the cluster does not run.
pub fn named(state: &ClusterState, name: &str, doing: &str) -> Result<NodeSpec> {
    let doing = format!("{doing} {name}");
    if state.platform().is_some() {
        return Err(Error::new(ErrorKind::Unsupported, doing)
            .because("the platform decides which workers run")
            .hint("change `count`, `min` or `max` in the spec, then `gpucl up`"));
    }
    let running = || state.projects().any(|(_, project)| !project.stopped && !project.nodes.is_empty());
    if !running() {
        return Err(not_running(state));
    }
    let nodes = state.started_nodes();
    let plain = |text: &str| text.replace('-', "");
    let workers: Vec<&NodeSpec> = nodes.iter().filter(|node| node.role == NodeRole::Worker).collect();
    if let Some(found) = workers.iter().find(|node| plain(node.key.as_str()) == plain(name)) {
        return Ok((*found).clone());
    }
    let error = Error::new(ErrorKind::Usage, doing);
    if name == Key::head().as_str() {
        let cluster = &state.name;
        return Err(error
            .because("the head is not a worker: without it there is no cluster")
            .hint(format!("gpucl stop -c {cluster}   # ends all nodes and keeps the hosts")));
    }
    let names: Vec<String> = workers.iter().map(|node| node.key.display_name()).collect();
    let error = error.because(format!("{} has no worker of that name", state.name));
    Err(match near::nearest(name, names.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("there are: {}", names.join(", "))),
    })
}
