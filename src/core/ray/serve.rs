//! Serve's applications, through its REST API on the dashboard's port: what runs, and what is to run (ray 2.60.0).
//!
//! A configuration is whole: what it does not name is deleted. It answers before an application is built; how that goes
//! is read afterwards.

use std::collections::BTreeMap;

use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{Client, whole};
use super::reason::{exception, without_colours};
use super::situation::{Demand, Situation, Wanting};
use crate::error::{Error, ErrorKind, Result};
use crate::util::digest;
use crate::util::text::shortened;

/// The path of the API.
const PATH: &str = "/api/serve/applications/";
/// The timeout of a change: the first one starts Serve.
const CHANGE_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
/// The longest part of a log that is read, in bytes.
const LOG_LIMIT: usize = 64 * 1024 * 1024;
/// The variable that marks the processes of a Serve that gpucl has started; `templates/ray-native/worker.py` reads it.
pub(super) const MARK: &str = "GPUCL_SERVE";

/// Where applications come from that were deployed by a configuration.
const DECLARATIVE: &str = "declarative";

/// What Serve runs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Serving {
    /// How its proxy listens; `None` before its first start.
    #[serde(default)]
    pub http_options: Option<HttpOptions>,
    /// The applications, by name.
    #[serde(default)]
    pub applications: BTreeMap<String, Application>,
}

/// How Serve's proxy listens. It is fixed when Serve starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpOptions {
    /// The address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// An application.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Application {
    /// Where its URLs begin; `None` if it could not be built.
    #[serde(default)]
    pub route_prefix: Option<String>,
    /// How it is.
    pub status: ApplicationStatus,
    /// Ray's message about it: a whole traceback if it could not be built.
    #[serde(default)]
    pub message: String,
    /// When it was last deployed, in seconds since 1970.
    #[serde(default)]
    pub last_deployed_time_s: f64,
    /// The configuration, as it was sent.
    #[serde(default)]
    pub deployed_app_config: Option<Value>,
    /// `declarative`, or `imperative` if a job started it with `serve.run`.
    #[serde(default)]
    pub source: String,
    /// Its deployments, by name; none while it is built, though the earlier ones still serve.
    #[serde(default)]
    pub deployments: BTreeMap<String, Deployment>,
}

/// How an application is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ApplicationStatus {
    /// It is not begun.
    NotStarted,
    /// It is built, or its replicas start.
    Deploying,
    /// It serves as it should.
    Running,
    /// It could not be built, or its replicas do not start.
    DeployFailed,
    /// Some of it fails.
    Unhealthy,
    /// It ends.
    Deleting,
    /// A word of another Ray.
    #[serde(other)]
    Other,
}

/// A deployment of an application.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Deployment {
    /// Ray's word for how it is: `HEALTHY`, `UPDATING`.
    pub status: String,
    /// Ray's message about it.
    #[serde(default)]
    pub message: String,
    /// How many replicas it should have.
    #[serde(default)]
    pub target_num_replicas: u32,
    /// What each replica takes.
    #[serde(default)]
    pub required_resources: BTreeMap<String, f64>,
    /// Its replicas.
    #[serde(default)]
    pub replicas: Vec<Replica>,
    /// Those that ended last.
    #[serde(default)]
    pub recent_dead_replicas: Vec<Replica>,
}

/// A replica. What is not known before it has a place is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// Its id within the deployment.
    pub replica_id: String,
    /// Ray's word for how it is: `RUNNING`, `STARTING`.
    pub state: String,
    /// Ray's id of its node.
    #[serde(default)]
    pub node_id: Option<String>,
    /// Its process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Its log, below the node's folder of logs.
    #[serde(default)]
    pub log_file_path: Option<String>,
}

impl Application {
    /// Whether nothing more is to come of it by itself.
    pub fn is_over(&self) -> bool {
        !matches!(
            self.status,
            ApplicationStatus::NotStarted | ApplicationStatus::Deploying | ApplicationStatus::Deleting
        )
    }

    /// Whether a configuration deployed it, and not a job.
    pub fn is_declared(&self) -> bool {
        self.source == DECLARATIVE
    }

    /// How many of its replicas serve.
    pub fn running_replicas(&self) -> usize {
        self.deployments.values().map(Deployment::running).sum()
    }

