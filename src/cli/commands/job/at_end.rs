//! What is said of jobs that ended because their cluster does.

use std::fmt;

use serde_json::{Value, json};

use crate::agent::JobEnd;
use crate::agent::seen::{GuardsReport, SavedHere};
use crate::cli::app::App;
use crate::cli::target::Target;
use crate::cluster;
use crate::engine::Cancel;
use crate::ray::Job;

/// What is known of the end of the cluster that jobs are on.
#[derive(Debug, Default)]
pub(crate) struct AtEnd(Option<(GuardsReport, SavedHere)>);

/// What the end has to do with how one job ended.
#[derive(Debug)]
pub(crate) struct Ended(JobEnd);

impl AtEnd {
    /// Asks the hosts, if one of the jobs has ended and the cluster has an end. If they do not answer, it is what they said
    /// last.
    pub(crate) async fn look(app: &App, target: &Target, jobs: &[Job]) -> Self {
        let has_guards =
            target.known.state.running_spec().is_some_and(|spec| spec.end.is_some() || spec.idle.is_some());
        if !has_guards || !jobs.iter().any(|job| job.status.is_terminal()) {
            return Self::default();
        }
        let look = async {
            let (_handle, cancel) = Cancel::new();
            let settings = app.settings_to_inspect(app.plain_events(), cancel)?;
            cluster::look_at_guards(&settings, &target.name).await
        };
        let seen = look.await.ok().flatten().filter(|seen| seen.guards().next().is_some());
        let seen = seen.or_else(|| GuardsReport::of(target.folder()));
        Self(seen.map(|seen| (seen, SavedHere::of(target.folder()))))
    }

    /// Of one job; `None` if the end has nothing to do with it.
    pub(crate) fn of(&self, job: &Job) -> Option<Ended> {
        let (seen, here) = self.0.as_ref().filter(|_| job.status.is_terminal())?;
        JobEnd::of(job.id(), seen, here).map(Ended)
    }

    /// Says it of a job that was followed to its end.
    pub(crate) async fn say(app: &App, target: &Target, job: &Job) {
        if let Some(end) = Self::look(app, target, std::slice::from_ref(job)).await.of(job) {
            end.say(app, job);
        }
    }
}

impl Ended {
    /// Says it on stderr, and how it goes on.
    fn say(&self, app: &App, job: &Job) {
        app.ui.status(format_args!("job {} {self}", job.id()));
        if let Some(command) = self.goes_on(job) {
            app.ui.status(format_args!("  it goes on by: {command}"));
        }
    }

    /// The command by which it goes on on another cluster, if what it goes on from was saved.
    pub(crate) fn goes_on(&self, job: &Job) -> Option<String> {
        self.0.checkpoint.as_ref()?;
        let folder = match job.environment.iter().any(|part| part == "working_dir") {
            true => " --working-dir .",
            false => "",
        };
        Some(format!("gpucl run SPEC{folder} -- {}", job.entrypoint))
    }

    /// Its JSON form: `docs/reference/json.md`.
    pub(crate) fn as_json(&self, job: &Job) -> Value {
        let mut line = json!(self.0);
        line["goes_on"] = self.goes_on(job).into();
        line
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
