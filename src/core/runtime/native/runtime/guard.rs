//! The guard of the end beside the nodes, as a process of the host's supervisor. It runs under Ray's own Python, as it
//! needs the program `ray` to drain nodes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::claim::ports_of_node;
use super::service::{Service, isolated};
use super::{LOOPBACK, store};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::StageFile;
use crate::name::Key;
use crate::runtime::native::Layout;
use crate::runtime::project::guard::{CREDENTIALS, Places, has_outside, key_on, program, settings};
use crate::runtime::project::{DeployRequest, HostInput};
use crate::spec::NodeRole;

/// Placeholder for the path of Ray's environment, known only on the host; `host.py` replaces it.
const RAY_ENV: &str = "@ray_env@";

/// The guard of a host.
pub(super) struct Guard {
    /// Its process.
    pub(super) launch: Value,
    /// The content of its `guard.json`, with placeholders.
    pub(super) settings: Value,
}

/// The files that a host needs for it.
pub(super) fn files(request: &DeployRequest<'_>, host: &HostInput) -> Result<Vec<StageFile>> {
    if key_on(request, host).is_none() {
        return Ok(Vec::new());
    }
    let private = |path: String, bytes: Vec<u8>| StageFile { path, mode: 0o600, bytes };
    let program = program(request.library)?.into_iter();
    let mut files: Vec<_> = program.map(|(name, bytes)| private(format!("end/{name}"), bytes)).collect();
    if has_outside(request, host) {
        files.push(private(format!("secrets/{CREDENTIALS}"), request.secrets.text(CREDENTIALS).into_bytes()));
    }
    Ok(files)
}

/// The guard as a process for the host's supervisor; `None` if this host has none. `gcs` is where the head's GCS listens.
pub(super) fn launch(
    request: &DeployRequest<'_>,
    host: &HostInput,
    layout: &Layout,
    blocks: &BTreeMap<Key, u16>,
    gcs: String,
) -> Result<Option<Guard>> {
    let Some(key) = key_on(request, host) else { return Ok(None) };
    let path = |path: std::path::PathBuf| path.display().to_string();
    let head = request.nodes.iter().find(|node| node.role == NodeRole::Head);
    let head = head.map(|head| ports_of_node(blocks, head)).unwrap_or_default();
    let home = path(layout.home().to_owned());
    let places = Places {
        secrets: format!("{home}/secrets"),
        data: path(layout.data()),
        store: store::place(request, blocks),
        gcs,
        dashboard: format!("http://{LOOPBACK}:{}", head.dashboard),
        ray: format!("{RAY_ENV}/bin/ray"),
        jupyter: None,
        home: home.clone(),
    };
    let settings = settings(request, host, &places)?;
    let mut argv: Vec<String> = isolated(&format!("{RAY_ENV}/bin/python")).into();
    argv.extend([path(layout.guard_script()), "run".to_owned(), home]);
    // What it reads at its start: a change of them starts it again.
    let mut files = files(request, host)?;
    let bytes = serde_json::to_vec(&settings).doing(ErrorKind::Internal, || "render the guard".to_owned())?;
    files.push(StageFile { path: "guard.json".to_owned(), mode: 0o600, bytes });
    let service = Service { name: key.display_name(), key, short: "g", argv, files: &files, answers: Vec::new() };
    Ok(Some(Guard { launch: service.launch(request, host, layout), settings }))
}
