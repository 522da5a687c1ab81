//! `plan`: what `up` would do. Reads, writes nothing.

use secrecy::SecretString;

use super::limits::About;
use super::processes::desired_of;
use super::{HostTouches, Settings, UpOptions};
use crate::engine::World as _;
use crate::error::Result;
use crate::plan::{Goal, Plan, reconcile};
use crate::runtime::native;
use crate::spec::Loaded;
use crate::state::{ClusterState, Store};

/// What `up` would do.
#[derive(Debug)]
pub struct Planned {
    /// The operations.
    pub plan: Plan,
    /// What they touch on hosts that are other machines.
    pub touches: Vec<HostTouches>,
    /// What else there is to know before.
    pub notes: Vec<String>,
}

/// Works out what `up` would do with this spec.
pub async fn plan(settings: &Settings, loaded: &Loaded) -> Result<Planned> {
    let spec = &loaded.spec;
    let scope = settings.scope(&spec.name);
    let provider = settings.provider(spec)?;
    let store = Store::open(&settings.paths, &spec.name)?;
    if super::is_deployed(spec) {
        return super::projects::plan(settings, loaded, store).await;
    }
    let folder = settings.paths.cluster(&spec.name);
    let token = crate::secret::ray_token(&folder)?.unwrap_or_else(|| SecretString::from("not made yet".to_owned()));
    let stage = native::preparation(spec, &settings.library, &settings.paths.cache, &token)?;
    let desired = desired_of(loaded, &scope, provider.as_ref(), &stage).await?;
    let known = store.map_or_else(|| ClusterState::new(&scope, jiff::Timestamp::now()), |store| store.state().clone());
    let world = settings.world(spec, provider, None);
    let observed = world.observe(&known).await?;
    let goal = Goal::Up(desired);
    About { settings, loaded, options: &UpOptions::default(), known: &known }.check(&goal, None)?;
    Ok(Planned { plan: reconcile(&goal, &known, &observed).plan, touches: Vec::new(), notes: Vec::new() })
}
