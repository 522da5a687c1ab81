//! `down`: removes everything of a cluster, and proves that nothing is left.

use super::stop::unknown;
use super::{Opened, Settings, projects};
use crate::agent::deadline::lift;
use crate::agent::{Armed, Ended};
use crate::engine::{Ledger, World as _};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::{ClusterName, Key};
use crate::provider::Runtime;
use crate::runtime::native::{self, NodePorts};
use crate::spec::{ProviderChoice, Spec};
use crate::state::{ClusterState, ItemKind, Lock, Spending, Store};
use crate::util::process::{Identity, boot_id};

/// How it is known that nothing is left.
#[derive(Debug, Default)]
pub struct Proof {
    /// What was removed.
    pub removed: Vec<String>,
    /// What was looked at afterwards, and what was seen.
    pub seen: Vec<String>,
    /// What could not be known.
    pub unknown: Vec<String>,
    /// What stays on purpose.
    pub kept: Vec<String>,
    /// What it cost, from its first launch until it was gone.
    pub spending: Spending,
}

/// What `down` leaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct DownOptions {
    /// Keep the data volumes on the hosts.
    pub keep_data: bool,
    /// Remove what was installed on the hosts for the cluster as well.
    pub purge: bool,
    /// Delete the lease as well, though it was not made for the cluster.
    pub release_lease: bool,
}

/// Removes everything of a cluster. It needs no spec: state is enough, and for what runs on this machine tags are.
pub async fn down(settings: &Settings, name: &ClusterName, options: DownOptions) -> Result<Proof> {
    let scope = settings.scope(name);
    if let Some(armed) = Armed::of(&settings.paths.cluster(name)) {
        settings.events.note(format!("ending what waits for {}", armed.what));
        armed.end().await?;
    }
    let _lock = Lock::take(&settings.paths, name, "down")?;
    let (store, spec) = match Store::open(&settings.paths, name)? {
        Some(store) => {
            let spec = store.state().spec.clone();
            let local = || bare_spec(name, ProviderChoice::default().name(), Runtime::default());
            (store, spec.unwrap_or_else(local))
        }
        None => lost_state(settings, name).await?,
    };
    let known = store.state().clone();
    if super::is_deployed(&spec) {
        return projects::down(settings, &spec, store, options).await;
    }
    say_if_restarted(settings, &known);
    let provider = settings.provider(&spec)?;
    let opened = Opened { ledger: Ledger::new(store), world: settings.world(&spec, provider, None) };
    let first = match opened.pipeline(settings).remove_all().await {
        Ok(first) => first,
        Err(error) => {
            let _ = opened.ledger.compact();
            return Err(error.hint(format!("gpucl down -c {name}   # goes on from here")));
        }
    };
    let mut proof = Proof { removed: first.observed.describe(), ..Proof::default() };
    prove(settings, &opened, &known, spec.provider.name(), &mut proof).await?;
    // An agent that was killed has left its socket.
    opened.world.agent().remove_socket();
    let store = opened.into_store()?;
    proof.spending = store.state().spending(jiff::Timestamp::now());
    lift(store.folder()).await?;
    Ended::forget(&settings.paths, name);
    store.remove()?;
    let _ = fs_err::remove_dir(settings.paths.clusters());
    native::release_ports(&settings.paths.runtime.join("ports"), |tag| tag.parse().is_ok_and(|tag| scope.holds(&tag)));
    let _ = fs_err::remove_dir(&settings.paths.runtime);
    Ok(proof)
}

/// Looks once more at everything that could be left.
async fn prove(
    settings: &Settings,
    opened: &Opened,
    known: &ClusterState,
    provider: &str,
    proof: &mut Proof,
) -> Result<()> {
    let scope = known.scope();
    let observed = opened.world.observe(&opened.ledger.state()).await?;
    let mut left = observed.describe();
    proof.seen.push(format!("asked the provider `{provider}` again: it has nothing that carries our tag"));
    let processes = native::ClusterProcesses::new(&scope, &settings.paths.data).found();
    left.extend(processes.values().flatten().map(|process| format!("process {}", process.identity.pid)));
    proof.seen.push(format!(
        "looked at every process of this machine: none carries {}, or came of one that did",
        scope.tag(&Key::head()).to_string().trim_end_matches("head").to_owned() + "*"
    ));
    proof.unknown.extend(opened.world.missed().iter().map(|key| missed(&key.display_name())));
    let ports: Vec<u16> = known
        .items
        .iter()
        .filter(|(_, item)| item.kind == ItemKind::Node)
        .filter_map(|(key, _)| known.note::<NodePorts>(key, "ports"))
        .flat_map(|ports| [ports.gcs(), ports.dashboard, ports.client(), ports.node_manager()])
        .collect();
    let open: Vec<u16> = ports.iter().copied().filter(|port| !crate::util::ports::is_free(*port)).collect();
    for port in &open {
        settings.events.warn(format!("port {port}, which was ours, is in use again by somebody else"));
    }
    if !ports.is_empty() && open.is_empty() {
        proof.seen.push(format!("tried {} ports that were ours: nobody listens", ports.len()));
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::LeftBehind, format!("remove everything of the cluster {}", scope.cluster))
        .because("looking again showed that something is still there")
        .left(LeftBehind::Remaining(left))
        .hint(format!("gpucl down -c {}", scope.cluster)))
}

