//! `--secret` of `job submit` and `run`: what a job needs to know and nobody else.
//!
//! Ray gets a random id. The values are a file of that name on each host of the cluster, from before the submission
//! until the job has ended; the cluster's state has the ids of those that may still be there, and no value.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::commands::login::vault;
use crate::cli::target::Target;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::SECRETS;
use crate::ray::{Client, RuntimeEnv};
use crate::util::fs::{RECORD_LIMIT, read_text_within, write_atomic};
use crate::util::random;

/// How long after the delivery Ray may not know the job yet.
const SUBMITTED_WITHIN: i64 = 10 * 60;

/// The secrets of a job, by the variable that the job gets.
#[derive(Debug, Default)]
pub(super) struct JobSecrets(BTreeMap<String, SecretString>);

impl JobSecrets {
    /// Reads them from the keyring or file.
    ///
    /// # Errors
    /// When one is not stored, or two have one variable.
    pub(super) fn read(app: &App, wanted: &[(String, String)], environment: &RuntimeEnv) -> Result<Self> {
        let mut secrets = BTreeMap::new();
        for (name, variable) in wanted {
            if environment.has_variable(variable) || secrets.contains_key(variable) {
                return Err(usage("submit the job", format!("the variable {variable} is set twice")));
            }
            secrets.insert(variable.clone(), vault(app).secret(name)?);
        }
        Ok(Self(secrets))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts them on each host; the job gets the id.
    ///
    /// # Errors
    /// When a host cannot be written.
    pub(super) async fn deliver(
        &self,
        app: &App,
        target: &Target,
        job: &str,
        environment: &mut RuntimeEnv,
    ) -> Result<()> {
        let id = random::letters(24)?;
        let mut record = Record::read(target)?;
        record.jobs.insert(id.clone(), Delivered { job: job.to_owned(), at: Timestamp::now().as_second() });
        record.write(target)?;
        let values: BTreeMap<&str, &str> =
            self.0.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        let text = serde_json::to_string(&values).doing(ErrorKind::Internal, || "write the secrets".to_owned())?;
        let text = SecretString::from(text);
        target.machines(app).await?.set_job_secrets(&id, Some(&text)).await?;
        environment.set_variable(SECRETS, &id)
    }
}

/// Removes from the hosts what jobs that have ended had; a failure is a warning.
pub(crate) async fn sweep(app: &App, target: &Target, client: &Client) {
    let swept: Result<()> = async {
        let mut record = Record::read(target)?;
        if record.jobs.is_empty() {
            return Ok(());
        }
        let jobs = client.jobs().await?;
        let now = Timestamp::now().as_second();
        let is_over = |delivered: &Delivered| match jobs.iter().find(|job| job.id() == delivered.job) {
            Some(job) => job.status.is_terminal(),
            None => now - delivered.at > SUBMITTED_WITHIN,
        };
        let over: Vec<String> =
            record.jobs.iter().filter(|(_, delivered)| is_over(delivered)).map(|(id, _)| id.clone()).collect();
        for id in over {
            target.machines(app).await?.set_job_secrets(&id, None).await?;
            record.jobs.remove(&id);
            record.write(target)?;
        }
        Ok(())
    }
    .await;
    if let Err(error) = swept {
        app.ui.status(format_args!("warning: failed to {error}; the next `gpucl job` command, or `down`, does it"));
    }
}

/// What was delivered, and may still be there.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    v: u32,
    jobs: BTreeMap<String, Delivered>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Delivered {
    /// The job's id.
    job: String,
    /// When, in seconds since 1970.
    at: i64,
}

impl Record {
    fn path(target: &Target) -> PathBuf {
        target.folder().join("job_secrets.json")
    }

    fn read(target: &Target) -> Result<Self> {
        let doing = || "read which jobs have secrets".to_owned();
        match read_text_within(&Self::path(target), RECORD_LIMIT) {
            Ok(text) => serde_json::from_str(&text).doing(ErrorKind::State, doing),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self { v: 1, jobs: BTreeMap::new() }),
            Err(error) => Err(error).doing(ErrorKind::State, doing),
        }
    }

    fn write(&self, target: &Target) -> Result<()> {
        let doing = || "write which jobs have secrets".to_owned();
        let text = serde_json::to_vec(self).doing(ErrorKind::Internal, doing)?;
        write_atomic(&Self::path(target), &text, 0o600).doing(ErrorKind::State, doing)
    }
}
