//! Writes what a server has into a folder.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::client::{Server, is_absent};
use super::query::{
    self, ExperimentAnswer, MOST_PAGES, ModelAnswer, RegisteredAnswer, RunAnswer, VersionAnswer, experiments, joined,
    logged_models, place_of, registered, runs, versions,
};
use super::record::{Content, Counts, Experiment, Listed, LoggedModel, Manifest, Point, Registered, Run, Version};
use super::source::is_id;
use super::{LAYOUT, MANIFEST, Watch};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::s3::local_path;
use crate::util::folder::{Existing, Folder, Goal, append};
use crate::util::text::printable_line;
use crate::util::{digest, fs};

/// How many points of a metric are asked for at once: the most that MLflow gives.
const POINTS: &str = "25000";
/// How deep folders of artifacts may be.
const DEPTH: usize = 64;
/// The tag by which a logged model knows its versions; the server sets it.
const OF_VERSIONS: &str = "mlflow.modelVersions";

/// Writes all of a server into a folder, which must not exist or be empty: beside it first, and then by a rename.
///
/// # Errors
/// If the folder is in use or cannot be written, or the server refuses or does not answer. Nothing is left then.
pub async fn export(server: &Server, to: &Path, cluster: &str, watch: &dyn Watch) -> Result<Counts> {
    let doing = || format!("export to {}", to.display());
    let name = to.file_name().ok_or_else(|| Error::new(ErrorKind::Usage, doing()).because("it has no name"))?;
    match fs_err::symlink_metadata(to) {
        Ok(found) if !found.is_dir() => {
            return Err(Error::new(ErrorKind::Usage, doing()).because("it is there, and is no folder"));
        }
        Ok(_) if fs_err::read_dir(to).doing(ErrorKind::Usage, doing)?.next().is_some() => {
            return Err(Error::new(ErrorKind::Usage, doing())
                .because("the folder is not empty; nothing was changed")
                .hint("name one that does not exist yet"));
        }
        _ => {}
    }
    let part = to.with_file_name(format!(".{}.gpucl-part", name.to_string_lossy()));
    let part = Part(part);
    // What an interrupted export has left.
    fs::remove_tree(&part.0).doing(ErrorKind::Host, doing)?;
    fs::create_private_dir(&part.0).doing(ErrorKind::Host, doing)?;
    let folder = Goal::named(&part.0).open([], Existing::Replaced).doing(ErrorKind::Host, doing)?;
    let mut writer = Writer {
        server,
        watch,
        folder,
        manifest: Manifest::new(server.version().await?, cluster),
        counts: Counts::default(),
        places: BTreeMap::new(),
    };
    writer.all().await?;
    let counts = writer.finish()?;
    fs_err::rename(&part.0, to).doing(ErrorKind::Host, doing)?;
    let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::sync_folder(above).doing(ErrorKind::Host, doing)?;
    Ok(counts)
}

/// The folder of an export that is not whole; removed when dropped.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_tree(&self.0);
    }
}

/// What owns a place in the server's artifacts.
enum Owner {
    Run(String),
    LoggedModel(String),
}

struct Writer<'a> {
    server: &'a Server,
    watch: &'a dyn Watch,
    folder: Folder,
    manifest: Manifest,
    counts: Counts,
    /// The exported runs and models, by the place of their artifacts.
    places: BTreeMap<String, Owner>,
}

