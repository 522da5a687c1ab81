//! The spec's mounts in a project: what the template needs, and the step that checks them on the host.

use std::time::Duration;

use serde::Serialize;

use crate::playbook::{KnownError, Step};
use crate::render::quote;
use crate::spec::{MountSource, Spec};

/// A mount of a container.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MountView {
    kind: &'static str,
    source: String,
    at: String,
    read_only: bool,
}

/// The mounts of every node and of Jupyter.
pub(super) fn views(spec: &Spec) -> Vec<MountView> {
    let view = |mount: &crate::spec::MountSpec| {
        let (kind, source) = match mount.source()? {
            MountSource::Host(path) | MountSource::FileSystem(path) => ("bind", path),
            MountSource::Volume(name) => ("volume", name),
        };
        let (source, at) = (source.to_owned(), mount.at.clone());
        Some(MountView { kind, source, at, read_only: mount.read_only })
    };
    spec.mounts.iter().filter_map(view).collect()
}

/// The names of the volumes, each once.
pub(super) fn volumes(spec: &Spec) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for mount in &spec.mounts {
        if let Some(MountSource::Volume(name)) = mount.source()
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

/// The paths in containers where volumes are mounted, separated by spaces.
pub(super) fn volumes_at(spec: &Spec) -> String {
    let of_volume = spec.mounts.iter().filter(|mount| matches!(mount.source(), Some(MountSource::Volume(_))));
    of_volume.map(|mount| mount.at.as_str()).collect::<Vec<_>>().join(" ")
}

/// The step that checks the host's own folders before anything starts: each exists, and is not reached through a link,
/// which could lead a mount to another place than the spec says.
pub(super) fn check(spec: &Spec, host: &str) -> Option<Step> {
    let (mut run, mut holds) = (String::new(), Vec::new());
    for mount in &spec.mounts {
        let (Some(MountSource::Host(path)) | Some(MountSource::FileSystem(path))) = mount.source() else { continue };
        let word = quote(path);
        let missing = quote(&format!("mounts: {host} has no {path}"));
        let linked = quote(&format!("mounts: {path} is reached through a link on {host}; its own path is "));
        holds.push(format!("[ -e {word} ] && [ \"$(readlink -f {word})\" = {word} ]"));
        run.push_str(&format!("[ -e {word} ] || {{ echo {missing}; exit 1; }}\nreal=$(readlink -f {word})\n"));
        run.push_str(&format!("[ \"$real\" = {word} ] || {{ echo {linked}\"$real\"; exit 1; }}\n"));
    }
    if run.is_empty() {
        return None;
    }
    Some(Step {
        name: "check the mounts".to_owned(),
        unless: Some(holds.join(" && ")),
        run,
        timeout: Some(Duration::from_secs(30)),
        hint: Some("create the folder on the host, or correct `mounts:` in the spec".to_owned()),
        errors: vec![KnownError::new("mounts: ", "{line}", None)],
        ..Step::default()
    })
}
