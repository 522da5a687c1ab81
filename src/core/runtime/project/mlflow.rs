//! MLflow beside the nodes, the same for every runtime: how its server is started, and the login that jobs are given.

use serde_json::{Value, json};

use crate::error::{Doing as _, ErrorKind, Result};
use crate::mlflow::Login;
use crate::secret::{MLFLOW_USER, Secrets};
use crate::spec::Spec;

/// The template of the program that starts the server.
pub(in crate::runtime) const LAUNCHER: &str = "templates/ray-native/tracking.py";

/// The file with the address and the login, as variables: each process of a job reads it when it starts. `own` is the URL of the
/// cluster's own server.
pub(in crate::runtime) fn login(spec: &Spec, secrets: &Secrets, own: &str) -> Result<Vec<u8>> {
    let variables = match spec.external_mlflow() {
        Some(external) if external.credentials_file.is_none() => Login::Open.variables(&external.uri),
        Some(external) => secrets.external_mlflow.variables(&external.uri),
        None => {
            Login::Password { user: MLFLOW_USER.to_owned(), password: secrets.mlflow_password.clone() }.variables(own)
        }
    };
    serde_json::to_vec(&variables).doing(ErrorKind::Internal, || "render the login of MLflow".to_owned())
}

/// The server that jobs use, as input to the probe; `None` if they have none.
pub(in crate::runtime) fn want(spec: &Spec, own: &str) -> Option<Value> {
    match spec.external_mlflow() {
        Some(external) => Some(json!({"external": external.uri})),
        None => spec.own_mlflow().then(|| json!({"url": own})),
    }
}

/// The launcher's arguments for artifacts in the first bucket of the store at this endpoint; none without a bucket.
pub(in crate::runtime) fn artifacts(spec: &Spec, endpoint: &str, region: &str) -> Vec<String> {
    let store = spec.services().object_store.settings();
    let bucket = store.and_then(|store| store.buckets.into_iter().next());
    bucket.map_or_else(Vec::new, |bucket| {
        vec!["--store".to_owned(), endpoint.to_owned(), region.to_owned(), format!("s3://{bucket}/mlflow")]
    })
}
