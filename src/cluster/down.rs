//! `down`: removes everything of a cluster, and proves that nothing is left.

use super::backend;
use super::errors::unknown;
use super::machine::refuse_other_machine;
use crate::agent::ScheduledUp;
use crate::cluster::options::DownOptions;
use crate::cluster::outcome::Proof;
use crate::cluster::settings::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::provider::Runtime;
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
            if options.keep_data && spec.as_ref().is_some_and(|spec| spec.runtime == Runtime::Native) {
                return Err(Error::new(ErrorKind::Unsupported, format!("keep the data of {name}"))
                    .because("with the runtime `native` the data folder is removed with the rest; nothing was changed")
                    .hint(format!("copy what you need, then `gpucl down -c {name}`: gpucl cp -c {name} head:NAME .")));
            }
            let local = || bare_spec(name, ProviderChoice::default().name(), Runtime::default());
            (store, spec.unwrap_or_else(local))
        }
        None => lost_state(settings, name, older.flatten()).await?,
    };
    backend::of(&spec)?.down(settings, &spec, store, options).await
}

/// Rebuilds a spec when the state is lost: finds what carries our tag at every provider that opens without settings,
/// or with the settings of an old state.
async fn lost_state(settings: &Settings, name: &ClusterName, older: Option<Spec>) -> Result<(Store, Spec)> {
    let scope = settings.scope(name);
    let mut holder = None;
    let mut candidates = Vec::from_iter(older);
    for factory in crate::providers::all() {
        let runtime = factory.capability().runtimes.first().copied().unwrap_or_default();
        candidates.push(bare_spec(name, &factory.manifest()?.name, runtime));
    }
    for spec in candidates {
        // A provider that needs settings cannot be queried: only the lost state had them.
        let Ok(provider) = settings.provider(&spec) else { continue };
        if holder.is_none() && provider.observe(&scope).await.is_ok_and(|found| !found.is_empty()) {
            holder = Some(spec);
        }
    }
    let Some(mut spec) = holder else { return Err(unknown(&settings.paths, name)) };
    let store = Store::create(&settings.paths, &scope, jiff::Timestamp::now())?;
    let capability = crate::providers::find(spec.provider.name())?.capability();
    if capability.runtimes.len() > 1 && !capability.hosts_vanish {
        // The runtime is unknown too, but each leaves different traces on a host.
        for runtime in capability.runtimes {
            let candidate = Spec { runtime: *runtime, ..spec.clone() };
            if backend::of(&candidate)?.leaves_traces(settings, &candidate, &store).await {
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
        images: std::collections::BTreeMap::new(),
        build: None,
        compose: Vec::new(),
        timeouts: crate::spec::Timeouts::default(),
        capacity: None,
        deadline: None,
        max_cost: None,
        ask_above: None,
        outputs: Vec::new(),
    }
}