impl Writer<'_> {
    async fn all(&mut self) -> Result<()> {
        let experiments = experiments(self.server, "ACTIVE_ONLY").await?;
        for experiment in &experiments {
            self.experiment(experiment)?;
        }
        let ids: Vec<&str> = experiments.iter().map(|one| one.experiment_id.as_str()).collect();
        let runs = runs(self.server, &ids).await?;
        for (index, run) in runs.iter().enumerate() {
            self.watch.doing(&format!("run {} of {}: {}", index + 1, runs.len(), printable_line(&run.info.run_name)));
            self.run(&run.info.run_id).await?;
        }
        let models = logged_models(self.server, &ids).await?;
        for model in models {
            // What is still being logged, or could not be, is no model.
            if model.info.status == "LOGGED_MODEL_READY" {
                self.watch.doing(&format!("logged model {}", printable_line(&model.info.name)));
                self.logged_model(model).await?;
            }
        }
        let models = registered(self.server).await?;
        let mut versions = versions(self.server).await?;
        versions.sort_by_key(|version| version.version);
        for (index, model) in models.into_iter().enumerate() {
            self.watch.doing(&format!("registered model {}", printable_line(&model.name)));
            self.registered(index, model, &versions).await?;
        }
        Ok(())
    }

    fn experiment(&mut self, found: &ExperimentAnswer) -> Result<()> {
        let id = id(&found.experiment_id)?;
        let (name, tags) = (found.name.clone(), found.tags.clone());
        let experiment = Experiment { v: LAYOUT, id: id.to_owned(), name, tags };
        self.counts.experiments += 1;
        self.record(&format!("experiments/{id}.json"), &experiment)
    }

    /// Writes a run as it is at one moment: what is added while it is read is left out.
    async fn run(&mut self, run: &str) -> Result<()> {
        // It may have been removed in the meantime.
        let Some(RunAnswer { info, data, inputs, outputs }) = query::run(self.server, run).await? else {
            return Ok(());
        };
        let folder = format!("runs/{}", id(&info.run_id)?);
        let is_over = !matches!(info.status.as_str(), "RUNNING" | "SCHEDULED");
        let until = data.metrics.iter().map(|point| point.timestamp).max().filter(|_| !is_over).unwrap_or(i64::MAX);
        let mut points = self.open(&format!("{folder}/metrics.jsonl"))?;
        for metric in &data.metrics {
            self.points(run, &metric.key, until, &mut points).await?;
        }
        let listed = points.end()?;
        self.manifest.records.push(listed);
        let place = place_of(&info.artifact_uri);
        let artifacts = match &place {
            Some(place) => self.artifacts(place, &folder).await?,
            None => Vec::new(),
        };
        if let (None, uri) = (&place, &info.artifact_uri) {
            self.watch.warn(&format!(
                "the artifacts of run {} are not the server's and stay where they are: {}",
                info.run_id,
                printable_line(uri)
            ));
        }
        let record = Run {
            v: LAYOUT,
            id: info.run_id.clone(),
            experiment: info.experiment_id,
            name: info.run_name,
            user: info.user_id,
            status: info.status,
            start_time: info.start_time,
            end_time: info.end_time,
            params: data.params,
            tags: data.tags,
            datasets: inputs.dataset_inputs,
            model_inputs: inputs.model_inputs.into_iter().map(|input| input.model_id).collect(),
            model_outputs: outputs.model_outputs,
            artifacts_at: place.is_none().then_some(info.artifact_uri),
            artifacts,
        };
        if let Some(place) = place {
            self.places.insert(place, Owner::Run(info.run_id));
        }
        self.counts.runs += 1;
        self.record(&format!("{folder}/run.json"), &record)
    }

    async fn points(&self, run: &str, key: &str, until: i64, to: &mut Written) -> Result<()> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            metrics: Vec<Point>,
            #[serde(default)]
            next_page_token: String,
        }
        let mut token = String::new();
        for _ in 0..MOST_PAGES {
            let mut query = vec![("run_id", run), ("metric_key", key), ("max_results", POINTS)];
            if !token.is_empty() {
                query.push(("page_token", &token));
            }
            let answer: Answer = self.server.get("metrics/get-history", &query).await?;
            for point in answer.metrics.iter().filter(|point| point.timestamp <= until) {
                let line = serde_json::to_string(point).doing(ErrorKind::Internal, || "write a metric".to_owned())?;
                to.write(format!("{line}\n").as_bytes())?;
            }
            if answer.next_page_token.is_empty() {
                return Ok(());
            }
            token = answer.next_page_token;
        }
        Err(Error::new(ErrorKind::Host, format!("read the metric {}", printable_line(key))).because("it has no end"))
    }

    async fn logged_model(&mut self, found: ModelAnswer) -> Result<()> {
        let ModelAnswer { info, data } = found;
        let folder = format!("logged-models/{}", id(&info.model_id)?);
        let Some(place) = place_of(&info.artifact_uri) else {
            self.watch.warn(&format!(
                "the files of the logged model {} are not the server's; it is left out: {}",
                info.model_id,
                printable_line(&info.artifact_uri)
            ));
            return Ok(());
        };
        let artifacts = self.artifacts(&place, &folder).await?;
        let record = LoggedModel {
            v: LAYOUT,
            id: info.model_id.clone(),
            experiment: info.experiment_id,
            name: info.name,
            model_type: info.model_type,
            source_run: Some(info.source_run_id).filter(|run| !run.is_empty()),
            params: data.params,
            tags: info.tags.into_iter().filter(|tag| tag.key != OF_VERSIONS).collect(),
            metrics: data.metrics,
            artifacts,
        };
        self.places.insert(place, Owner::LoggedModel(info.model_id));
        self.counts.logged_models += 1;
        self.record(&format!("{folder}/model.json"), &record)
    }

    async fn registered(&mut self, index: usize, model: RegisteredAnswer, all: &[VersionAnswer]) -> Result<()> {
        let mut versions = Vec::new();
        for version in all.iter().filter(|version| version.name == model.name) {
            let content = self.content(index, version).await?;
            versions.push(Version {
                version: version.version,
                created: version.creation_timestamp,
                description: version.description.clone(),
                stage: version.current_stage.clone(),
                run: Some(version.run_id.clone()).filter(|run| !run.is_empty()),
                tags: version.tags.clone(),
                content,
            });
        }
        self.counts.registered_models += 1;
        self.counts.versions += versions.len();
        let RegisteredAnswer { name, description, tags, aliases } = model;
        let record = Registered { v: LAYOUT, name, description, tags, aliases, versions };
        self.record(&format!("registry/{index}/model.json"), &record)
    }

    /// Where the files of a version are; those that belong to no exported run or model are written beside it.
    async fn content(&mut self, index: usize, version: &VersionAnswer) -> Result<Content> {
        #[derive(Deserialize)]
        struct Answer {
            artifact_uri: String,
        }
        let number = version.version.to_string();
        let query = [("name", version.name.as_str()), ("version", &number)];
        let uri = match self.server.get::<Answer>("model-versions/get-download-uri", &query).await {
            Ok(answer) => answer.artifact_uri,
            // What it was made of is gone.
            Err(error) if is_absent(&error) => version.source.clone(),
            Err(error) => return Err(error),
        };
        let place = match uri.strip_prefix("runs:/").map(|rest| rest.split_once('/').unwrap_or((rest, ""))) {
            Some((run, path)) => self.of_run(run).await?.map(|place| joined(&place, path)),
            None => place_of(&uri),
        };
        let Some(place) = place else {
            let (name, number) = (printable_line(&version.name), version.version);
            let uri = printable_line(&uri);
            self.watch.warn(&format!("the files of {name} version {number} stay where they are: {uri}"));
            return Ok(Content::At(version.source.clone()));
        };
        for (owned, owner) in &self.places {
            let Some(rest) = place.strip_prefix(owned.as_str()) else { continue };
            if rest.is_empty() || rest.starts_with('/') {
                let path = rest.trim_matches('/').to_owned();
                return Ok(match owner {
                    Owner::Run(id) => Content::Run { id: id.clone(), path },
                    Owner::LoggedModel(id) => Content::LoggedModel { id: id.clone(), path },
                });
            }
        }
        Ok(Content::Own(self.artifacts(&place, &format!("registry/{index}/{number}")).await?))
    }

    /// The place of a run's artifacts, even of a deleted one.
    async fn of_run(&self, run: &str) -> Result<Option<String>> {
        Ok(query::run(self.server, run).await?.and_then(|run| place_of(&run.info.artifact_uri)))
    }

    /// Reads the artifacts at a place of the server into `artifacts/` of a folder of the export.
    async fn artifacts(&mut self, place: &str, folder: &str) -> Result<Vec<Listed>> {
        let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
        while let Some(below) = folders.pop() {
            for entry in self.server.list(&joined(place, &below)).await? {
                // A job chooses the names.
                let path = if below.is_empty() { entry.path } else { format!("{below}/{}", entry.path) };
                let is_one = local_path(&path).is_some() && path.split('/').count() <= DEPTH;
                if !is_one {
                    let shown = printable_line(&path);
                    return Err(Error::new(ErrorKind::Host, format!("export the artifact {shown}"))
                        .because("no file can have its name"));
                }
                if entry.is_dir { folders.push(path) } else { found.push(path) }
            }
        }
        let mut listed = Vec::new();
        for path in found {
            let mut file = self.open(&format!("{folder}/artifacts/{path}"))?;
            let watch = self.watch;
            let mut write = |bytes: &[u8]| {
                watch.moved(bytes.len() as u64);
                file.write(bytes)
            };
            match self.server.download(&joined(place, &path), &mut write).await {
                Ok(()) => {}
                // Deleted in the meantime.
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(error),
            }
            let file = file.end()?;
            self.counts.files += 1;
            self.counts.bytes += file.size;
            listed.push(Listed { path, ..file });
        }
        Ok(listed)
    }

    fn record(&mut self, path: &str, record: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_vec_pretty(record).doing(ErrorKind::Internal, || format!("write {path}"))?;
        let mut file = self.open(path)?;
        file.write(&text)?;
        let listed = file.end()?;
        self.manifest.records.push(listed);
        Ok(())
    }

    fn open(&self, path: &str) -> Result<Written> {
        let doing = || format!("write {path}");
        let (folder, name) = self.folder.place(Path::new(path)).doing(ErrorKind::Host, doing)?;
        let file = {
            use std::os::fd::AsFd as _;
            append(folder.as_fd(), &name, 0o600).doing(ErrorKind::Host, doing)?
        };
        Ok(Written { path: path.to_owned(), size: 0, hash: Sha256::new(), file: BufWriter::new(file) })
    }

    fn finish(mut self) -> Result<Counts> {
        let manifest = std::mem::replace(&mut self.manifest, Manifest::new(String::new(), ""));
        let text =
            serde_json::to_vec_pretty(&manifest).doing(ErrorKind::Internal, || "write the manifest".to_owned())?;
        let mut file = self.open(MANIFEST)?;
        file.write(&text)?;
        file.end()?;
        Ok(self.counts)
    }
}

/// A file that is being written.
struct Written {
    path: String,
    size: u64,
    hash: Sha256,
    file: BufWriter<std::fs::File>,
}

impl Written {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
        self.file.write_all(bytes).doing(ErrorKind::Host, || format!("write {}", self.path))
    }

    fn end(self) -> Result<Listed> {
        let Self { path, size, hash, mut file } = self;
        let done = file.flush().and_then(|()| file.get_ref().sync_data());
        done.doing(ErrorKind::Host, || format!("write {path}"))?;
        let sha256 = digest::hex(&hash.finalize());
        Ok(Listed { path, size, sha256 })
    }
}

/// An id of the server, if it can be a name in the folder.
fn id(text: &str) -> Result<&str> {
    match is_id(text) {
        true => Ok(text),
        false => Err(Error::new(ErrorKind::Host, "export from MLflow")
            .because(format!("`{}` is no id of MLflow", printable_line(text)))),
    }
}
