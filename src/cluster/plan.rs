//! `plan`: what `up` would do. Read-only.

use jiff::Timestamp;

use super::forecast::forecast;
use super::limits::PriceAndLimits;
use super::open::open;
use super::options::UpOptions;
use super::outcome::Planned;
use super::pin::{Pins, pinned};
use super::serve::plan_of_spec;
use super::settings::Settings;
use super::sites::at_its_site;
use super::substrate::{Look, Opening, Remark};
use super::up::remarks_on_spec;
use super::which_machine::refuse_other_machine;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::plan::reconcile;
use crate::spec::Loaded;
use crate::state::{ClusterState, Store};
use crate::util::human;

/// Works out what `up` would do with this spec. Writes nothing but temporary connection files. Unless `may_look_up`, no
/// server is asked for the commits of repositories.
pub async fn plan(settings: &Settings, loaded: &Loaded, may_look_up: bool) -> Result<Planned> {
    let name = &loaded.spec.name;
    let pins = if may_look_up { Pins::Keep } else { Pins::Known };
    let known = match Store::open(&settings.paths, name)? {
        Some(store) => {
            refuse_other_machine(&settings.paths, store.state(), "plan")?;
            store.state().clone()
        }
        None => ClusterState::new(&settings.scope(name), Timestamp::now()),
    };
    let loaded = pinned(loaded, known.spec.as_ref(), pins).await?;
    let (loaded, of_site) = at_its_site(settings, &loaded, Some(&known)).await?;
    let loaded = &loaded;
    let spec = &loaded.spec;
    let folder =
        tempfile::tempdir().doing(ErrorKind::State, || "make a folder for the connections to the hosts".to_owned())?;
    // Credentials are part of the digest: use the cluster's own if it has some.
    let own = settings.paths.cluster(name);
    let mut substrate = open(&Opening {
        settings,
        spec,
        loaded: Some(loaded),
        up: None,
        known: &known,
        connections: folder.path(),
        credentials: if own.is_dir() { &own } else { folder.path() },
        look: Look::Stages,
    })?;
    let resolution = substrate.resolve(None).await?;
    let observed = substrate.observe(&known).await?;
    let goal = substrate.goal(loaded, &resolution.offers, &known, &observed).await?;
    let price_and_limits = PriceAndLimits { settings, loaded, options: &UpOptions::default(), known: &known };
    price_and_limits.check(&goal, resolution.start.as_ref().map(|start| start.at))?;
    let plan = reconcile(&goal, &known, &observed).plan;
    let mut notes: Vec<String> = of_site.into_iter().chain(resolution.notes).collect();
    if let Some(start) = resolution.start {
        notes.push(format!("{} begins at {}; `up` waits for it", start.what, human::local(start.at)));
    }
    let remarks = substrate.remarks(&known, &plan).await?.into_iter().chain(remarks_on_spec(spec)?);
    notes.extend(remarks.map(Remark::into_text));
    notes.extend(forecast(spec, price_and_limits.end(resolution.end)?));
    let starts_head = substrate.starts_head(&plan);
    let applications = plan_of_spec(settings, &known, &own, spec, starts_head).await?;
    Ok(Planned { affected_paths: substrate.affected_paths(&known, &plan)?, plan, applications, notes })
}
