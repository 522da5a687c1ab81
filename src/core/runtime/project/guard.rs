//! The guard of the end of a slot, the same for every runtime: on which hosts it runs, what it is given, and how it is
//! given an end. The program is `templates/end/`.

use serde_json::{Value, json};

use super::{DeployRequest, HostInput};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::name::Key;
use crate::render::{Library, quote};
use crate::spec::{NodeRole, SaveFrom, SaveSpec, SaveTo, Spec};

/// The folder of the program.
const PROGRAM: &str = "templates/end/";

/// The file with the keys of the store that outlives the cluster, in `secrets/`.
pub(in crate::runtime) const CREDENTIALS: &str = "end_credentials";

/// Where a guard finds things, as its own process sees them.
pub(in crate::runtime) struct Places {
    /// The folder with `guard.json` and its state.
    pub(in crate::runtime) home: String,
    /// The data folder.
    pub(in crate::runtime) data: String,
    /// The folder with the files of credentials.
    pub(in crate::runtime) secrets: String,
    /// The URL and the region of the cluster's own object store, if it has one.
    pub(in crate::runtime) store: Option<(String, String)>,
    /// Address and port of the head's GCS.
    pub(in crate::runtime) gcs: String,
    /// The URL of Ray's dashboard.
    pub(in crate::runtime) dashboard: String,
    /// The program `ray`.
    pub(in crate::runtime) ray: String,
    /// The URL of Jupyter, if the cluster has it.
    pub(in crate::runtime) jupyter: Option<String>,
}

/// Whether the head runs on a host: its guard leads.
fn leads(request: &DeployRequest<'_>, host: &HostInput) -> bool {
    request.nodes.iter().any(|node| node.role == NodeRole::Head && node.host == host.key)
}

/// What the guard of a host copies. Buckets are copied once, from the head's host.
fn saves(spec: &Spec, leads: bool) -> impl Iterator<Item = &SaveSpec> {
    let all = spec.end.iter().flat_map(|end| end.saved_by_hosts());
    all.filter(move |save| leads || matches!(save.from, SaveFrom::Data(_)))
}

/// The key of the guard of a host, by which its logs are found; `None` if it has none.
pub(in crate::runtime) fn key_on(request: &DeployRequest<'_>, host: &HostInput) -> Option<Key> {
    let index = request.hosts.iter().position(|other| other.key == host.key).unwrap_or_default();
    key_of(request.spec, index, leads(request, host))
}

pub(super) fn key_of(spec: &Spec, index: usize, leads: bool) -> Option<Key> {
    if leads {
        return (spec.end.is_some() || spec.idle.is_some()).then(Key::guard);
    }
    saves(spec, false).next().is_some().then(|| Key::numbered("guard", index))
}

/// The keys of the guards of a cluster, by host: the first has the head.
pub fn guards(spec: &Spec, hosts: &[Key]) -> Vec<(Key, Key)> {
    let guard = |(index, host): (usize, &Key)| Some((host.clone(), key_of(spec, index, index == 0)?));
    hosts.iter().enumerate().filter_map(guard).collect()
}

/// Whether the guard of a host has keys of the store that outlives the cluster.
pub(in crate::runtime) fn has_outside(request: &DeployRequest<'_>, host: &HostInput) -> bool {
    saves(request.spec, leads(request, host)).any(is_outside)
}

fn is_outside(save: &SaveSpec) -> bool {
    matches!(save.to, SaveTo::Bucket(_))
}

/// Whether it has those of the cluster's own store.
pub(in crate::runtime) fn has_own(request: &DeployRequest<'_>, host: &HostInput) -> bool {
    saves(request.spec, leads(request, host)).any(is_own)
}

fn is_own(save: &SaveSpec) -> bool {
    matches!(save.from, SaveFrom::Bucket(_))
}

/// The files of the program, by their names.
pub(in crate::runtime) fn program(library: &Library) -> Result<Vec<(String, Vec<u8>)>> {
    let names = Library::built_in(PROGRAM).map(|(name, _)| name).filter(|name| name.ends_with(".py"));
    names.map(|name| Ok((name.replacen(PROGRAM, "", 1), library.read(name)?.0))).collect()
}

/// The content of `guard.json`.
pub(in crate::runtime) fn settings(request: &DeployRequest<'_>, host: &HostInput, places: &Places) -> Result<Value> {
    settings_of(request.spec, &host.key, leads(request, host), request.hosts.len(), places)
}

pub(super) fn settings_of(spec: &Spec, host: &Key, leads: bool, hosts: usize, places: &Places) -> Result<Value> {
    let (end, secrets) = (spec.end.clone().unwrap_or_default(), &places.secrets);
    let store = |endpoint: &str, region: &str, file: &str| json!({"endpoint": endpoint, "region": region, "credentials": format!("{secrets}/{file}")});
    let own = places.store.as_ref().filter(|_| saves(spec, leads).any(is_own));
    let outside = spec.store_at_end().filter(|_| saves(spec, leads).any(is_outside));
    let then = match &spec.end {
        Some(end) => end.then,
        None => spec.idle.as_ref().map(|idle| idle.then).unwrap_or_default(),
    };
    let doing = || format!("render the guard of {}", host.display_name());
    let saves: Vec<&SaveSpec> = saves(spec, leads).collect();
    Ok(json!({
        "v": 1,
        "host": host,
        "leads": leads,
        "hosts": hosts,
        "home": places.home,
        "data": places.data,
        "warning_s": end.warning().as_secs(),
        "then": then,
        "save": serde_json::to_value(saves).doing(ErrorKind::Internal, doing)?,
        "stores": {
            "own": own.map(|(endpoint, region)| store(endpoint, region, "aws_credentials")),
            "outside": outside.map(|outside| store(&outside.endpoint, &outside.region, CREDENTIALS)),
        },
        "ray": leads.then(|| json!({
            "gcs": places.gcs,
            "dashboard": places.dashboard,
            "token": format!("{secrets}/ray_token"),
            "ray": places.ray,
        })),
        "idle": spec.idle.as_ref().filter(|_| leads).map(|idle| json!({"after_s": idle.after().as_secs()})),
        "jupyter": places.jupyter.as_ref().filter(|_| leads && spec.idle.is_some()).map(|url| {
            json!({"url": url, "token": format!("{secrets}/jupyter_token")})
        }),
    }))
}

/// What a guard is asked to do.
#[derive(Debug, Clone, Copy)]
pub enum GuardAsk<'a> {
    /// To take the end of the cluster, as the JSON of `guard.py tell`; it prints its state.
    Tell(&'a str),
    /// To save now what it saves at the end; it prints its state.
    Save,
}

/// The script that has a guard do something, and prints its state; `program` is the command line up to the program's name.
pub(in crate::runtime) fn guard_script(header: &str, program: &str, home: &str, ask: &GuardAsk<'_>) -> String {
    match ask {
        GuardAsk::Tell(end) => format!("{header}printf '%s\\n' {} | {program} tell {home}\n", quote(end)),
        GuardAsk::Save => format!("{header}{program} save {home} </dev/null\n"),
    }
}
