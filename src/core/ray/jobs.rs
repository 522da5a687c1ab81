//! Jobs: submit, read, stop, and the exit code of an ended one.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::client::{Client, decode, error_text, refused, transport};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::util::random;

/// The timeout for the job agent to accept a job.
const SUBMIT_LIMIT: Duration = Duration::from_secs(60);
/// How long to ask Ray whether it accepted the job after a lost answer.
const LOST_ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The metadata key that identifies our job if the answer to its submission was lost.
const REQUEST_KEY: &str = "gpucl_request";

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// It waits for its runtime environment or for resources.
    Pending,
    /// Its command runs.
    Running,
    /// It was stopped.
    Stopped,
    /// Its command exited with 0.
    Succeeded,
    /// Its command failed or could not be started.
    Failed,
}

impl JobStatus {
    /// Whether it is final.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Stopped | Self::Succeeded | Self::Failed)
    }

    /// Ray's name for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Stopped => "STOPPED",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }
}

/// A job, as reported by Ray.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// `SUBMISSION` for a submitted job, `DRIVER` for a program that connected directly.
    #[serde(rename = "type")]
    pub kind: String,
    /// The id of a submitted job.
    pub submission_id: Option<String>,
    /// The id from Ray's core, once it has connected.
    pub job_id: Option<String>,
    /// The job's status.
    pub status: JobStatus,
    /// The job's command.
    pub entrypoint: String,
    /// Ray's message about the job.
    #[serde(default)]
    pub message: Option<String>,
    /// Ray's type of the failure.
    #[serde(default)]
    pub error_type: Option<String>,
    /// When it was submitted, in milliseconds since 1970.
    #[serde(default)]
    pub start_time: Option<i64>,
    /// When it ended, in milliseconds since 1970.
    #[serde(default)]
    pub end_time: Option<i64>,
    /// The metadata given at submission.
    #[serde(default)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// The parts of its runtime environment, by name only: the values may be private.
    #[serde(default, rename = "runtime_env", deserialize_with = "names", skip_serializing)]
    pub environment: Vec<String>,
    /// The node that its command runs on.
    #[serde(default)]
    pub driver_node_id: Option<String>,
    /// The exit code of its command; negative for the signal that ended it.
    #[serde(default)]
    pub driver_exit_code: Option<i32>,
}

impl Job {
    /// The id shown to users: the submission id, else the job id.
    pub fn id(&self) -> &str {
        self.submission_id.as_deref().or(self.job_id.as_deref()).unwrap_or("?")
    }

    /// Whether it was submitted; else it is a program that connected directly, as `gpucl verify` does.
    pub fn was_submitted(&self) -> bool {
        self.submission_id.is_some()
    }

    /// When it was submitted.
    pub fn started(&self) -> Option<jiff::Timestamp> {
        self.start_time.filter(|at| *at > 0).and_then(|at| jiff::Timestamp::from_millisecond(at).ok())
    }

    /// When it ended.
    pub fn ended(&self) -> Option<jiff::Timestamp> {
        self.end_time.filter(|at| *at > 0).and_then(|at| jiff::Timestamp::from_millisecond(at).ok())
    }

    /// How long it took, or has taken up to `now` if it has not ended.
    pub fn lasted(&self, now: jiff::Timestamp) -> Option<Duration> {
        let start = self.start_time.filter(|at| *at > 0)?;
        let end = self.end_time.filter(|at| *at > 0).unwrap_or_else(|| now.as_millisecond());
        u64::try_from(end - start).ok().map(Duration::from_millis)
    }

    /// The first non-empty line of Ray's message.
    pub fn short_message(&self) -> Option<&str> {
        self.message.as_deref().and_then(|text| text.lines().find(|line| !line.trim().is_empty())).map(str::trim)
    }
}

/// The exit code for an ended job: its command's own, if there is one.
pub fn exit_code(status: JobStatus, driver_exit_code: Option<i32>) -> u8 {
    match (status, driver_exit_code) {
        (JobStatus::Succeeded, _) => 0,
        (JobStatus::Failed, Some(code @ 1..=255)) => u8::try_from(code).unwrap_or(1),
        // A signal, as shells report it: 128 plus its number.
        (JobStatus::Failed, Some(code @ -64..=-1)) => u8::try_from(128 - code).unwrap_or(1),
        _ => 1,
    }
}

/// A job to submit.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SubmitRequest {
    /// The command line for the shell.
    pub entrypoint: String,
    /// The id; generated if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<String>,
    /// The runtime environment, with local folders already uploaded.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub runtime_env: serde_json::Map<String, serde_json::Value>,
    /// Metadata to store with the job.
    pub metadata: BTreeMap<String, String>,
    /// The number of CPUs reserved for the command itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint_num_cpus: Option<f64>,
    /// The number of GPUs reserved for the command itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint_num_gpus: Option<f64>,
    /// The memory reserved for the command itself, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint_memory: Option<u64>,
    /// The custom resources reserved for the command itself, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub entrypoint_resources: BTreeMap<String, f64>,
    /// The labels of the node that the command itself runs on, as Ray's selectors.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub entrypoint_label_selector: BTreeMap<String, String>,
}

