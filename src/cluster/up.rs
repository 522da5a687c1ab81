//! `up`: from nothing, or from whatever exists, to a verified cluster.

use super::backend;
use super::machine::refuse_other_machine;
use super::pin::{Pins, pinned};
use crate::cluster::options::UpOptions;
use crate::cluster::outcome::UpOutcome;
use crate::cluster::settings::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Item, ItemKind, Lock, Notes, Store};

/// Brings a cluster to what its spec says, and verifies it.
pub async fn up(settings: &Settings, loaded: &Loaded, options: &UpOptions) -> Result<UpOutcome> {
    let name = &loaded.spec.name;
    let _lock = Lock::take(&settings.paths, name, "up")?;
    let known = Store::open(&settings.paths, name)?;
    if let Some(known) = &known {
        refuse_other_machine(&settings.paths, known.state(), "bring up")?;
        same_kind(known.state(), &loaded.spec)?;
        if !options.new_spec {
            same_file(known.state(), options.path.as_deref())?;
        }
    }
    let pins = if options.update_files { Pins::Update } else { Pins::Keep };
    let loaded = pinned(loaded, known.as_ref().and_then(|known| known.state().spec.as_ref()), pins).await?;
    backend::of(&loaded.spec)?.up(settings, &loaded, options, known).await
}

/// Refuses a spec from another file if a cluster of that name is running.
fn same_file(known: &ClusterState, path: Option<&str>) -> Result<()> {
    let is_running = |item: &Item| item.kind == ItemKind::Project || matches!(item.notes, Notes::Platform(_));
    let running = || known.items.values().any(is_running);
    match (&known.spec_path, path) {
        (Some(before), Some(now)) if before != now && running() => {
            Err(Error::new(ErrorKind::Usage, format!("bring up the cluster {} from {now}", known.name))
                .because(format!("a cluster of that name runs from another spec: {before}"))
                .hint(format!(
                    "give one of them another `name:`, or replace the running one: gpucl up {now} --new-spec"
                )))
        }
        _ => Ok(()),
    }
}

/// Refuses to change the provider or runtime of an existing cluster: the new one would not see what the old one made.
fn same_kind(known: &ClusterState, spec: &Spec) -> Result<()> {
    let Some(before) = known.spec.as_ref().filter(|_| !known.items.is_empty()) else { return Ok(()) };
    let of = |spec: &Spec| (spec.provider.name().to_owned(), spec.runtime.name());
    if of(before) == of(spec) {
        return Ok(());
    }
    let ((provider, runtime), (new_provider, new_runtime)) = (of(before), of(spec));
    Err(Error::new(ErrorKind::Usage, format!("bring up the cluster {}", known.name))
        .because(format!(
            "it has the provider `{provider}` and the runtime `{runtime}`, but the spec says `{new_provider}` and \
             `{new_runtime}`"
        ))
        .hint(format!("gpucl down -c {}   # then up again; or give the new one another `name:`", known.name)))
}
