//! MLflow beside the head: its container, the login that jobs and notebooks are given, and its check.

use serde_json::{Value, json};

use super::HostInput;
use super::project::{Project, digest_of};
use super::view::Cluster;
use crate::error::Result;
use crate::host::StageFile;
use crate::name::Key;
use crate::runtime::project::mlflow::{LAUNCHER, artifacts, login};

/// The name of its service, and of its host within the network of the containers.
const NAME: &str = "mlflow";
/// Its port there.
const PORT: u16 = 5000;
/// The folder of its container with the secrets, and with the volume.
const HOME: &str = "/run/gpucl";
/// The file with the login of jobs, in the folder of secrets.
pub(super) const LOGIN: &str = "mlflow.json";

/// Its URL, as nodes reach it.
pub(super) fn url(head: &HostInput, bridge: bool) -> String {
    match bridge {
        true => format!("http://{NAME}:{PORT}"),
        false => format!("http://{}:{}", head.address, head.ports.mlflow),
    }
}

/// The variable that names the file with the login of jobs.
pub(super) fn environment() -> (&'static str, String) {
    ("GPUCL_MLFLOW", format!("{HOME}/secrets/{LOGIN}"))
}

/// The login of jobs, for hosts with nodes.
pub(super) fn login_file(cluster: &Cluster<'_>) -> Result<StageFile> {
    let bytes = login(cluster.request.secrets, &cluster.at.mlflow)?;
    // As other secrets: only root can enter their folder.
    Ok(StageFile { path: format!("secrets/{LOGIN}"), mode: 0o444, bytes })
}

/// The program that starts the server.
pub(super) fn launcher(cluster: &Cluster<'_>) -> Result<StageFile> {
    let (bytes, _) = cluster.request.library.read(LAUNCHER)?;
    Ok(StageFile::world_readable("lib/tracking.py".to_owned(), bytes))
}

/// The server, as input to the probe.
pub(super) fn want(cluster: &Cluster<'_>) -> Value {
    json!({"url": cluster.at.mlflow})
}

/// The template variables of its container.
pub(super) fn view(project: &Project<'_>, files: &[StageFile]) -> Value {
    let (cluster, host) = (project.cluster, project.host);
    // Several hosts reach it by the address of this one. Its page is on the loopback, and one address is all it takes:
    // the firewall closes the port to others.
    let port = if cluster.bridge { PORT } else { host.ports.mlflow };
    let name = if cluster.bridge { NAME } else { &host.address };
    let mut arguments = vec![HOME.to_owned(), format!("0.0.0.0:{port}"), "--name".to_owned(), name.to_owned()];
    let mut secrets = vec!["mlflow_password"];
    if let Some((endpoint, region)) = cluster.store_place() {
        arguments.extend(artifacts(cluster.request.spec, &endpoint, &region));
        secrets.push("aws_credentials");
    }
    let read: Vec<String> = secrets.iter().map(|name| format!("secrets/{name}")).collect();
    let read: Vec<&str> = read.iter().map(String::as_str).chain(["lib/tracking.py"]).collect();
    json!({
        "image": project.images.mlflow,
        "container": cluster.request.scope.tag(&Key::mlflow()).to_string(),
        "home": HOME,
        "arguments": arguments,
        "port": port,
        "secrets": secrets,
        "files": digest_of(files, &read),
    })
}
