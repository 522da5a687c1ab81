//! `up`: from nothing, or from whatever there is, to a verified cluster.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::open::{same_file, same_kind};
use super::{Approval, Settings, backend};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::event::{Endpoint, WorkerGpus};
use crate::money::{Money, told};
use crate::provider::Start;
use crate::spec::Loaded;
use crate::state::{ClusterState, ItemKind, Lock, Spending, Store};

/// How `up` is asked for.
#[derive(Debug, Clone, Default)]
pub struct UpOptions {
    /// The file that the spec came from, absolute.
    pub path: Option<String>,
    /// Take this file as the cluster's spec, though another one is running.
    pub new_spec: bool,
    /// Wait for hosts that can be had later, rather than hand that back.
    pub armed: bool,
    /// How long to ask again while the provider has none of what is asked for; the spec says it otherwise.
    pub wait_capacity: Option<std::time::Duration>,
    /// Who is asked before what costs much is made.
    pub approval: Approval,
    /// What is kept of the environment's credentials, for a deadline to be acted upon when nobody is there; by consent.
    pub secrets: BTreeMap<String, SecretString>,
}

/// How `up` ended.
#[derive(Debug)]
pub enum UpOutcome {
    /// The cluster is ready.
    Ready(UpReport),
    /// Its hosts can be had later; nothing was asked for yet. An armed start waits for them.
    Later(Start),
}

/// What `up` came to.
#[derive(Debug)]
pub struct UpReport {
    /// How many operations it took; none when all was as it should be.
    pub operations: usize,
    /// How many checks passed.
    pub checks: usize,
    /// The GPUs that workers were seen to own, where containers were looked into.
    pub gpus: Vec<WorkerGpus>,
    /// What answers now, and where.
    pub endpoints: Vec<Endpoint>,
    /// It answers as it is, without `gpucl dashboard`: the cluster runs on this machine.
    pub is_here: bool,
    /// What it costs.
    pub spending: Spending,
}

/// Brings a cluster up, or to what its spec says now, and verifies it.
pub async fn up(settings: &Settings, loaded: &Loaded, options: &UpOptions) -> Result<UpOutcome> {
    let name = &loaded.spec.name;
    let _lock = Lock::take(&settings.paths, name, "up")?;
    let known = Store::open(&settings.paths, name)?;
    if let Some(known) = &known {
        same_kind(known.state(), &loaded.spec)?;
        if !options.new_spec {
            same_file(known.state(), options.path.as_deref())?;
        }
    }
    backend::of(&loaded.spec)?.up(settings, loaded, options, known).await
}

/// The command that brings it up again; what there is none of may be there later.
pub(super) fn again(options: &UpOptions, kind: ErrorKind) -> String {
    let up = options.path.as_deref().map_or_else(|| "gpucl up".to_owned(), |path| format!("gpucl up {path}"));
    if kind == ErrorKind::Capacity { format!("{up} --wait-capacity 6h") } else { up }
}

/// What is there of a cluster, by the names that people have for it.
fn what_is_there(known: &ClusterState) -> Vec<String> {
    let nodes = known.started_nodes().into_iter().map(|node| node.key.display_name());
    let others = known.items.iter().filter(|(_, item)| item.kind != ItemKind::Project);
    let mut names: Vec<String> = others.map(|(key, _)| key.display_name()).chain(nodes).collect();
    names.sort();
    names
}

/// Says what there is now, how to go on, and how to get rid of it.
pub(super) fn go_on(error: Error, settings: &Settings, options: &UpOptions, name: &crate::name::ClusterName) -> Error {
    let again = again(options, error.kind());
    let (held, per_hour): (Vec<String>, Vec<Money>) = match Store::open(&settings.paths, name) {
        Ok(Some(store)) => (what_is_there(store.state()), store.state().spending(jiff::Timestamp::now()).per_hour),
        _ => Default::default(),
    };
    let costs = if per_hour.is_empty() { String::new() } else { format!(", which costs {} an hour", told(&per_hour)) };
    let error = if held.is_empty() || *error.left_behind() != LeftBehind::Clear {
        error
    } else {
        error.left(LeftBehind::Remaining(held))
    };
    error
        .hint(format!("{again}   # goes on from here"))
        .hint(format!("gpucl down -c {name}   # removes what is there{costs}"))
}
