//! MLflow beside the head: where it is, and how its container is started.

use super::HostInput;
use crate::runtime::project::mlflow::artifacts;
use crate::spec::Spec;

/// The name of its service, and of its host within the network of the containers.
const NAME: &str = "mlflow";
/// Its port there.
const PORT: u16 = 5000;
/// The folder of its container with the secrets, and with the volume.
pub(super) const HOME: &str = "/run/gpucl";
/// The file with the login of jobs, in the folder of secrets.
pub(super) const LOGIN: &str = "mlflow.json";

/// Its URL, as nodes reach it.
pub(super) fn url(head: &HostInput, bridge: bool) -> String {
    let (port, name) = place(head, bridge);
    format!("http://{name}:{port}")
}

/// The variable that names the file with the login of jobs.
pub(super) fn environment() -> (&'static str, String) {
    ("GPUCL_MLFLOW", format!("{HOME}/secrets/{LOGIN}"))
}

/// Its port as its container listens on it, and what nodes call its host.
pub(super) fn place(head: &HostInput, bridge: bool) -> (u16, &str) {
    match bridge {
        true => (PORT, NAME),
        false => (head.ports.mlflow, &head.address),
    }
}

/// The arguments of the launcher, for artifacts in the store at this URL and region, if there is one.
///
/// Several hosts reach the server by the address of the head's. Its page is on the loopback, and it listens on one address
/// alone: so it is all of them, and the firewall closes the port to others.
pub(super) fn arguments(spec: &Spec, head: &HostInput, bridge: bool, store: Option<&(String, String)>) -> Vec<String> {
    let (port, name) = place(head, bridge);
    let mut words = vec![HOME.to_owned(), format!("0.0.0.0:{port}"), "--name".to_owned(), name.to_owned()];
    words.extend(store.map(|(endpoint, region)| artifacts(spec, endpoint, region)).unwrap_or_default());
    words
}
