//! Cancels a job that waits for resources.
//!
//! Ray stops a job through the actor that runs its command, and that actor is what waits: it hears of the request once it
//! has the resources, and never if no node has them. So the actor is killed, by a short job without resources, as Ray's
//! HTTP API has no call for it.

use std::time::Duration;

use reqwest::Method;

use super::client::Client;
use super::jobs::{JobStatus, SubmitRequest, check_known_form};
use super::situation::SUPERVISOR;
use crate::error::{Error, ErrorKind, Result};
use crate::util::random;

/// The timeout for the short job: a Python that connects to Ray takes 2 to 3 s on two cores. Where processes of other
/// jobs end at their start, Ray notices each after a minute, and may let it wait behind them: `STARTS_AT_ONCE` in
/// `templates/ray-native/lifecycle.py`.
const LIMIT: Duration = Duration::from_secs(150);
/// How soon Ray notices that a job has ended: it looks every second, and asks the process first (ray 2.60.0).
const NOTICED_WITHIN: Duration = Duration::from_millis(3000);

const POLL_EVERY: Duration = Duration::from_millis(300);
/// Ray's namespace for these actors: `SUPERVISOR_ACTOR_RAY_NAMESPACE` in its `dashboard/modules/job/common.py`.
const PROGRAM: &str = "import sys, ray; ray.init(log_to_driver=False); \
     ray.kill(ray.get_actor(sys.argv[1], namespace='SUPERVISOR_ACTOR_RAY_NAMESPACE'))";

impl Client {
    /// Kills the actor of a job that waits. Ray reports the job as failed a second later.
    ///
    /// # Errors
    /// Of kind `NotFound` if Ray has no such actor: the job has ended. Of kind `Timeout` if the cluster does not run
    /// the short job in time.
    pub async fn cancel(&self, id: &str) -> Result<()> {
        let doing = format!("cancel job {id}");
        check_known_form(id, &doing)?;
        let by = format!("cancel-{}", random::letters(8)?);
        let request = SubmitRequest {
            entrypoint: format!("python -c \"{PROGRAM}\" {SUPERVISOR}{id}"),
            submission_id: Some(by.clone()),
            ..SubmitRequest::default()
        };
        self.submit(request).await?;
        let waited = tokio::time::timeout(LIMIT, async {
            loop {
                let job = self.job(&by).await?;
                if job.status.is_terminal() {
                    return Ok::<_, Error>(job);
                }
                tokio::time::sleep(POLL_EVERY).await;
            }
        });
        let Ok(ended) = waited.await else {
            let _ = self.stop(&by).await;
            return Err(
                Error::new(ErrorKind::Timeout, doing).because(format!("job {by}, which does it, has not ended"))
            );
        };
        let ended = ended?;
        self.forget(&by, &doing).await;
        if ended.status == JobStatus::Succeeded {
            return Ok(());
        }
        let why = ended.short_message().unwrap_or("no reason given").to_owned();
        let gone = ended.message.as_deref().is_some_and(|message| message.contains("Failed to look up actor"));
        Err(Error::new(if gone { ErrorKind::NotFound } else { ErrorKind::Ray }, doing).because(why))
    }

    /// Deletes the short job, which the user did not submit, once Ray has noticed its end: it would note one as failed that
    /// is deleted before, and so have it again.
    async fn forget(&self, id: &str, doing: &str) {
        tokio::time::sleep(NOTICED_WITHIN).await;
        if let Ok(request) = self.request(Method::DELETE, &format!("/api/jobs/{id}"), doing) {
            let _ = self.send(request, doing).await;
        }
    }
}