    /// Whether this is its configuration. Serve may give a number back in another form.
    pub fn has(&self, configuration: &Value) -> bool {
        self.deployed_app_config.as_ref().is_some_and(|is| is_same(is, configuration))
    }

    /// The parts of its runtime environment that take time to set up.
    fn slow_parts(&self) -> Vec<&'static str> {
        let environment = self.deployed_app_config.as_ref().and_then(|config| config.get("runtime_env"));
        let has = |part: &&&str| environment.and_then(|parts| parts.get(**part)).is_some_and(|part| !part.is_null());
        ["conda", "image_uri", "pip", "uv"].iter().filter(has).copied().collect()
    }

    /// Why it does not serve, in one sentence: the cause of its own error, or what Ray says of a deployment.
    pub fn why(&self) -> Option<String> {
        let of_deployments = self.deployments.iter().filter(|(_, one)| !one.message.trim().is_empty());
        let slow = self.slow_parts();
        let of_deployments =
            of_deployments.map(|(name, one)| match one.message.contains(NO_PLACE_YET) && !slow.is_empty() {
                true => format!("deployment {name}: its runtime environment is being set up: {}", slow.join(", ")),
                false => format!("deployment {name}: {}", cause(&one.message)),
            });
        let all: Vec<String> = of_deployments.collect();
        match (all.is_empty(), self.message.trim().is_empty()) {
            (false, _) => Some(all.join("; ")),
            (true, false) => Some(cause(&self.message)),
            (true, true) => None,
        }
    }
}

impl Deployment {
    /// How many of its replicas serve.
    pub fn running(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.state == "RUNNING").count()
    }

    /// Whether a replica of it waits for a place.
    fn waits(&self) -> bool {
        self.replicas.iter().any(|replica| replica.state == "STARTING" && replica.node_id.is_none())
    }
}

/// Whether two values are the same, with `1` and `1.0` as one number.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| is_same(one, other)))
        }
        _ => one == other,
    }
}

/// The cause in a message of Ray: the exception of a traceback, or what is said first.
fn cause(message: &str) -> String {
    let plain = without_colours(message);
    let lines: Vec<&str> = plain.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if plain.contains("Traceback") {
        let last = || shortened(lines.last().copied().unwrap_or_default());
        return exception(&plain).unwrap_or_else(last);
    }
    shortened(lines.first().copied().unwrap_or_default())
}

/// What Ray says of replicas without a place, whatever they wait for.
const NO_PLACE_YET: &str = "to be scheduled. This may be due to";

/// The key to the applications, made of the cluster's token: `templates/ray-native/serving.py` makes the same.
pub fn serve_key(token: &SecretString) -> SecretString {
    SecretString::from(digest::whole(format!("key to applications of {}", token.expose_secret().trim()).as_bytes()))
}

impl Client {
    /// Asks what Serve runs.
    ///
    /// # Errors
    /// If Ray does not answer.
    pub async fn serving(&self) -> Result<Serving> {
        self.read(PATH, "ask Serve for its applications").await
    }

    /// Makes these all the applications that were deployed like this. Serve is started with a proxy that listens there,
    /// in the head, if it does not run.
    ///
    /// # Errors
    /// If Ray does not answer or refuses it.
    pub async fn serve(&self, applications: &[Value], listens: &HttpOptions) -> Result<()> {
        let doing = "deploy to Serve";
        let body = json!({
            "proxy_location": "HeadOnly",
            "http_options": listens,
            // The proxy is a child of the controller, and has its variables.
            "controller_options": {"runtime_env": {"env_vars": {MARK: "1"}}},
            "applications": applications,
        });
        let request = self.request(Method::PUT, PATH, doing)?.json(&body).timeout(CHANGE_LIMIT);
        self.send(request, doing).await.map(|_| ())
    }

    /// Reads what surrounds an application whose replicas wait for a place; `None` if none does.
    ///
    /// # Errors
    /// If Ray does not answer.
    pub async fn waiting(&self, application: &Application) -> Result<Option<Situation>> {
        let waiting = application.deployments.iter().filter(|(_, deployment)| deployment.waits());
        let demands: Vec<Demand> = waiting
            .map(|(name, deployment)| Demand {
                by: Wanting::Replica(name.clone()),
                bundles: vec![deployment.required_resources.clone()],
                labels: BTreeMap::new(),
            })
            .collect();
        if demands.is_empty() {
            return Ok(None);
        }
        self.situation_of(demands).await.map(Some)
    }

