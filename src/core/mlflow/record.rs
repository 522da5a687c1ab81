//! What an export's folder holds: one file of JSON for each item, and a manifest that lists them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::LAYOUT;

/// How much was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Experiments.
    pub experiments: usize,
    /// Runs.
    pub runs: usize,
    /// Logged models, which are below experiments.
    pub logged_models: usize,
    /// Registered models.
    pub registered_models: usize,
    /// Their versions.
    pub versions: usize,
    /// Artifacts, as files.
    pub files: usize,
    /// The bytes of the artifacts.
    pub bytes: u64,
    /// Runs, models and versions that were there already.
    pub there_already: usize,
}

/// The manifest. It is written last: a folder without it is no export.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) v: u32,
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The server's version.
    pub(super) mlflow: String,
    /// The cluster's name.
    pub(super) cluster: String,
    /// When it was written.
    pub(super) exported: jiff::Timestamp,
    /// The files with records, by their paths below the folder; artifacts are listed by the item that has them.
    pub(super) records: Vec<Listed>,
}

/// A file of the folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) sha256: String,
}

/// A tag or a parameter.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Pair {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: String,
}

/// An experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Experiment {
    pub(super) v: u32,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) tags: Vec<Pair>,
}

/// A run. The points of its metrics are in `metrics.jsonl` beside it, one a line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) v: u32,
    pub(super) id: String,
    pub(super) experiment: String,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) status: String,
    pub(super) start_time: i64,
    pub(super) end_time: Option<i64>,
    pub(super) params: Vec<Pair>,
    pub(super) tags: Vec<Pair>,
    /// Data sets that it read, as MLflow has them.
    pub(super) datasets: Vec<Value>,
    /// Logged models that it read.
    pub(super) model_inputs: Vec<String>,
    /// Logged models that it made.
    pub(super) model_outputs: Vec<ModelOutput>,
    /// Where its artifacts are, if they are not the server's: they are not part of the export.
    pub(super) artifacts_at: Option<String>,
    pub(super) artifacts: Vec<Listed>,
}

/// A logged model that a run made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelOutput {
    pub(super) model_id: String,
    #[serde(default)]
    pub(super) step: i64,
}

/// A point of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) key: String,
    /// A number, or `"NaN"`.
    pub(super) value: Value,
    pub(super) timestamp: i64,
    #[serde(default)]
    pub(super) step: i64,
}

/// A logged model: what `log_model` makes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LoggedModel {
    pub(super) v: u32,
    pub(super) id: String,
    pub(super) experiment: String,
    pub(super) name: String,
    pub(super) model_type: String,
    pub(super) source_run: Option<String>,
    pub(super) params: Vec<Pair>,
    pub(super) tags: Vec<Pair>,
    /// The points of its runs' metrics that are about it.
    pub(super) metrics: Vec<ModelPoint>,
    pub(super) artifacts: Vec<Listed>,
}

/// A point of a run's metric that is about a logged model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelPoint {
    pub(super) run_id: String,
    #[serde(flatten)]
    pub(super) point: Point,
}

/// A registered model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Registered {
    pub(super) v: u32,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) tags: Vec<Pair>,
    pub(super) aliases: Vec<Alias>,
    /// The versions, ascending.
    pub(super) versions: Vec<Version>,
}

/// A name for a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Alias {
    pub(super) alias: String,
    #[serde(with = "number")]
    pub(super) version: u32,
}

/// A version of a registered model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Version {
    pub(super) version: u32,
    pub(super) created: i64,
    pub(super) description: String,
    pub(super) stage: String,
    pub(super) run: Option<String>,
    pub(super) tags: Vec<Pair>,
    pub(super) content: Content,
}

/// Where the files of a version are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content {
    /// Below the artifacts of a run.
    Run {
        /// The run's id.
        id: String,
        /// The path below its artifacts.
        path: String,
    },
    /// Below those of a logged model.
    LoggedModel {
        /// The model's id.
        id: String,
        /// The path below its artifacts.
        path: String,
    },
    /// In the export, since what it belonged to is gone.
    Own(Vec<Listed>),
    /// At a place that is not the server's, which is not part of the export.
    At(String),
}

impl Manifest {
    /// The manifest's type.
    pub(super) const KIND: &str = "mlflow_export";

    /// An empty manifest, as of now.
    pub(super) fn new(mlflow: String, cluster: &str) -> Self {
        let (kind, cluster) = (Self::KIND.to_owned(), cluster.to_owned());
        Self { v: LAYOUT, kind, mlflow, cluster, exported: jiff::Timestamp::now(), records: Vec::new() }
    }
}

/// The value of a tag.
pub(super) fn tag<'a>(tags: &'a [Pair], key: &str) -> Option<&'a str> {
    tags.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str())
}

/// A version's number, which MLflow writes as text.
pub(super) mod number {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u32),
        Text(String),
    }

    pub(crate) fn serialize<S: Serializer>(number: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(*number)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(number),
            Either::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}
