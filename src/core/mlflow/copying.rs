//! Copies the experiments, runs and logged models of an export to a server.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Server;
use super::query::{self, ModelInfo, RunInfo, joined, place_of};
use super::record::{Counts, Listed, LoggedModel, Pair, Run, tag};
use super::source::Source;
use super::{BEGUN, IMPORT, ORIGIN_MODEL, ORIGIN_RUN, WAS_RUNNING, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::util::text::printable_line;

/// The most points that MLflow takes in one call.
const POINTS: usize = 1000;
/// The most parameters and the most tags that it takes in one call.
const PAIRS: usize = 100;
/// How many bytes of them are sent at once; it takes 1 MB.
const BATCH_BYTES: usize = 500_000;
/// The tag with the id of a run's parent.
pub(super) const PARENT: &str = "mlflow.parentRunId";
/// The tag with a run's name, which has a field of its own.
const NAME: &str = "mlflow.runName";

/// What a copy is called on the server, by its id in the export.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) experiments: BTreeMap<String, String>,
    /// Runs: the id, and the place of the artifacts.
    pub(super) runs: BTreeMap<String, (String, String)>,
    /// Logged models, likewise.
    pub(super) logged_models: BTreeMap<String, (String, String)>,
}

#[derive(Deserialize)]
pub(super) struct RunMade {
    pub(super) run: RunWithInfo,
}

#[derive(Deserialize)]
pub(super) struct RunWithInfo {
    pub(super) info: RunInfo,
}

#[derive(Deserialize)]
struct ModelMade {
    model: ModelWithInfo,
}

#[derive(Deserialize)]
struct ModelWithInfo {
    info: ModelInfo,
}

#[derive(Deserialize)]
pub(super) struct ExperimentMade {
    pub(super) experiment_id: String,
}

/// What is on the server before an import.
#[derive(Default)]
struct Found {
    /// The experiments, by name.
    experiments: BTreeMap<String, String>,
    /// The runs, by the id of what they are a copy of, else by their own.
    runs: BTreeMap<String, (RunInfo, Option<String>)>,
    logged_models: BTreeMap<String, ModelInfo>,
    /// The copies that this import has made or goes on with.
    begun: BTreeSet<String>,
}

pub(super) struct Reader<'a> {
    pub(super) server: &'a Server,
    pub(super) watch: &'a dyn Watch,
    pub(super) source: &'a Source,
    pub(super) copies: Copies,
    pub(super) counts: Counts,
    found: Found,
}

impl<'a> Reader<'a> {
    /// Nothing is looked at yet.
    pub(super) fn new(server: &'a Server, watch: &'a dyn Watch, source: &'a Source) -> Self {
        let (copies, counts, found) = (Copies::default(), Counts::default(), Found::default());
        Self { server, watch, source, copies, counts, found }
    }

    pub(super) async fn look(&mut self) -> Result<()> {
        let experiments = query::experiments(self.server, "ALL").await?;
        let wanted: BTreeSet<&str> = self.source.experiments.values().map(|one| one.name.as_str()).collect();
        let deleted = experiments.iter().find(|one| one.lifecycle_stage == "deleted" && wanted.contains(&*one.name));
        if let Some(deleted) = deleted {
            let name = printable_line(&deleted.name);
            return Err(Error::new(ErrorKind::Usage, format!("import the experiment {name}"))
                .because("the server has a deleted experiment of this name; nothing was changed")
                .hint(format!(
                    "restore it there, or rename it: mlflow experiments restore -x {}",
                    deleted.experiment_id
                )));
        }
        let active: Vec<_> = experiments.into_iter().filter(|one| one.lifecycle_stage != "deleted").collect();
        let ids: Vec<&str> = active.iter().map(|one| one.experiment_id.as_str()).collect();
        for run in query::runs(self.server, &ids).await? {
            let origin = tag(&run.data.tags, ORIGIN_RUN).unwrap_or(&run.info.run_id).to_owned();
            let state = tag(&run.data.tags, IMPORT).map(str::to_owned);
            self.found.runs.insert(origin, (run.info, state));
        }
        for model in query::logged_models(self.server, &ids).await? {
            let origin = tag(&model.info.tags, ORIGIN_MODEL).unwrap_or(&model.info.model_id).to_owned();
            self.found.logged_models.insert(origin, model.info);
        }
        self.found.experiments = active.into_iter().map(|one| (one.name, one.experiment_id)).collect();
        Ok(())
    }

    pub(super) async fn experiments(&mut self) -> Result<()> {
        for experiment in self.source.experiments.values() {
            let id = match self.found.experiments.get(&experiment.name) {
                Some(id) => id.clone(),
                None => {
                    let what = json!({"name": experiment.name, "tags": experiment.tags});
                    let made: ExperimentMade = self.server.change(Method::POST, "experiments/create", &what).await?;
                    self.counts.experiments += 1;
                    made.experiment_id
                }
            };
            self.copies.experiments.insert(experiment.id.clone(), id);
        }
        Ok(())
    }

