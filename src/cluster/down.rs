//! `down`: removes everything of a cluster, and proves that nothing is left.

use jiff::Timestamp;

use super::errors::unknown;
use super::loss::saved_and_lost;
use super::open::open;
use super::options::DownOptions;
use super::outcome::Proof;
use super::settings::Settings;
use super::sites::{holder, if_several};
use super::substrate::{Look, Opening};
use super::up::pipeline;
use super::which_machine::refuse_other_machine;
use crate::agent::watcher::{Watcher, lift};
use crate::agent::{Ended, ScheduledUp};
use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::name::ClusterName;
use crate::provider::{ProviderKind, Runtime};
use crate::spec::{ProviderChoice, Spec};
use crate::state::{Lock, Store};

/// Removes everything of a cluster. It needs no spec: the state is enough, and without it the tags.
pub async fn down(settings: &Settings, name: &ClusterName, options: DownOptions) -> Result<Proof> {
    if let Some(scheduled_up) = ScheduledUp::of(&settings.paths.cluster(name)) {
        settings.events.note(format!("ending the scheduled up that waits for {}", scheduled_up.what));
        scheduled_up.end().await?;
    }
    let _lock = Lock::take(&settings.paths, name, "down")?;
    let older = Store::forget_older(&settings.paths, name)?;
    let (store, spec) = match Store::open(&settings.paths, name)? {
        Some(store) => {
            refuse_other_machine(&settings.paths, store.state(), "take down")?;
            let spec = store.state().spec.clone();
            if let Some(spec) = spec.as_ref().filter(|_| options.keep_data) {
                refuse_vanishing_hosts(spec)?;
            }
            let local = || bare_spec(name, ProviderChoice::default().name(), Runtime::default());
            let spec = spec.unwrap_or_else(local);
            let spec = if_several(settings, spec).await?;
            (store, spec)
        }
        None => lost_state(settings, name, older.flatten()).await?,
    };
    let proof = remove(settings, &spec, store, options).await?;
    let _ = fs_err::remove_dir(settings.paths.clusters());
    let _ = fs_err::remove_dir(&settings.paths.runtime);
    Ok(proof)
}

/// Refuses to keep data on hosts that the provider takes back.
fn refuse_vanishing_hosts(spec: &Spec) -> Result<()> {
    let capability = crate::providers::find(spec.provider.name())?.capability();
    if !capability.hosts_vanish || capability.kind == ProviderKind::Platform {
        return Ok(());
    }
    let name = &spec.name;
    let error = Error::new(ErrorKind::Unsupported, format!("keep the data of {name}"))
        .because("its hosts go back to the provider with all that is on them; nothing was changed");
    Err(match spec.own_mlflow() {
        true => error.hint(format!("runs and models of MLflow: gpucl mlflow export DIR -c {name}")),
        false => error,
    }
    .hint(format!("copy what you need, then `gpucl down -c {name}`: gpucl cp -c {name} head:NAME .")))
}

/// Leaves everything as it was found, and removes the cluster's state.
async fn remove(settings: &Settings, spec: &Spec, store: Store, options: DownOptions) -> Result<Proof> {
    let mut substrate = open(&Opening::of(settings, spec, &store, Look::Stages))?;
    substrate.to_remove(options);
    let ledger = Ledger::new(store);
    let known = ledger.state();
    let first = match pipeline(substrate.as_ref(), &ledger, settings).remove_all().await {
        Ok(first) => first,
        Err(error) => {
            let _ = ledger.compact();
            return Err(error.hint(format!("gpucl down -c {}   # goes on from here", spec.name)));
        }
    };
    // What was removed from hosts was reported at that moment.
    let resources = first.observed.resources.iter();
    let removed = resources.map(|found| format!("{} {} ({})", found.kind.0, found.key, found.id)).collect();
    let mut proof = Proof { removed, ..Proof::default() };
    substrate.prove_gone(&first, &known, options, &mut proof).await?;
    if !options.keep_data {
        // A folder of this machine that holds kept data is still the provider's.
        proof.seen.push(Proof::at_provider(spec.provider.name()));
    }
    drop(substrate);
    let store = ledger
        .into_store()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "close the journal").because("it is still in use"))?;
    proof.spending = store.state().spending(Timestamp::now());
    (proof.saved, proof.lost) = saved_and_lost(store.folder(), &known);
    // Before the state goes: at every moment a command either knows the cluster, or why it is gone.
    match Watcher::why(store.folder()) {
        Some(why) => Ended::now(why, &proof.spending.so_far, [&proof.saved[..], &proof.lost].concat())
            .write(&settings.paths, &spec.name),
        None => Ended::forget(&settings.paths, &spec.name),
    }
    lift(store.folder()).await?;
    store.remove()?;
    Ok(proof)
}

