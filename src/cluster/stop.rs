//! `stop`: ends Ray and keeps the hosts.

use super::{Opened, Settings, projects};
use crate::agent::deadline::Ended;
use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::plan::Goal;
use crate::state::{Lock, Paths, Store};
use crate::util::{human, near};

/// Ends all nodes and the agent; hands back what is kept.
pub async fn stop(settings: &Settings, name: &ClusterName) -> Result<Vec<String>> {
    let _lock = Lock::take(&settings.paths, name, "stop")?;
    let store = Store::open(&settings.paths, name)?.ok_or_else(|| unknown(&settings.paths, name))?;
    let spec = store.state().spec.clone().ok_or_else(|| unknown(&settings.paths, name))?;
    if super::is_deployed(&spec) {
        return projects::stop(settings, &spec, store).await;
    }
    let provider = settings.provider(&spec)?;
    let opened = Opened { ledger: Ledger::new(store), world: settings.world(&spec, provider, None) };
    let planned = opened.pipeline(settings).plan(&Goal::Stop).await?;
    let result = opened.pipeline(settings).execute(&planned.plan).await.into_result();
    let kept = opened.ledger.compact();
    result.map_err(|error| error.hint(format!("gpucl stop -c {name}   # goes on from here")))?;
    kept?;
    Ok(planned
        .observed
        .resources
        .iter()
        .map(|resource| format!("{} {}", resource.kind.0, resource.key.display_name()))
        .collect())
}

/// The error of a cluster of which nothing is known.
pub(crate) fn unknown(paths: &Paths, name: &ClusterName) -> Error {
    let error = Error::new(ErrorKind::NotFound, format!("find the cluster {name}"));
    let error = match Ended::of(paths, name) {
        Some(ended) => error.because(format!(
            "it was taken down at {}, since {}; it cost about {} in all",
            human::local(ended.at),
            ended.why,
            ended.cost
        )),
        None => error.because("nothing is known of a cluster of that name"),
    };
    let names: Vec<String> = Store::names(paths).unwrap_or_default().iter().map(ToString::to_string).collect();
    match near::nearest(name.as_str(), names.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None if names.is_empty() => error.hint("there is no cluster; `gpucl up cluster.yaml` brings one up"),
        None => error.hint(format!("there are: {}", names.join(", "))),
    }
}