    pub(super) async fn run(&mut self, run: &Run) -> Result<()> {
        let origin = tag(&run.tags, ORIGIN_RUN).unwrap_or(&run.id);
        let is_over = is_over(run);
        if let Some((there, state)) = self.found.runs.get(origin).or_else(|| self.found.runs.get(&run.id)) {
            let is_whole = match state.as_deref() {
                Some(WAS_RUNNING) => !is_over,
                state => state != Some(BEGUN),
            };
            if is_whole {
                let place = place_of(&there.artifact_uri).unwrap_or_default();
                self.copies.runs.insert(run.id.clone(), (there.run_id.clone(), place));
                self.counts.there_already += 1;
                return Ok(());
            }
            self.server.set("runs/delete", &json!({"run_id": there.run_id})).await?;
        }
        let mut tags: Vec<Pair> =
            run.tags.iter().filter(|tag| !is_ours(&tag.key) && tag.key != NAME).cloned().collect();
        for tag in tags.iter_mut().filter(|tag| tag.key == PARENT) {
            if let Some((parent, _)) = self.copies.runs.get(&tag.value) {
                tag.value.clone_from(parent);
            }
        }
        let ours = |key: &str, value: &str| Pair { key: key.to_owned(), value: value.to_owned() };
        let what = json!({
            "experiment_id": self.copies.experiments.get(&run.experiment),
            "run_name": run.name,
            "user_id": run.user,
            "start_time": run.start_time,
            "tags": [ours(ORIGIN_RUN, origin), ours(IMPORT, BEGUN)],
        });
        let made: RunMade = self.server.change(Method::POST, "runs/create", &what).await?;
        let id = made.run.info.run_id;
        let place = self.place(&made.run.info.artifact_uri)?;
        self.pairs(&id, "tags", &tags).await?;
        self.pairs(&id, "params", &run.params).await?;
        for points in self.source.points(&run.id, POINTS)? {
            self.batch(&id, "metrics", &points?).await?;
        }
        for datasets in run.datasets.chunks(PAIRS) {
            self.server.set("runs/log-inputs", &json!({"run_id": id, "datasets": datasets})).await?;
        }
        self.artifacts(&format!("runs/{}", run.id), &run.artifacts, &place).await?;
        self.found.begun.insert(run.id.clone());
        self.copies.runs.insert(run.id.clone(), (id, place));
        self.counts.runs += 1;
        Ok(())
    }

    /// Ends the copy of a run, after the models that it refers to.
    pub(super) async fn finish(&mut self, run: &Run) -> Result<()> {
        let Some((id, _)) = self.copies.runs.get(&run.id).filter(|_| self.found.begun.contains(&run.id)) else {
            return Ok(());
        };
        let copy = |model: &String| Some(self.copies.logged_models.get(model)?.0.clone());
        let outputs = run.model_outputs.iter();
        let outputs: Vec<Value> = outputs
            .filter_map(|output| Some(json!({"model_id": copy(&output.model_id)?, "step": output.step})))
            .collect();
        if !outputs.is_empty() {
            self.server.set("runs/outputs", &json!({"run_id": id, "models": outputs})).await?;
        }
        let inputs: Vec<Value> =
            run.model_inputs.iter().filter_map(|model| Some(json!({"model_id": copy(model)?}))).collect();
        if !inputs.is_empty() {
            self.server.set("runs/log-inputs", &json!({"run_id": id, "models": inputs})).await?;
        }
        // Nobody goes on with the copy of a run that had not ended.
        let status = if is_over(run) { run.status.as_str() } else { "KILLED" };
        let end = run.end_time.unwrap_or(run.start_time);
        self.server.set("runs/update", &json!({"run_id": id, "status": status, "end_time": end})).await?;
        match is_over(run) {
            true => self.server.set("runs/delete-tag", &json!({"run_id": id, "key": IMPORT})).await,
            false => self.server.set("runs/set-tag", &json!({"run_id": id, "key": IMPORT, "value": WAS_RUNNING})).await,
        }
    }

