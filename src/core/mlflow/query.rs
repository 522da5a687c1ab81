//! What a server has: its lists, page by page, and the answers in them.

use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Server, is_absent};
use super::record::{Alias, ModelOutput, ModelPoint, Pair, Point, number};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::s3::local_path;

/// How many items are asked for at once.
const PAGE: u32 = 100;
/// The most pages of one list: a server that begins again at each page has no end.
pub(super) const MOST_PAGES: usize = 100_000;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ExperimentAnswer {
    pub(super) experiment_id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) lifecycle_stage: String,
    #[serde(default)]
    pub(super) tags: Vec<Pair>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RunAnswer {
    pub(super) info: RunInfo,
    #[serde(default)]
    pub(super) data: RunData,
    #[serde(default)]
    pub(super) inputs: RunInputs,
    #[serde(default)]
    pub(super) outputs: RunOutputs,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RunInfo {
    pub(super) run_id: String,
    pub(super) experiment_id: String,
    #[serde(default)]
    pub(super) run_name: String,
    #[serde(default)]
    pub(super) user_id: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) start_time: i64,
    #[serde(default)]
    pub(super) end_time: Option<i64>,
    #[serde(default)]
    pub(super) artifact_uri: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunData {
    pub(super) metrics: Vec<Point>,
    pub(super) params: Vec<Pair>,
    pub(super) tags: Vec<Pair>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunInputs {
    pub(super) dataset_inputs: Vec<Value>,
    pub(super) model_inputs: Vec<ModelOutput>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunOutputs {
    pub(super) model_outputs: Vec<ModelOutput>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ModelAnswer {
    pub(super) info: ModelInfo,
    #[serde(default)]
    pub(super) data: ModelData,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ModelInfo {
    pub(super) model_id: String,
    pub(super) experiment_id: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) model_type: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) source_run_id: String,
    #[serde(default)]
    pub(super) artifact_uri: String,
    #[serde(default)]
    pub(super) tags: Vec<Pair>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ModelData {
    pub(super) params: Vec<Pair>,
    pub(super) metrics: Vec<ModelPoint>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RegisteredAnswer {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) tags: Vec<Pair>,
    #[serde(default)]
    pub(super) aliases: Vec<Alias>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct VersionAnswer {
    pub(super) name: String,
    #[serde(with = "number")]
    pub(super) version: u32,
    #[serde(default)]
    pub(super) creation_timestamp: i64,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) current_stage: String,
    #[serde(default)]
    pub(super) run_id: String,
    #[serde(default)]
    pub(super) source: String,
    #[serde(default)]
    pub(super) tags: Vec<Pair>,
}

/// The experiments of a server: `ACTIVE_ONLY` or `ALL`.
pub(super) async fn experiments(server: &Server, view: &str) -> Result<Vec<ExperimentAnswer>> {
    let page = async |token: Option<String>| {
        let what = with_token(json!({"max_results": PAGE, "view_type": view}), token);
        server.search::<Value>("experiments/search", &what).await
    };
    pages("experiments", page).await
}

/// The runs of experiments that are not deleted.
pub(super) async fn runs(server: &Server, experiments: &[&str]) -> Result<Vec<RunAnswer>> {
    let mut all = Vec::new();
    for ids in experiments.chunks(PAGE as usize) {
        let page = async |token: Option<String>| {
            let what = json!({"experiment_ids": ids, "run_view_type": "ACTIVE_ONLY", "max_results": PAGE});
            server.search::<Value>("runs/search", &with_token(what, token)).await
        };
        all.extend(pages::<RunAnswer>("runs", page).await?);
    }
    Ok(all)
}

/// A run, also a deleted one; `None` if it does not exist.
pub(super) async fn run(server: &Server, id: &str) -> Result<Option<RunAnswer>> {
    #[derive(Deserialize)]
    struct Answer {
        run: RunAnswer,
    }
    match server.get::<Answer>("runs/get", &[("run_id", id)]).await {
        Ok(answer) => Ok(Some(answer.run)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The logged models of experiments.
pub(super) async fn logged_models(server: &Server, experiments: &[&str]) -> Result<Vec<ModelAnswer>> {
    let mut all = Vec::new();
    for ids in experiments.chunks(PAGE as usize) {
        let page = async |token: Option<String>| {
            let what = with_token(json!({"experiment_ids": ids, "max_results": 50}), token);
            server.search::<Value>("logged-models/search", &what).await
        };
        all.extend(pages::<ModelAnswer>("models", page).await?);
    }
    Ok(all)
}

/// The registered models.
pub(super) async fn registered(server: &Server) -> Result<Vec<RegisteredAnswer>> {
    pages("registered_models", async |token| query(server, "registered-models/search", token).await).await
}

/// The versions of all registered models.
pub(super) async fn versions(server: &Server) -> Result<Vec<VersionAnswer>> {
    pages("model_versions", async |token| query(server, "model-versions/search", token).await).await
}

async fn query(server: &Server, path: &str, token: Option<String>) -> Result<Value> {
    let (token, page) = (token.unwrap_or_default(), PAGE.to_string());
    let mut query = vec![("max_results", page.as_str())];
    if !token.is_empty() {
        query.push(("page_token", &token));
    }
    server.get(path, &query).await
}

fn with_token(mut what: Value, token: Option<String>) -> Value {
    if let Some(token) = token {
        what["page_token"] = token.into();
    }
    what
}

/// The items under `key` of all pages.
async fn pages<T: serde::de::DeserializeOwned>(
    key: &str,
    page: impl AsyncFn(Option<String>) -> Result<Value>,
) -> Result<Vec<T>> {
    let doing = || format!("list MLflow's {key}");
    let (mut all, mut token) = (Vec::new(), None);
    for _ in 0..MOST_PAGES {
        let mut answer = page(token.take()).await?;
        if let Some(Value::Array(items)) = answer.get_mut(key).map(Value::take) {
            for item in items {
                all.push(serde_json::from_value(item).doing(ErrorKind::Host, doing)?);
            }
        }
        match answer["next_page_token"].as_str().filter(|token| !token.is_empty()) {
            Some(next) => token = Some(next.to_owned()),
            None => return Ok(all),
        }
    }
    Err(Error::new(ErrorKind::Host, doing()).because("the list has no end"))
}

/// How many runs a server has.
///
/// # Errors
/// If it refuses or does not answer.
pub async fn count_runs(server: &Server) -> Result<usize> {
    let experiments = experiments(server, "ACTIVE_ONLY").await?;
    let ids: Vec<&str> = experiments.iter().map(|one| one.experiment_id.as_str()).collect();
    Ok(runs(server, &ids).await?.len())
}

/// The path of a URI in the artifacts that the server keeps; `None` if it does not keep them.
pub(super) fn place_of(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix("mlflow-artifacts:")?;
    let path = match rest.strip_prefix("//") {
        Some(host) => host.split_once('/')?.1,
        None => rest.strip_prefix('/')?,
    };
    local_path(path.trim_end_matches('/')).map(|_| path.trim_end_matches('/').to_owned())
}

/// A path below a place.
pub(super) fn joined(place: &str, path: &str) -> String {
    if path.is_empty() { place.to_owned() } else { format!("{place}/{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_artifacts_are_those_that_the_server_keeps() {
        assert_eq!(place_of("mlflow-artifacts:/1/abc/artifacts"), Some("1/abc/artifacts".to_owned()));
        assert_eq!(place_of("mlflow-artifacts://host:5000/1/abc/"), Some("1/abc".to_owned()));
        for not in ["s3://b/1", "file:///etc", "mlflow-artifacts:/../1", "mlflow-artifacts:/1//2", "/etc", ""] {
            assert_eq!(place_of(not), None, "{not}");
        }
    }
}
