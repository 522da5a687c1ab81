//! `stop`: ends Ray and keeps the hosts.

use super::{Settings, backend};
use crate::agent::Ended;
use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::state::{Lock, Paths, Store};
use crate::util::{human, near};

/// Ends all nodes; hands back what is kept.
pub async fn stop(settings: &Settings, name: &ClusterName) -> Result<Vec<String>> {
    let _lock = Lock::take(&settings.paths, name, "stop")?;
    let store = Store::open(&settings.paths, name)?.ok_or_else(|| unknown(&settings.paths, name))?;
    let spec = store.state().spec.clone().ok_or_else(|| unknown(&settings.paths, name))?;
    backend::of(&spec)?.stop(settings, &spec, store).await
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
