//! The guard of the end as a container of its own, in the Ray image: it needs the program `ray` to drain nodes.

use serde_json::{Value, json};

use super::view::Cluster;
use super::{DATA_IN_CONTAINERS, HostInput};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::StageFile;
use crate::playbook::Step;
use crate::runtime::project::guard::{CREDENTIALS, Places, has_outside, has_own, key_on, program, settings};
use crate::spec::SaveTo;

/// Its folder in its container, with its settings and its state; on the host, the folder `end` of the host's folder.
pub(super) const HOME: &str = "/run/gpucl/end";
/// How its program is called in its container.
pub(super) const COMMAND: [&str; 4] = ["python3", "-I", "-B", "/opt/gpucl/end/guard.py"];

/// The host's file with its settings.
const SETTINGS: &str = "end/guard.json";

/// The names of the credentials that it reads; `None` if the host has no guard.
pub(super) fn secrets(cluster: &Cluster<'_>, host: &HostInput) -> Option<Vec<&'static str>> {
    let request = cluster.request;
    key_on(request, host)?;
    let settings = settings(request, host, &places(cluster)).ok()?;
    let mut names = Vec::new();
    if !settings["ray"].is_null() {
        names.push("ray_token");
    }
    if !settings["jupyter"].is_null() {
        names.push("jupyter_token");
    }
    names.extend(has_own(request, host).then_some("aws_credentials"));
    names.extend(has_outside(request, host).then_some(CREDENTIALS));
    Some(names)
}

/// The files that it reads, besides credentials.
pub(super) fn files(cluster: &Cluster<'_>, host: &HostInput) -> Result<Vec<StageFile>> {
    if key_on(cluster.request, host).is_none() {
        return Ok(Vec::new());
    }
    let program = program(cluster.request.library)?.into_iter();
    let mut files: Vec<_> =
        program.map(|(name, bytes)| StageFile::world_readable(format!("lib/end/{name}"), bytes)).collect();
    let settings = settings(cluster.request, host, &places(cluster))?;
    let bytes = serde_json::to_vec_pretty(&settings).doing(ErrorKind::Internal, || "render the guard".to_owned())?;
    files.push(StageFile::world_readable(SETTINGS.to_owned(), bytes));
    Ok(files)
}

/// The step that makes the folder of its state, which the image's user writes; `None` if the host has no guard.
pub(super) fn folder(cluster: &Cluster<'_>, host: &HostInput) -> Option<Step> {
    key_on(cluster.request, host)?;
    Some(Step {
        name: "create the guard's folder".to_owned(),
        unless: Some("[ -k end/guard ] && [ -z \"$(find end lib/end -maxdepth 0 ! -perm 755)\" ]".to_owned()),
        run: "mkdir -p end/guard\nchmod 1777 end/guard\nchmod 755 end lib/end".to_owned(),
        ..Step::default()
    })
}

/// The variables of its container; `None` if the host has no guard.
pub(super) fn view(cluster: &Cluster<'_>, host: &HostInput, files: &dyn Fn(&[&str]) -> String) -> Option<Value> {
    let key = key_on(cluster.request, host)?;
    let secrets = secrets(cluster, host)?;
    let read: Vec<String> = secrets.iter().map(|name| format!("secrets/{name}")).chain([SETTINGS.to_owned()]).collect();
    let program = program(cluster.request.library).ok()?.into_iter().map(|(name, _)| format!("lib/end/{name}"));
    let read: Vec<String> = read.into_iter().chain(program).collect();
    let end = cluster.request.spec.end.iter().flat_map(|end| &end.save);
    let folders = end.filter_map(|save| match &save.to {
        SaveTo::Host(path) => Some(path),
        SaveTo::Bucket(_) | SaveTo::Here(_) => None,
    });
    Some(json!({
        "key": key,
        "container": cluster.request.scope.tag(&key).to_string(),
        "home": HOME,
        "command": COMMAND.iter().copied().chain(["run", HOME]).collect::<Vec<_>>(),
        "secrets": secrets,
        "folders": folders.collect::<Vec<_>>(),
        "files": files(&read.iter().map(String::as_str).collect::<Vec<_>>()),
    }))
}

fn places(cluster: &Cluster<'_>) -> Places {
    let has_jupyter = cluster.request.spec.services().jupyter.settings().is_some();
    Places {
        home: HOME.to_owned(),
        data: DATA_IN_CONTAINERS.to_owned(),
        secrets: "/run/gpucl/secrets".to_owned(),
        store: cluster.store_place(),
        gcs: cluster.at.gcs.clone(),
        dashboard: cluster.at.dashboard.clone(),
        ray: "ray".to_owned(),
        jupyter: has_jupyter.then(|| cluster.at.jupyter.clone()),
    }
}