/// Keeps only the names of a mapping, which may be null.
fn names<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    let parts = Option::<BTreeMap<String, serde::de::IgnoredAny>>::deserialize(deserializer)?;
    Ok(parts.unwrap_or_default().into_keys().collect())
}

/// Validates a job id chosen by a user, which becomes part of a URL and of a file name.
///
/// # Errors
/// If it is empty, longer than 128 characters, begins with a dot, or has others than letters, digits, `.`, `_` and `-`.
pub fn check_id(id: &str) -> Result<()> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if !id.is_empty() && id.len() <= 128 && id.chars().all(allowed) && !id.starts_with('.') {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Usage, format!("use `{id}` as a job's id"))
        .because("an id takes 1 to 128 characters of A-Z a-z 0-9 . _ - and must not begin with a dot"))
}

impl Client {
    /// Submits a job and returns its id. If the answer is lost, asks Ray whether it has the job.
    ///
    /// # Errors
    /// If Ray refuses it or has a job with this id.
    pub async fn submit(&self, mut request: SubmitRequest) -> Result<String> {
        let id = match request.submission_id.take() {
            Some(id) => {
                check_id(&id)?;
                id
            }
            None => format!("job-{}", random::letters(8)?),
        };
        let mark = random::letters(16)?;
        request.submission_id = Some(id.clone());
        request.metadata.insert(REQUEST_KEY.to_owned(), mark.clone());
        let doing = format!("submit job {id}");
        let http = self.request(Method::POST, "/api/jobs/", &doing)?.json(&request).timeout(SUBMIT_LIMIT);
        let answer = match http.send().await {
            Ok(answer) => answer,
            Err(lost) => {
                let error = transport(&doing, self.base(), &lost).status(Status::Permanent);
                // Without a connection nothing was sent.
                if lost.is_connect() {
                    return Err(error);
                }
                if self.arrived(&id, &mark).await {
                    return Ok(id);
                }
                return Err(error.hint("it may have been submitted; check: `gpucl job list`"));
            }
        };
        let status = answer.status();
        if status.is_success() {
            return Ok(id);
        }
        let text = error_text(answer).await;
        if text.contains("already exists") {
            return Err(Error::new(ErrorKind::Usage, doing)
                .because("a job with this id already exists")
                .hint(format!("choose another --submission-id, or see the existing one: `gpucl job status {id}`")));
        }
        // Not a read: a retry is the user's decision.
        Err(refused(&doing, status, &text).status(Status::Permanent))
    }

    /// Whether a submission whose answer was lost arrived at Ray.
    async fn arrived(&self, id: &str, mark: &str) -> bool {
        let until = tokio::time::Instant::now() + LOST_ANSWER_LIMIT;
        loop {
            match self.job(id).await {
                Ok(job) => {
                    return job.metadata.and_then(|notes| notes.get(REQUEST_KEY).map(|found| found == mark))
                        == Some(true);
                }
                Err(_) if tokio::time::Instant::now() < until => tokio::time::sleep(Duration::from_millis(500)).await,
                Err(_) => return false,
            }
        }
    }

    /// Reads one job.
    ///
    /// # Errors
    /// Of kind `NotFound` if Ray does not know it.
    pub async fn job(&self, id: &str) -> Result<Job> {
        let doing = format!("read job {id}");
        check_known_form(id, &doing)?;
        self.read(&format!("/api/jobs/{id}"), &doing).await
    }

    /// Lists all jobs, oldest first.
    ///
    /// # Errors
    /// If Ray does not answer or refuses the token.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        let mut jobs: Vec<Job> = self.read("/api/jobs/", "list the jobs").await?;
        jobs.sort_by(|a, b| (a.start_time, a.id()).cmp(&(b.start_time, b.id())));
        Ok(jobs)
    }

    /// Asks Ray to stop a job; returns whether there was something to stop. It stops a few seconds later.
    ///
    /// # Errors
    /// Of kind `NotFound` if Ray does not know it.
    pub async fn stop(&self, id: &str) -> Result<bool> {
        #[derive(Deserialize)]
        struct Stopped {
            stopped: bool,
        }
        let doing = format!("stop job {id}");
        check_known_form(id, &doing)?;
        let request = self.request(Method::POST, &format!("/api/jobs/{id}/stop"), &doing)?.timeout(SUBMIT_LIMIT);
        let stopped: Stopped = decode(self.send(request, &doing).await?, &doing).await?;
        Ok(stopped.stopped)
    }
}

/// Refuses ids that Ray cannot have, before they become part of a URL.
pub(super) fn check_known_form(id: &str, doing: &str) -> Result<()> {
    check_id(id).map_err(|_| Error::new(ErrorKind::NotFound, doing).because("this is not a valid job id"))
}
