//! MLflow beside the nodes, the same for every runtime: how its server is started, and the login that jobs are given.

use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::error::{Doing as _, ErrorKind, Result};
use crate::secret::{MLFLOW_USER, Secrets};
use crate::spec::Spec;

/// The template of the program that starts the server.
pub(in crate::runtime) const LAUNCHER: &str = "templates/ray-native/tracking.py";

/// The file with the address and the login, as variables: each process of a job reads it when it starts.
pub(in crate::runtime) fn login(secrets: &Secrets, url: &str) -> Result<Vec<u8>> {
    let login = json!({
        "MLFLOW_TRACKING_URI": url,
        "MLFLOW_TRACKING_USERNAME": MLFLOW_USER,
        "MLFLOW_TRACKING_PASSWORD": secrets.mlflow_password.expose_secret(),
    });
    serde_json::to_vec(&login).doing(ErrorKind::Internal, || "render the login of MLflow".to_owned())
}

/// The launcher's arguments for artifacts in the first bucket of the store at this endpoint; none without a bucket.
pub(in crate::runtime) fn artifacts(spec: &Spec, endpoint: &str, region: &str) -> Vec<String> {
    let store = spec.services().object_store.settings();
    let bucket = store.and_then(|store| store.buckets.into_iter().next());
    bucket.map_or_else(Vec::new, |bucket| {
        vec!["--store".to_owned(), endpoint.to_owned(), region.to_owned(), format!("s3://{bucket}/mlflow")]
    })
}
