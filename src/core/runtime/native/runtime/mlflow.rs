//! MLflow beside the nodes: the server as a process, and the login that jobs are given.

use std::collections::BTreeMap;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::claim::{has_mlflow, mlflow_port};
use super::service::{Service, isolated};
use super::{LOOPBACK, store};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::StageFile;
use crate::mlflow::Login;
use crate::name::Key;
use crate::runtime::native::Layout;
use crate::runtime::project::{DeployRequest, HostInput};
use crate::secret::MLFLOW_USER;

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

/// The server, as input to the probe.
pub(super) fn want(request: &DeployRequest<'_>, blocks: &BTreeMap<Key, u16>) -> Option<Value> {
    if let Some(external) = request.spec.external_mlflow() {
        return Some(json!({"external": external.uri}));
    }
    request.spec.own_mlflow().then(|| json!({"url": url(blocks), "user": MLFLOW_USER}))
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
    let password = &request.secrets.mlflow_password;
    let login = match request.spec.external_mlflow() {
        Some(external) if external.credentials_file.is_none() => Login::Open.variables(&external.uri),
        Some(external) => request.secrets.external_mlflow.variables(&external.uri),
        None => Login::Password { user: MLFLOW_USER.to_owned(), password: password.clone() }.variables(&url(blocks)),
    };
    let login = serde_json::to_vec(&login).doing(ErrorKind::Internal, || "render the login of MLflow".to_owned())?;
    let private = |path: &str, bytes: Vec<u8>| StageFile { path: path.to_owned(), mode: 0o600, bytes };
    files.push(private("secrets/mlflow.json", login));
    if has_mlflow(request, host) {
        files.push(private("secrets/mlflow_password", password.expose_secret().as_bytes().to_vec()));
        files.push(private("tracking.py", request.library.read("templates/ray-native/tracking.py")?.0));
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
    argv.extend([path(layout.tracking_script()), path(layout.home().to_owned()), mlflow_port(blocks).to_string()]);
    if let Some(bucket) = store::bucket(request) {
        let (endpoint, region) = store::place(request, blocks).unwrap_or_default();
        argv.extend([endpoint, region, format!("s3://{bucket}/mlflow")]);
    }
    let files = &files(request, host, blocks)?;
    let service = Service { key: Key::mlflow(), name: "mlflow", short: "m", argv, files, answers: mlflow_port(blocks) };
    Ok(Some(service.launch(request, host, layout)))
}
