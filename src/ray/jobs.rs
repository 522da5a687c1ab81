//! Jobs: submit, look, stop, and what their end means.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::client::{Client, decode, error_text, refused, transport};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::util::random;

/// How long the job agent may take to accept a job.
const SUBMIT_LIMIT: Duration = Duration::from_secs(60);
/// How long after a lost answer Ray is asked whether it accepted the job.
const LOST_ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The metadata by which we know a job as ours when the answer to its submission was lost.
const REQUEST_KEY: &str = "gpucl_request";

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// It waits for its environment or for resources.
    Pending,
    /// Its command runs.
    Running,
    /// It was stopped.
    Stopped,
    /// Its command exited with 0.
    Succeeded,
    /// Its command failed, or could not be begun.
    Failed,
}

impl JobStatus {
    /// It will not change any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Stopped | Self::Succeeded | Self::Failed)
    }

    /// Ray's word for it.
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

/// A job, as Ray tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// `SUBMISSION` for what was submitted, `DRIVER` for a program that connected by itself.
    #[serde(rename = "type")]
    pub kind: String,
    /// The id that it was submitted with.
    pub submission_id: Option<String>,
    /// The id that Ray's core gave it, once it connected.
    pub job_id: Option<String>,
    /// Where it stands.
    pub status: JobStatus,
    /// Its command.
    pub entrypoint: String,
    /// What Ray says of it.
    #[serde(default)]
    pub message: Option<String>,
    /// What kind of failure it was.
    #[serde(default)]
    pub error_type: Option<String>,
    /// When it was submitted, in milliseconds since 1970.
    #[serde(default)]
    pub start_time: Option<i64>,
    /// When it ended, in milliseconds since 1970.
    #[serde(default)]
    pub end_time: Option<i64>,
    /// What its submitter noted.
    #[serde(default)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// The node that its command runs on.
    #[serde(default)]
    pub driver_node_id: Option<String>,
    /// How its command exited; below zero, the signal that ended it.
    #[serde(default)]
    pub driver_exit_code: Option<i32>,
}

impl Job {
    /// The id a person uses.
    pub fn id(&self) -> &str {
        self.submission_id.as_deref().or(self.job_id.as_deref()).unwrap_or("?")
    }

    /// Somebody submitted it; else it is a program that connected by itself, as `gpucl verify` does.
    pub fn was_submitted(&self) -> bool {
        self.submission_id.is_some()
    }

    /// When it was submitted.
    pub fn started(&self) -> Option<jiff::Timestamp> {
        self.start_time.filter(|at| *at > 0).and_then(|at| jiff::Timestamp::from_millisecond(at).ok())
    }

    /// How long it took; until `now` while it goes on.
    pub fn lasted(&self, now: jiff::Timestamp) -> Option<Duration> {
        let start = self.start_time.filter(|at| *at > 0)?;
        let end = self.end_time.filter(|at| *at > 0).unwrap_or_else(|| now.as_millisecond());
        u64::try_from(end - start).ok().map(Duration::from_millis)
    }

    /// What Ray says of it, on one line.
    pub fn short_message(&self) -> Option<&str> {
        self.message.as_deref().and_then(|text| text.lines().find(|line| !line.trim().is_empty())).map(str::trim)
    }
}

/// The exit status that stands for how a job ended: its command's own where there is one.
pub fn exit_code(status: JobStatus, driver_exit_code: Option<i32>) -> u8 {
    match (status, driver_exit_code) {
        (JobStatus::Succeeded, _) => 0,
        (JobStatus::Failed, Some(code @ 1..=255)) => u8::try_from(code).unwrap_or(1),
        // A signal, as a shell would tell it.
        (JobStatus::Failed, Some(code @ -64..=-1)) => u8::try_from(128 - code).unwrap_or(1),
        _ => 1,
    }
}

/// What is to run, and how.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SubmitRequest {
    /// The line for the shell.
    pub entrypoint: String,
    /// The id; one is made when it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<String>,
    /// The runtime environment, its local folders already uploaded.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub runtime_env: serde_json::Map<String, serde_json::Value>,
    /// What is noted on the job.
    pub metadata: BTreeMap<String, String>,
    /// How many CPUs the command itself takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint_num_cpus: Option<f64>,
    /// How many GPUs the command itself takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint_num_gpus: Option<f64>,
}

/// Checks an id that somebody chose: it becomes part of an address and of a file's name.
///
/// # Errors
/// When it holds anything but letters, digits, `.`, `_` and `-`, or is too long.
pub fn check_id(id: &str) -> Result<()> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if !id.is_empty() && id.len() <= 128 && id.chars().all(allowed) && !id.starts_with('.') {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Usage, format!("use `{id}` as a job's id"))
        .because("an id has 1 to 128 of the characters A-Z a-z 0-9 . _ - and does not begin with a dot"))
}

impl Client {
    /// Submits a job and hands back its id. A lost answer is not a lost job: Ray is asked whether it has it.
    ///
    /// # Errors
    /// When Ray refuses it, or has a job of that id.
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
                return Err(error.hint("whether it was submitted is not known: `gpucl job list`"));
            }
        };
        let status = answer.status();
        if status.is_success() {
            return Ok(id);
        }
        let text = error_text(answer).await;
        if text.contains("already exists") {
            return Err(Error::new(ErrorKind::Usage, doing)
                .because("a job of that id exists already")
                .hint(format!("choose another --id, or look at it: `gpucl job status {id}`")));
        }
        // Not a read: trying again is the person's decision.
        Err(refused(&doing, status, &text).status(Status::Permanent))
    }

    /// Whether a submission whose answer was lost reached Ray.
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
    /// Of kind `NotFound` when Ray does not know it.
    pub async fn job(&self, id: &str) -> Result<Job> {
        let doing = format!("read job {id}");
        check_known_form(id, &doing)?;
        self.read(&format!("/api/jobs/{id}"), &doing).await
    }

    /// Lists all jobs, oldest first.
    ///
    /// # Errors
    /// When Ray does not answer or refuses the token.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        let mut jobs: Vec<Job> = self.read("/api/jobs/", "list the jobs").await?;
        jobs.sort_by(|a, b| (a.start_time, a.id()).cmp(&(b.start_time, b.id())));
        Ok(jobs)
    }

    /// Asks Ray to stop a job; says whether there was something to stop. It is stopped a few seconds later.
    ///
    /// # Errors
    /// Of kind `NotFound` when Ray does not know it.
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

/// An id that Ray cannot have is not put into an address.
pub(super) fn check_known_form(id: &str, doing: &str) -> Result<()> {
    check_id(id).map_err(|_| Error::new(ErrorKind::NotFound, doing).because("no job can have such an id"))
}
