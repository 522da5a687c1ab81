//! Waiting for the job: where it stands in the queue, and when waiting cannot help.

use std::time::Duration;

use jiff::tz::TimeZone;
use tokio::time::Instant;

use super::Slurm;
use super::login::Effect;
use super::names::{scope_name, scope_of};
use super::queue::{Job, is_final, words_for};
use super::resources::{ANSWER, remaining};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::name::{Scope, Tag};
use crate::provider::Outage;
use crate::util::{human, when};

/// How often the queue is looked at: at first, and after a while.
const POLLS: [Duration; 2] = [Duration::from_millis(700), Duration::from_secs(10)];
/// How long the first pause lasts.
const EARLY: Duration = Duration::from_secs(20);
/// How long the nodes of a running job may take to report.
const REPORTS_WITHIN: Duration = Duration::from_secs(180);
/// How long one reason that looks final must last: without accounting, the first job after the controller's start shows
/// one for some seconds.
const FINAL_FOR: Duration = Duration::from_secs(6);

impl Slurm {
    /// Waits until the job runs and its nodes have reported.
    pub(super) async fn wait_for_job(&self, tag: &Tag, id: &str) -> Result<()> {
        let doing = format!("wait for the job {id}");
        let limit = self.settings.queue.map_or(Duration::from_secs(24 * 3600), |limit| limit.0);
        let (begun, mut outage) = (Instant::now(), Outage::new(&self.context.events));
        let (mut reported, mut running_since, mut final_since) = (String::new(), None, None);
        let stays = |error: Error| {
            error
                .left(remaining(id))
                .hint(format!("the same `gpucl up` goes on waiting; `gpucl down -c {}` cancels it", tag.cluster))
        };
        loop {
            let is_over = || begun.elapsed() >= limit;
            if let Some(seen) = outage.outlast(self.see().await, is_over)? {
                let scope = scope_of(tag);
                let Some(job) = seen.job(tag).filter(|job| job.id == id) else {
                    let why = seen.ended(tag, id).map_or_else(|| "it is gone".to_owned(), Job::describe);
                    return Err(self.ended(&doing, &scope, why).await);
                };
                if seen.of(&scope).is_some_and(|folder| folder.nodes_of(job).is_some()) {
                    return Ok(());
                }
                let now = Instant::now();
                let runs_for =
                    running_since.filter(|_| job.runs()).map_or(Duration::ZERO, |since: Instant| now - since);
                running_since = job.runs().then(|| running_since.unwrap_or(now));
                if runs_for > REPORTS_WITHIN {
                    return Err(self.ended(&doing, &scope, "it runs, but its nodes did not report".to_owned()).await);
                }
                final_since = (job.state == "PENDING" && is_final(&job.reason)).then(|| final_since.unwrap_or(now));
                if final_since.is_some_and(|since| now - since >= FINAL_FOR) {
                    let why = format!("it would wait for ever: {}", words_for(&job.reason));
                    let error = Error::new(ErrorKind::Provider, doing).because(why);
                    return Err(error
                        .left(remaining(id))
                        .hint(format!("gpucl down -c {}, and ask for what there is: gpucl offers", tag.cluster)));
                }
                let waiting = describe_wait(job);
                if waiting != reported {
                    let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                    self.context.events.note(format!("waiting for job {id}: {waiting}"));
                    self.context.events.send(EventKind::Waiting { what: format!("job {id}"), limit_milliseconds });
                    reported = waiting;
                }
            }
            if is_over() {
                return Err(stays(
                    Error::new(ErrorKind::Timeout, doing)
                        .because(format!("it did not start within {} (`provider.queue`)", human::duration(limit))),
                ));
            }
            let pause = if begun.elapsed() < EARLY { POLLS[0] } else { POLLS[1] };
            tokio::time::sleep(pause).await;
        }
    }

    /// The error for a job that ended before its nodes reported, with the end of its log.
    async fn ended(&self, doing: &str, scope: &Scope, why: String) -> Error {
        let name = scope_name(scope);
        let show = "main() { tail -n 8 \"$base/$scope/job.log\" 2>/dev/null | sed 's/^/::log /'; }";
        let variables = [("scope", name.as_str())];
        let asked = self.login.ask("read its log", show, &variables, Effect::None, ANSWER).await;
        let log: Vec<String> = asked
            .unwrap_or_default()
            .iter()
            .filter_map(|line| line.strip_prefix("::log "))
            .map(str::to_owned)
            .collect();
        let error = Error::new(ErrorKind::Provider, doing).because(why);
        match log.is_empty() {
            true => error,
            false => error.because(format!("its log ends with: {}", log.join(" | "))),
        }
    }
}

/// Where the job stands: the reason, its place in the queue, and when Slurm expects to start it.
fn describe_wait(job: &Job) -> String {
    if job.state != "PENDING" {
        return if job.runs() { "its nodes report".to_owned() } else { job.describe() };
    }
    let mut text = words_for(&job.reason);
    if let Some((place, all)) = job.place {
        text.push_str(&format!("; {place} of {all} in its partition"));
    }
    if let Some(start) = job.start {
        text.push_str(&format!("; Slurm expects to start it at {}", when::local(start, &TimeZone::system())));
    }
    text
}