    /// Ends Serve and all its applications.
    ///
    /// # Errors
    /// If Ray does not answer.
    pub async fn end_serving(&self) -> Result<()> {
        let doing = "end Serve";
        self.send(self.request(Method::DELETE, PATH, doing)?.timeout(CHANGE_LIMIT), doing).await.map(|_| ())
    }

    /// Reads the last lines of a replica's log.
    ///
    /// # Errors
    /// If it has none yet, or Ray does not answer.
    pub async fn replica_log(&self, replica: &Replica, lines: usize) -> Result<String> {
        let doing = format!("read the log of the replica {}", replica.replica_id);
        let none = || Error::new(ErrorKind::NotFound, doing.clone()).because("it has none yet");
        let node = replica.node_id.as_ref().ok_or_else(none)?;
        let file = replica.log_file_path.as_ref().ok_or_else(none)?.trim_start_matches('/');
        let path = format!("/api/v0/logs/file?node_id={node}&filename={file}&lines={lines}");
        let text = whole(self.read_answer(&path, &doing).await?, LOG_LIMIT, &doing).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application_of(json: Value) -> Application {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_reason_is_the_applications_own_error() {
        let text = "Deploying app 'x' failed with exception:\n\u{1b}[36mray::build()\u{1b}[39m\nTraceback (most recent call last):\n  \
                    File \"a.py\", line 1\nModuleNotFoundError: No module named 'nothere'\n";
        let failed = application_of(json!({"status": "DEPLOY_FAILED", "message": text, "route_prefix": null}));
        assert!(failed.is_over());
        assert_eq!(failed.why().unwrap(), "ModuleNotFoundError: No module named 'nothere'");
        let deployment = json!({"status": "DEPLOY_FAILED", "message": "The deployment failed to start 3 times in a row.\n\
                                Traceback:\nValueError: no weights here", "replicas": [{"replica_id": "a", "state": "STARTING"}]});
        let message = "Failed to update the deployments ['Fails'].";
        let failed = application_of(
            json!({"status": "DEPLOY_FAILED", "message": message, "deployments": {"Fails": deployment}}),
        );
        assert_eq!(failed.why().unwrap(), "deployment Fails: ValueError: no weights here");
        // As a constructor's error is quoted (ray 2.60.0).
        let message = "The deployment failed to start 3 times in a row. See controller logs for details. Error:\n\
            \u{1b}[36mray::ServeReplica:bad:Food.initialize_and_get_metadata()\u{1b}[39m (pid=1, ip=127.0.0.1)\n  \
            File \"a/replica.py\", line 1928, in initialize\nRuntimeError: Traceback (most recent call last):\n  \
            File \"bad.py\", line 6, in __init__\n    ^^^^^\n\
            mlflow.exceptions.RestException: RESOURCE_DOES_NOT_EXIST: Registered Model with name=nothere not found";
        let deployment = json!({"status": "DEPLOY_FAILED", "message": message});
        let failed = application_of(json!({"status": "DEPLOY_FAILED", "deployments": {"Food": deployment}}));
        let why = "deployment Food: mlflow.exceptions.RestException: RESOURCE_DOES_NOT_EXIST: Registered Model with \
                   name=nothere not found";
        assert_eq!(failed.why().unwrap(), why);
        let message = "Deployment 'Food' has 1 replicas that have taken more than 30s to be scheduled. This may be due to waiting";
        let deployment = json!({"status": "UPDATING", "message": message});
        let config = json!({"runtime_env": {"pip": ["six"]}});
        let waits = application_of(
            json!({"status": "DEPLOYING", "deployments": {"Food": deployment}, "deployed_app_config": config}),
        );
        assert_eq!(waits.why().unwrap(), "deployment Food: its runtime environment is being set up: pip");
        assert_eq!(application_of(json!({"status": "RUNNING"})).why(), None);
        assert_eq!(application_of(json!({"status": "A_NEW_WORD"})).status, ApplicationStatus::Other);
    }

    /// As `templates/ray-native/serving.py` makes it of the same file.
    #[test]
    fn the_key_is_made_of_the_token() {
        let key = serve_key(&SecretString::from("token\n".to_owned()));
        assert_eq!(key.expose_secret(), "a77d7ea2c244dfc3b07eab805725221b555cdbe463b644f3bc243c93116240aa");
    }
}
