//! From a spec to what a platform is asked for. Pure.

use super::preparation;
use crate::error::Result;
use crate::provider::platform::{ClusterRequest, DATA, NodeGroup};
use crate::spec::{Loaded, SaveTo, Spec, WorkerGroup};

/// The name of the only group of a spec that names none.
const ONLY_GROUP: &str = "workers";
/// The name of the head's group.
pub(super) const HEAD: &str = "head";

/// The cluster that a spec asks for.
///
/// # Errors
/// If the spec has something that clusters on platforms do not have; the error names its place.
pub(super) fn request(loaded: &Loaded, stopped: bool) -> Result<ClusterRequest> {
    for (path, is_there) in unsupported(&loaded.spec) {
        if is_there {
            let name = loaded.spec.provider.name();
            let error = loaded.places.error(&path, format!("is not supported with the provider `{name}`"));
            return Err(match path.as_str() {
                "services.mlflow" => error.hint(
                    "leave it out; jobs can log to a server that exists, as MLFLOW_TRACKING_URI in `environment` says",
                ),
                "mounts" => {
                    error.hint("what pods mount is under `provider`: `pods: {mounts: [{path: /data, claim: NAME}]}`")
                }
                _ => error,
            });
        }
    }
    for (index, save) in loaded.spec.end.iter().flat_map(|end| end.save.iter().enumerate()) {
        let SaveTo::Host(to) = &save.to else { continue };
        let within = to.strip_prefix(DATA).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let why = match (to.starts_with('~'), within) {
            (true, _) => "has no meaning in a pod: its home folder ends with it",
            (_, true) => "is in the data folder itself: it ends with the pod, or is on a claim and stays",
            _ => continue,
        };
        return Err(loaded.places.error(&format!("end.save[{index}].to"), why).hint(
            "name a path at which the head's pod mounts a claim, as `pods: {mounts: [{path: /results, claim: NAME}]}` says, \
             or `s3://…`",
        ));
    }
    Ok(of_spec(&loaded.spec, stopped))
}

/// The cluster that a spec asks for which was checked when it was taken.
pub(super) fn of_spec(spec: &Spec, stopped: bool) -> ClusterRequest {
    let head = NodeGroup {
        name: HEAD.to_owned(),
        cpus: Some(spec.ray.head.cpus),
        memory: spec.ray.head.memory.map(|memory| memory.0),
        object_store_memory: spec.ray.head.object_store_memory.map(|memory| memory.0),
        count: 1,
        min: 1,
        max: 1,
        ..NodeGroup::default()
    };
    ClusterRequest {
        ray_version: spec.ray.version.clone(),
        head,
        workers: spec.ray.workers.groups().iter().map(group).collect(),
        environment: spec.environment.clone(),
        prometheus: None,
        preparation: preparation::of(spec),
        guard: spec.end.is_some() || spec.idle.is_some(),
        stopped,
    }
}

fn group(group: &WorkerGroup) -> NodeGroup {
    let (count, min, max) = group.limits();
    NodeGroup {
        name: group.name.clone().unwrap_or_else(|| ONLY_GROUP.to_owned()),
        cpus: group.cpus,
        gpus: group.gpus.unwrap_or_default(),
        memory: group.memory.map(|memory| memory.0),
        object_store_memory: group.object_store_memory.map(|memory| memory.0),
        resources: group.resources.clone(),
        labels: group.labels.clone(),
        count,
        min,
        max,
    }
}

/// Whether the spec has services beside Ray that the platform would have to run.
fn has_services(spec: &Spec) -> bool {
    let services = spec.services();
    services.object_store.settings().is_some()
        || services.prometheus.settings().is_some()
        || services.jupyter.settings().is_some()
        || services.grafana.is_some_and(|grafana| grafana.settings().is_some())
}

/// What clusters on platforms do not have, by its path, and whether this spec has it.
fn unsupported(spec: &Spec) -> Vec<(String, bool)> {
    let mut keys: Vec<(String, bool)> = [
        ("hosts", spec.hosts.len() > 1),
        ("mounts", !spec.mounts.is_empty()),
        ("services.mlflow", spec.services().mlflow.settings().is_some()),
        ("services", has_services(spec)),
        ("images", !spec.images.is_empty()),
        ("build", spec.build.is_some()),
        ("compose", !spec.compose.is_empty()),
        ("playbooks", !spec.playbooks.is_empty()),
        ("capacity", spec.capacity.is_some()),
        ("ray.capabilities", !spec.ray.capabilities.is_empty()),
        ("ray.head.dashboard_port", spec.ray.head.dashboard_port.is_some()),
    ]
    .map(|(path, is_there)| (path.to_owned(), is_there))
    .into();
    for (index, data) in spec.data.iter().enumerate() {
        keys.push((format!("data[{index}].from.image"), data.from.image.is_some()));
    }
    for (index, group) in spec.ray.workers.groups().iter().enumerate() {
        let path = spec.ray.workers.path(index);
        keys.push((format!("{path}.per"), group.per.is_some()));
        keys.push((format!("{path}.hosts"), group.hosts.is_some()));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(count: Option<u32>, min: Option<u32>, max: Option<u32>) -> (u32, u32, u32) {
        WorkerGroup { count, min, max, ..WorkerGroup::default() }.limits()
    }

    #[test]
    fn a_group_has_its_count_unless_the_spec_gives_limits() {
        assert_eq!(group(None, None, None), (1, 1, 1));
        assert_eq!(group(Some(3), None, None), (3, 3, 3));
        assert_eq!(group(Some(1), Some(0), Some(4)), (1, 0, 4));
        assert_eq!(group(None, Some(2), Some(4)), (2, 2, 4), "it begins with the fewest");
        assert_eq!(group(None, None, Some(4)), (1, 1, 4));
        assert_eq!(group(None, Some(0), None), (1, 0, 1));
    }
}
