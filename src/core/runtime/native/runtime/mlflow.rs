//! MLflow beside the nodes: the server as a process, and the login that jobs are given.

use std::collections::BTreeMap;

use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::claim::{has_mlflow, mlflow_port};
use super::service::{Service, isolated};
use super::{LOOPBACK, store};
use crate::error::Result;
use crate::host::StageFile;
use crate::name::Key;
use crate::runtime::native::Layout;
use crate::runtime::project::mlflow::{LAUNCHER, artifacts, login};
use crate::runtime::project::{self, DeployRequest, HostInput};

/// Placeholder for the path of the server's environment, known only on the host; `host.py` replaces it.
const ENVIRONMENT: &str = "@mlflow_env@";

fn url(blocks: &BTreeMap<Key, u16>) -> String {
    format!("http://{LOOPBACK}:{}", mlflow_port(blocks))
}

/// Whether jobs have a server, of the cluster's own or another.
fn has_any(request: &DeployRequest<'_>) -> bool {
    request.spec.services().mlflow.settings().is_some()
}

/// The variable that names the file with the login of jobs: each process of a job reads it when it starts.
pub(super) fn environment(request: &DeployRequest<'_>, layout: &Layout) -> Option<(&'static str, String)> {
    has_any(request).then(|| ("GPUCL_MLFLOW", layout.mlflow_login().display().to_string()))
}

/// The server that jobs use, as input to the probe.
pub(super) fn want(request: &DeployRequest<'_>, blocks: &BTreeMap<Key, u16>) -> Option<Value> {
    project::mlflow::want(request.spec, &url(blocks))
}

/// The files that a host needs of it.
pub(super) fn files(
    request: &DeployRequest<'_>,
    host: &HostInput,
    blocks: &BTreeMap<Key, u16>,
) -> Result<Vec<StageFile>> {
    let mut files = Vec::new();
    if !has_any(request) {
        return Ok(files);
    }
    let private = |path: &str, bytes: Vec<u8>| StageFile { path: path.to_owned(), mode: 0o600, bytes };
    files.push(private("secrets/mlflow.json", login(request.spec, request.secrets, &url(blocks))?));
    if has_mlflow(request, host) {
        let password = request.secrets.mlflow_password.expose_secret().as_bytes().to_vec();
        files.push(private("secrets/mlflow_password", password));
        files.push(private("tracking.py", request.library.read(LAUNCHER)?.0));
    }
    Ok(files)
}

/// The server as a process for the host's supervisor; `None` if it does not run on this host.
pub(super) fn launch(
    request: &DeployRequest<'_>,
    host: &HostInput,
    layout: &Layout,
    blocks: &BTreeMap<Key, u16>,
) -> Result<Option<Value>> {
    if !has_mlflow(request, host) {
        return Ok(None);
    }
    let path = |path: std::path::PathBuf| path.display().to_string();
    let mut argv: Vec<String> = isolated(&format!("{ENVIRONMENT}/bin/python")).into();
    argv.extend([path(layout.tracking_script()), path(layout.home().to_owned())]);
    argv.push(format!("{LOOPBACK}:{}", mlflow_port(blocks)));
    let (endpoint, region) = store::place(request, blocks).unwrap_or_default();
    argv.extend(artifacts(request.spec, &endpoint, &region));
    let files = &files(request, host, blocks)?;
    let service = Service {
        key: Key::mlflow(),
        name: "mlflow".to_owned(),
        short: "m",
        argv,
        files,
        answers: vec![mlflow_port(blocks)],
    };
    Ok(Some(service.launch(request, host, layout)))
}
