//! Registered models of an export: which versions are missing on a server, and which numbers they get.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ORIGIN_VERSION;
use super::client::Server;
use super::copying::{ExperimentMade, Reader, RunMade};
use super::query;
use super::record::{Content, Pair, Registered, Version, number, tag};
use crate::error::{Error, ErrorKind, Result};
use crate::util::text::printable_line;

/// The experiment for the files of versions whose runs are gone.
const EXPERIMENT: &str = "imported versions";

/// What an import may do.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions {
    /// Versions whose numbers are taken get new ones, instead of a refusal.
    pub add_versions: bool,
}

/// The versions to make, decided before anything is changed.
pub(super) struct Plan<'a> {
    models: Vec<Missing<'a>>,
    there_already: usize,
}

/// The missing versions of a model.
struct Missing<'a> {
    folder: &'a str,
    model: &'a Registered,
    is_new: bool,
    /// The highest number that the server's model has.
    highest: u32,
    aliases: BTreeSet<String>,
    versions: Vec<&'a Version>,
    keeps_numbers: bool,
}

#[derive(Deserialize)]
struct Made {
    model_version: MadeVersion,
}

#[derive(Deserialize)]
struct MadeVersion {
    #[serde(with = "number")]
    version: u32,
}

impl<'a> Plan<'a> {
    /// Compares the registered models of an export with those of a server.
    ///
    /// # Errors
    /// If a version cannot keep its number, unless it may get another one.
    pub(super) async fn new(
        server: &Server,
        registered: &'a [(String, Registered)],
        options: ImportOptions,
    ) -> Result<Self> {
        let models = query::registered(server).await?;
        let aliases: BTreeMap<String, BTreeSet<String>> = models
            .into_iter()
            .map(|model| (model.name, model.aliases.into_iter().map(|alias| alias.alias).collect()))
            .collect();
        let mut found: BTreeMap<String, (u32, BTreeSet<String>)> = BTreeMap::new();
        for version in query::versions(server).await? {
            let own = identity(&version.tags, version.version, version.creation_timestamp);
            let (highest, there) = found.entry(version.name).or_default();
            *highest = version.version.max(*highest);
            there.insert(own);
        }
        let mut plan = Self { models: Vec::new(), there_already: 0 };
        for (folder, model) in registered {
            let (highest, there) = found.remove(&model.name).unwrap_or_default();
            let is_there = |version: &&Version| there.contains(&of(version));
            let (old, versions): (Vec<&Version>, Vec<&Version>) = model.versions.iter().partition(is_there);
            plan.there_already += old.len();
            let keeps_numbers = versions.iter().all(|version| version.version > highest);
            if !keeps_numbers && !options.add_versions {
                let name = printable_line(&model.name);
                let taken = versions.iter().map(|one| one.version).filter(|number| *number <= highest);
                let taken: Vec<String> = taken.map(|number| number.to_string()).collect();
                return Err(Error::new(ErrorKind::Usage, format!("import the registered model {name}"))
                    .because(format!(
                        "the registry has a {name} of its own, up to version {highest}, so that versions of the export \
                         cannot keep their numbers: {}; nothing was changed",
                        taken.join(", ")
                    ))
                    .hint("add --add-versions to give them new numbers; or rename the model there"));
            }
            plan.models.push(Missing {
                folder,
                model,
                is_new: !aliases.contains_key(&model.name),
                highest,
                aliases: aliases.get(&model.name).cloned().unwrap_or_default(),
                versions,
                keeps_numbers,
            });
        }
        Ok(plan)
    }

    /// Makes what is missing.
    pub(super) async fn carry_out(self, reader: &mut Reader<'_>) -> Result<()> {
        reader.counts.there_already += self.there_already;
        for missing in self.models {
            missing.carry_out(reader).await?;
        }
        Ok(())
    }
}

