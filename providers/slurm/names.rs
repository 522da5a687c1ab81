//! The keys, kinds and folders of what a cluster has here.

use crate::name::{Key, Scope, Tag};

/// The kinds of resources.
pub(super) const JOB: &str = "job";
pub(super) const HOST: &str = "host";

pub(super) fn job_key() -> Key {
    Key::service(JOB)
}

/// The tag of a cluster's job, which is its name to Slurm.
pub(super) fn job_tag(scope: &Scope) -> Tag {
    scope.tag(&job_key())
}

/// The name of a cluster's folder on shared storage: `gpucl-OWNER-CLUSTER`.
pub(super) fn scope_name(scope: &Scope) -> String {
    let tag = job_tag(scope).to_string();
    tag.rsplit_once('-').map_or(tag.clone(), |(scope, _)| scope.to_owned())
}

pub(super) fn scope_of(tag: &Tag) -> Scope {
    Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() }
}

/// The number in a host's key.
pub(super) fn number_of(key: &Key) -> Option<usize> {
    key.as_str().strip_prefix("host")?.parse().ok()
}