/// What is said of a node of which something may run on.
pub(super) fn missed(node: &str) -> String {
    format!(
        "whether a job left a process behind on {node}: its reaper was killed while nothing looked after it, so that a process that \
         had left it at that moment cannot be told from others"
    )
}

/// Says it when the machine was restarted since: then nothing of the cluster was running any more.
pub(super) fn say_if_restarted(settings: &Settings, known: &ClusterState) {
    if restarted(known) {
        settings
            .events
            .note("this machine was restarted since the cluster was started: none of its processes outlived that");
    }
}

/// The journal names processes of another boot, and none of this one.
pub(super) fn restarted(known: &ClusterState) -> bool {
    let boots: Vec<String> = known
        .items
        .values()
        .filter(|item| item.kind == ItemKind::Node)
        .filter_map(|item| item.id.as_deref()?.parse::<Identity>().ok())
        .map(|identity| identity.boot)
        .collect();
    let now = boot_id();
    !boots.is_empty() && boots.iter().all(|boot| *boot != now)
}

/// The state is lost; what carries our tag is found all the same, at every provider that can be asked without settings.
async fn lost_state(settings: &Settings, name: &ClusterName) -> Result<(Store, Spec)> {
    let scope = settings.scope(name);
    let mut holder = None;
    for factory in crate::providers::all() {
        let runtime = factory.capability().runtimes.first().copied().unwrap_or_default();
        let spec = bare_spec(name, &factory.manifest()?.name, runtime);
        // One that needs settings cannot be asked: only its own cluster's state knows them.
        let Ok(provider) = settings.provider(&spec) else { continue };
        if provider.observe(&scope).await.is_ok_and(|found| !found.is_empty()) {
            holder = Some(spec);
        }
    }
    let spec = match holder {
        Some(spec) => spec,
        None if native::ClusterProcesses::new(&scope, &settings.paths.data).found().is_empty() => {
            return Err(unknown(&settings.paths, name));
        }
        None => bare_spec(name, ProviderChoice::default().name(), Runtime::default()),
    };
    let mut spec = spec;
    let store = Store::create(&settings.paths, &scope, jiff::Timestamp::now())?;
    let capability = crate::providers::find(spec.provider.name())?.capability();
    if capability.runtimes.len() > 1 && !capability.hosts_vanish {
        // Nobody knows any more which it was: each leaves other traces on a host.
        for runtime in capability.runtimes {
            let candidate = Spec { runtime: *runtime, ..spec.clone() };
            if projects::leaves_traces(settings, &candidate, &store).await {
                spec = candidate;
                break;
            }
        }
    }
    settings.events.warn(format!(
        "the cluster's state is lost; what carries its tag at the provider `{}` and on this machine is removed",
        spec.provider.name()
    ));
    Ok((store, spec))
}

/// A spec that says no more than where to look.
fn bare_spec(name: &ClusterName, provider: &str, runtime: Runtime) -> Spec {
    Spec {
        name: name.clone(),
        provider: ProviderChoice::Name(provider.to_owned()),
        runtime,
        hosts: Vec::new(),
        ray: crate::spec::RaySpec::default(),
        gpu: crate::spec::GpuProof::default(),
        oversubscribe: false,
        environment: std::collections::BTreeMap::new(),
        playbooks: std::collections::BTreeMap::new(),
        services: None,
        images: std::collections::BTreeMap::new(),
        build: None,
        compose: Vec::new(),
        timeouts: crate::spec::Timeouts::default(),
        capacity: None,
        deadline: None,
        max_cost: None,
        ask_above: None,
    }
}
