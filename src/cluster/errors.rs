//! Errors and messages shared by several verbs.

use crate::agent::Ended;
use crate::cluster::options::UpOptions;
use crate::cluster::settings::Settings;
use crate::error::{Error, ErrorKind, LeftBehind};
use crate::money::{Money, describe};
use crate::name::{ClusterName, Key};
use crate::runtime::project::guards;
use crate::state::{ClusterState, ItemKind, Paths, Store};
use crate::util::{human, near};

/// The error for a cluster that has no state.
pub(crate) fn unknown(paths: &Paths, name: &ClusterName) -> Error {
    let error = Error::new(ErrorKind::NotFound, format!("find the cluster {name}"));
    let error = match Ended::of(paths, name) {
        Some(ended) => {
            let error = error.because(format!(
                "it was taken down at {}, since {}; it cost about {} in all",
                human::local(ended.at),
                ended.why,
                ended.cost
            ));
            ended.saved.iter().fold(error, |error, line| error.because(line))
        }
        None => error.because("no cluster of that name is known"),
    };
    let names: Vec<String> = Store::names(paths).unwrap_or_default().iter().map(ToString::to_string).collect();
    match near::nearest(name.as_str(), names.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None if names.is_empty() => error.hint("there is no cluster; `gpucl up cluster.yaml` brings one up"),
        None => error.hint(format!("there are: {}", names.join(", "))),
    }
}

/// The error for a cluster that is not running.
pub(crate) fn not_running(state: &ClusterState) -> Error {
    Error::new(ErrorKind::NotFound, format!("reach the cluster {}", state.name)).because("it is not running").hint(
        match &state.spec_path {
            Some(path) => format!("gpucl up {path}"),
            None => "gpucl up cluster.yaml".to_owned(),
        },
    )
}

/// The command that brings it up again; after a lack of capacity, with a wait.
pub(super) fn again(options: &UpOptions, kind: ErrorKind) -> String {
    let file = options.path.as_deref().map(|path| format!(" {path}")).unwrap_or_default();
    let wait = if kind == ErrorKind::Capacity { " --wait-capacity 6h" } else { "" };
    if options.one_run { format!("gpucl run{file}{wait} -- COMMAND") } else { format!("gpucl up{file}{wait}") }
}

/// The display names of a cluster's nodes, guards and resources.
fn what_is_there(known: &ClusterState) -> Vec<String> {
    let nodes = known.started_nodes();
    let others = known.items.iter().filter(|(_, item)| item.kind != ItemKind::Project);
    let hosts: Vec<Key> = known.hosts().map(|(key, _)| key.clone()).collect();
    let guards = known.spec.as_ref().map(|spec| guards(spec, &hosts)).unwrap_or_default();
    let guards = guards.iter().filter(|(host, _)| nodes.iter().any(|node| node.host == *host)).map(|(_, guard)| guard);
    let started = nodes.iter().map(|node| &node.key).chain(guards);
    let mut names: Vec<String> = others.map(|(key, _)| key).chain(started).map(Key::display_name).collect();
    names.sort();
    names
}

/// Adds what is left behind, and hints for going on and for removing it; nothing where the caller removes it.
pub(super) fn go_on(error: Error, settings: &Settings, options: &UpOptions, name: &ClusterName) -> Error {
    if options.one_run {
        return error;
    }
    let again = again(options, error.kind());
    let (held, per_hour): (Vec<String>, Vec<Money>) = match Store::open(&settings.paths, name) {
        Ok(Some(store)) => (what_is_there(store.state()), store.state().spending(jiff::Timestamp::now()).per_hour),
        _ => Default::default(),
    };
    let costs =
        if per_hour.is_empty() { String::new() } else { format!(", which costs {} an hour", describe(&per_hour)) };
    let error = if held.is_empty() || *error.left_behind() != LeftBehind::Clear {
        error
    } else {
        error.left(LeftBehind::Remaining(held))
    };
    error
        .hint(format!("{again}   # goes on from here"))
        .hint(format!("gpucl down -c {name}   # removes what is there{costs}"))
}

/// The message about a node that may have left a process behind.
pub(super) fn missed(node: &str) -> String {
    format!(
        "whether a job left a process behind on {node}: its reaper was killed while no supervisor ran, and a process \
         that had left it by then cannot be distinguished from others"
    )
}
