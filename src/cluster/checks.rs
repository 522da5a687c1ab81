//! The results of checks, and what they mean together.

use std::collections::BTreeMap;

use crate::cluster::outcome::Verified;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Bus, CheckOutcome, EventKind, WorkerGpus};
use crate::name::ClusterName;
use crate::runtime::project::CheckLine;
use crate::util::human;

/// The checks of a cluster, reported as they come.
pub(super) struct Checks<'a> {
    events: &'a Bus,
    outcomes: Vec<CheckOutcome>,
}

impl<'a> Checks<'a> {
    /// None yet.
    pub(super) fn new(events: &'a Bus) -> Self {
        Self { events, outcomes: Vec::new() }
    }

    /// Reports a result.
    pub(super) fn report(&mut self, check: &str, target: &str, outcome: CheckOutcome, saw: impl Into<String>) {
        let (check, target) = (check.to_owned(), target.to_owned());
        self.events.send(EventKind::Check { check, target, outcome, saw: saw.into() });
        self.outcomes.push(outcome);
    }

    /// Reports whether something is as it should be.
    pub(super) fn passed(&mut self, check: &str, target: &str, passed: bool, saw: impl Into<String>) {
        self.report(check, target, if passed { CheckOutcome::Passed } else { CheckOutcome::Failed }, saw);
    }

    /// Reports lines that programs printed, sorted: checks run concurrently and are printed as they end.
    pub(super) fn lines(&mut self, lines: &mut [CheckLine]) {
        lines.sort_by_cached_key(|line| (rank(&line.check), line.target.clone()));
        for line in lines {
            self.passed(&line.check, &line.target, line.ok, line.saw.clone());
        }
    }

    /// Reports each of these checks, a name and a target, that has no result: a program that was killed while it checked
    /// printed only a part. Where another check failed, that is the reason, and says more.
    pub(super) fn complete(&mut self, expected: impl IntoIterator<Item = (&'static str, String)>, lines: &[CheckLine]) {
        if lines.iter().any(|line| !line.ok) {
            return;
        }
        for (check, target) in expected {
            if !lines.iter().any(|line| line.check == check && line.target == target) {
                self.report(check, &target, CheckOutcome::Failed, "its check gave no result");
            }
        }
    }

    /// Reports whether each GPU has one owner, from pairs of a worker and a GPU that it sees.
    pub(super) fn distinct(&mut self, owned: impl IntoIterator<Item = (String, String)>) {
        let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (worker, gpu) in owned {
            owners.entry(gpu).or_default().push(worker);
        }
        for (gpu, workers) in owners.iter().filter(|(_, workers)| workers.len() > 1) {
            self.report("gpu distinct", &workers.join(" and "), CheckOutcome::Failed, format!("both see {gpu}"));
        }
        if !owners.is_empty() && owners.values().all(|workers| workers.len() == 1) {
            let saw = format!("{}, each seen by one worker", human::count(owners.len(), "GPU"));
            self.report("gpu distinct", "workers", CheckOutcome::Passed, saw);
        }
    }

    /// Decides; `broken` says more of what failed.
    ///
    /// # Errors
    /// [`ErrorKind::NotReady`] when a check failed.
    pub(super) fn finish(self, name: &ClusterName, gpus: Vec<WorkerGpus>, broken: &[String]) -> Result<Verified> {
        let of = |wanted: CheckOutcome| self.outcomes.iter().filter(|outcome| **outcome == wanted).count();
        gpus.iter().for_each(|one| self.events.send(EventKind::WorkerGpus(one.clone())));
        let failed = of(CheckOutcome::Failed);
        if failed == 0 {
            return Ok(Verified { passed: of(CheckOutcome::Passed), gpus });
        }
        let error = Error::new(ErrorKind::NotReady, format!("verify the cluster {name}")).because(format!(
            "{} of {} failed",
            human::count(failed, "check"),
            self.outcomes.len()
        ));
        let error = broken.iter().fold(error, |error, broken| error.because(broken));
        Err(error.hint(format!("gpucl logs -c {name}; gpucl verify -c {name}   # to check again")))
    }
}

/// The order of a check in the report: nodes, what they can do, services, and what keeps others out.
fn rank(check: &str) -> usize {
    const FIRST: [&str; 4] = ["node alive", "task ran", "client", "gpu"];
    const LAST: [&str; 2] = ["token enforced", "closed"];
    let place = |list: &[&str]| list.iter().position(|begin| check.starts_with(begin));
    place(&FIRST).or_else(|| Some(FIRST.len() + 1 + place(&LAST)?)).unwrap_or(FIRST.len())
}