impl Missing<'_> {
    async fn carry_out(self, reader: &mut Reader<'_>) -> Result<()> {
        let name = &self.model.name;
        reader.watch.doing(&format!("registered model {}", printable_line(name)));
        if self.is_new {
            let what = json!({"name": name, "description": self.model.description, "tags": self.model.tags});
            reader.server.set("registered-models/create", &what).await?;
            reader.counts.registered_models += 1;
        }
        let mut last = self.highest;
        for version in &self.versions {
            let (source, run) = self.source(reader, version).await?;
            // Numbers of versions that were deleted are used up, and no number is given twice.
            while self.keeps_numbers && last + 1 < version.version {
                last = self.make(reader, version, &source, run.as_deref(), &[]).await?;
                self.delete(reader, last).await?;
            }
            let own = tag(&version.tags, ORIGIN_VERSION).is_none();
            let origin = Pair { key: ORIGIN_VERSION.to_owned(), value: of(version) };
            let tags: Vec<Pair> = version.tags.iter().cloned().chain(own.then_some(origin)).collect();
            last = self.make(reader, version, &source, run.as_deref(), &tags).await?;
            if self.keeps_numbers && last != version.version {
                self.delete(reader, last).await?;
                let shown = printable_line(name);
                return Err(Error::new(ErrorKind::Usage, format!("import {shown} version {}", version.version))
                    .because(format!(
                        "the registry gives it the number {last}, since it has deleted versions of {shown}"
                    ))
                    .hint("add --add-versions to give it a new number; or rename the model there"));
            }
            reader.counts.versions += 1;
            if !matches!(version.stage.as_str(), "" | "None") {
                let what = json!({"name": name, "version": last.to_string(), "stage": version.stage,
                    "archive_existing_versions": false});
                reader.server.set("model-versions/transition-stage", &what).await?;
            }
            let aliases = self.model.aliases.iter().filter(|alias| alias.version == version.version);
            for alias in aliases.filter(|alias| !self.aliases.contains(&alias.alias)) {
                let what = json!({"name": name, "alias": alias.alias, "version": last.to_string()});
                reader.server.set("registered-models/alias", &what).await?;
            }
        }
        Ok(())
    }

    async fn make(
        &self,
        reader: &Reader<'_>,
        version: &Version,
        source: &str,
        run: Option<&str>,
        tags: &[Pair],
    ) -> Result<u32> {
        let mut what = json!({"name": self.model.name, "source": source, "tags": tags});
        if let Some(run) = run {
            what["run_id"] = run.into();
        }
        if !version.description.is_empty() {
            what["description"] = version.description.clone().into();
        }
        if let Some(model) = source.strip_prefix("models:/").filter(|id| id.starts_with("m-")) {
            what["model_id"] = model.into();
        }
        let made: Made = reader.server.change(Method::POST, "model-versions/create", &what).await?;
        Ok(made.model_version.version)
    }

    async fn delete(&self, reader: &Reader<'_>, number: u32) -> Result<()> {
        let what = json!({"name": self.model.name, "version": number.to_string()});
        reader.server.change::<Value>(Method::DELETE, "model-versions/delete", &what).await.map(drop)
    }

    /// Where the files of a version are on the server, and the run that it is of.
    async fn source(&self, reader: &mut Reader<'_>, version: &Version) -> Result<(String, Option<String>)> {
        let copies = &reader.copies;
        let run = version.run.as_ref().and_then(|run| copies.runs.get(run)).map(|(id, _)| id.clone());
        let uri = |place: &str, path: &str| format!("mlflow-artifacts:/{}", query::joined(place, path));
        let absent = || Error::new(ErrorKind::Internal, "find the files of a version");
        Ok(match &version.content {
            Content::Run { id, path } => {
                let (run, place) = copies.runs.get(id).ok_or_else(absent)?;
                (uri(place, path), Some(run.clone()))
            }
            Content::LoggedModel { id, path } => {
                let (model, place) = copies.logged_models.get(id).ok_or_else(absent)?;
                (if path.is_empty() { format!("models:/{model}") } else { uri(place, path) }, run)
            }
            Content::At(uri) => (uri.clone(), run),
            Content::Own(files) => {
                // The registry takes files only of a run or a logged model: these get a run for themselves.
                let experiments = query::experiments(reader.server, "ACTIVE_ONLY").await?;
                let there = experiments.into_iter().find(|one| one.name == EXPERIMENT).map(|one| one.experiment_id);
                let experiment = match there {
                    Some(id) => id,
                    None => {
                        let what = json!({"name": EXPERIMENT});
                        let made: ExperimentMade =
                            reader.server.change(Method::POST, "experiments/create", &what).await?;
                        made.experiment_id
                    }
                };
                let run_name = format!("{} version {}", self.model.name, version.version);
                let what = json!({"experiment_id": experiment, "run_name": run_name, "start_time": version.created});
                let made: RunMade = reader.server.change(Method::POST, "runs/create", &what).await?;
                let id = made.run.info.run_id;
                let place = reader.place(&made.run.info.artifact_uri)?;
                reader.artifacts(&format!("{}/{}", self.folder, version.version), files, &place).await?;
                let what = json!({"run_id": id, "status": "FINISHED", "end_time": version.created});
                reader.server.set("runs/update", &what).await?;
                (uri(&place, ""), Some(id))
            }
        })
    }
}

/// What a version is a copy of: its number and its time where it was made first.
fn identity(tags: &[Pair], number: u32, created: i64) -> String {
    tag(tags, ORIGIN_VERSION).map_or_else(|| format!("{number} of {created}"), str::to_owned)
}

fn of(version: &Version) -> String {
    identity(&version.tags, version.version, version.created)
}