    pub(super) async fn logged_model(&mut self, model: &LoggedModel) -> Result<()> {
        let origin = tag(&model.tags, ORIGIN_MODEL).unwrap_or(&model.id);
        if let Some(there) = self.found.logged_models.get(origin).or_else(|| self.found.logged_models.get(&model.id)) {
            let run = model.source_run.as_ref();
            if there.status == "LOGGED_MODEL_READY" && !run.is_some_and(|run| self.found.begun.contains(run)) {
                let place = place_of(&there.artifact_uri).unwrap_or_default();
                self.copies.logged_models.insert(model.id.clone(), (there.model_id.clone(), place));
                self.counts.there_already += 1;
                return Ok(());
            }
            let path = format!("logged-models/{}", there.model_id);
            self.server.change::<Value>(Method::DELETE, &path, &json!({})).await?;
        }
        let tags = model.tags.iter().filter(|tag| tag.key != ORIGIN_MODEL).cloned();
        let tags: Vec<Pair> = tags.chain([Pair { key: ORIGIN_MODEL.to_owned(), value: origin.to_owned() }]).collect();
        let source_run = model.source_run.as_ref().and_then(|run| self.copies.runs.get(run)).map(|(id, _)| id);
        let what = json!({
            "experiment_id": self.copies.experiments.get(&model.experiment),
            "name": model.name,
            "model_type": model.model_type,
            "source_run_id": source_run,
            "params": model.params,
            "tags": tags,
        });
        let made: ModelMade = self.server.change(Method::POST, "logged-models", &what).await?;
        let id = made.model.info.model_id;
        let place = self.place(&made.model.info.artifact_uri)?;
        self.artifacts(&format!("logged-models/{}", model.id), &model.artifacts, &place).await?;
        let runs: BTreeSet<&String> = model.metrics.iter().map(|point| &point.run_id).collect();
        for run in runs {
            let Some((copy, _)) = self.copies.runs.get(run) else { continue };
            self.batch(copy, "metrics", &self.points_of(model, run, &id)?).await?;
        }
        let path = format!("logged-models/{id}");
        let what = json!({"model_id": id, "status": "LOGGED_MODEL_READY"});
        self.server.change::<Value>(Method::PATCH, &path, &what).await?;
        self.copies.logged_models.insert(model.id.clone(), (id, place));
        self.counts.logged_models += 1;
        Ok(())
    }

    /// The points of a run that are about a model. They are taken from the run: the server gives a model's NaN as 0.
    fn points_of(&self, model: &LoggedModel, run: &str, id: &str) -> Result<Vec<Value>> {
        let wanted: BTreeSet<(&str, i64, i64)> = model
            .metrics
            .iter()
            .filter(|one| one.run_id == run)
            .map(|one| (one.point.key.as_str(), one.point.timestamp, one.point.step))
            .collect();
        let mut found = Vec::new();
        for points in self.source.points(run, POINTS)? {
            for point in points? {
                if wanted.contains(&(point.key.as_str(), point.timestamp, point.step)) {
                    let mut value = json!(point);
                    value["model_id"] = id.into();
                    found.push(value);
                }
            }
        }
        Ok(found)
    }

    /// Sends the artifacts of a folder of the export to a place of the server.
    pub(super) async fn artifacts(&mut self, folder: &str, files: &[Listed], place: &str) -> Result<()> {
        for file in files {
            let open = self.source.file(&format!("{folder}/artifacts/{}", file.path))?;
            let watch = self.watch;
            self.server.upload(&joined(place, &file.path), open, file.size, &|bytes| watch.moved(bytes)).await?;
            self.counts.files += 1;
            self.counts.bytes += file.size;
        }
        Ok(())
    }

    /// The place of artifacts, which the server must keep itself.
    pub(super) fn place(&self, uri: &str) -> Result<String> {
        place_of(uri).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "import into MLflow")
                .because(format!("this server does not keep artifacts itself, but at {}", printable_line(uri)))
        })
    }

    async fn pairs(&self, run: &str, key: &str, pairs: &[Pair]) -> Result<()> {
        for some in pairs.chunks(PAIRS) {
            self.batch(run, key, some).await?;
        }
        Ok(())
    }

    /// Logs items of a run, in calls that are not too large.
    async fn batch(&self, run: &str, key: &str, items: &[impl serde::Serialize]) -> Result<()> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let send =
            async |batch: Vec<Value>| self.server.set("runs/log-batch", &json!({"run_id": run, key: batch})).await;
        for item in items {
            let item = json!(item);
            let size = item.to_string().len();
            if !batch.is_empty() && (bytes + size > BATCH_BYTES || batch.len() == POINTS) {
                send(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            bytes += size;
            batch.push(item);
        }
        if batch.is_empty() { Ok(()) } else { send(batch).await }
    }
}

/// Whether a tag says of which import a copy is.
fn is_ours(key: &str) -> bool {
    matches!(key, ORIGIN_RUN | IMPORT)
}

fn is_over(run: &Run) -> bool {
    // What was imported while it ran is over, but not whole.
    !matches!(run.status.as_str(), "RUNNING" | "SCHEDULED") && tag(&run.tags, IMPORT).is_none()
}