/// Rebuilds a spec when the state is lost: finds what carries our tag at every provider that opens without settings,
/// or with the settings of an old state.
async fn lost_state(settings: &Settings, name: &ClusterName, older: Option<Spec>) -> Result<(Store, Spec)> {
    let scope = settings.scope(name);
    let mut found = None;
    let mut silent = None;
    let mut candidates = Vec::from_iter(older);
    for factory in crate::providers::all() {
        let runtime = factory.capability().runtimes.first().copied().unwrap_or_default();
        candidates.push(bare_spec(name, &factory.manifest()?.name, runtime));
    }
    for spec in candidates.iter().filter(|spec| settings.provider(spec).is_ok()) {
        // A provider that needs settings cannot be queried: only the lost state had them.
        match holder(settings, spec).await {
            Ok(Some(spec)) => {
                found = Some(spec);
                break;
            }
            // One that was never set up, or refuses, holds nothing that could be found.
            Err(error) if error.retry_status() != Status::Permanent => drop(silent.get_or_insert(error)),
            Ok(None) | Err(_) => {}
        }
    }
    let mut spec = match (found, silent) {
        (Some(spec), _) => spec,
        (None, silent) => {
            let error = unknown(&settings.paths, name);
            return Err(match silent {
                Some(silent) => error.because(format!("it may be where nobody could be asked: {silent}")),
                None => error,
            });
        }
    };
    let store = Store::create(&settings.paths, &scope, jiff::Timestamp::now())?;
    let capability = crate::providers::find(spec.provider.name())?.capability();
    if capability.runtimes.len() > 1 && !capability.hosts_vanish {
        // The runtime is unknown too, but each leaves different traces on a host.
        for runtime in capability.runtimes {
            let candidate = Spec { runtime: *runtime, ..spec.clone() };
            if leaves_traces(settings, &candidate, &store).await {
                spec = candidate;
                break;
            }
        }
    }
    settings.events.warn(format!(
        "the cluster's state is lost; removing what carries its tag at the provider `{}` and on this machine",
        spec.provider.name()
    ));
    Ok((store, spec))
}

/// Whether a host has traces of a cluster in this spec's runtime.
async fn leaves_traces(settings: &Settings, spec: &Spec, store: &Store) -> bool {
    let Ok(substrate) = open(&Opening::of(settings, spec, store, Look::Stages)) else { return false };
    substrate.observe(store.state()).await.is_ok_and(|observed| !observed.projects.is_empty())
}

/// A minimal spec: the name, the provider and the runtime.
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
        mounts: Vec::new(),
        data: Vec::new(),
        setup: None,
        files: Vec::new(),
        playbooks: std::collections::BTreeMap::new(),
        services: None,
        serve: Vec::new(),
        images: std::collections::BTreeMap::new(),
        build: None,
        compose: Vec::new(),
        timeouts: crate::spec::Timeouts::default(),
        capacity: None,
        deadline: None,
        max_cost: None,
        end: None,
        idle: None,
        notify: None,
        ask_above: None,
        outputs: Vec::new(),
    }
}
