//! Which news of a cluster is due, from what its agent knows: pure.

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};

use super::{EndedJobs, Notice, Said};
use crate::agent::decide::Facts;
use crate::agent::end::End;
use crate::agent::seen::all_saved;
use crate::util::when::{between, earlier};

/// How many minutes before an end it is announced.
const BEFORE_END: &[i64] = &[60, 15, 5];
/// The same for idleness: a cluster is idle for a while many times.
const BEFORE_IDLE: &[i64] = &[5];
/// By how much an end may move and still be the same: that of a cost moves with each estimate.
const SLACK: SignedDuration = SignedDuration::from_mins(5);

impl Facts<'_> {
    /// The news that is due and was not said, most important first, each with its key.
    pub(in crate::agent) fn notices(&self, jobs: Option<&EndedJobs>, said: &Said) -> Vec<(String, Notice)> {
        let idle = self.idle_end().map(|end| (end, BEFORE_IDLE));
        let ends = self.end().map(|end| (end, BEFORE_END)).into_iter().chain(idle);
        let soon = ends.filter_map(|(end, steps)| self.ends_soon(end, steps, said));
        let cluster = &self.known.name;
        let of_job = |(id, status): &(String, String)| (format!("job-{id}"), Notice::job_ended(cluster, id, status));
        let jobs = jobs.into_iter().flat_map(|jobs| &jobs.ended).map(of_job);
        soon.chain(self.saved()).chain(jobs).filter(|(key, _)| !said.has(key)).collect()
    }

    fn ends_soon(&self, end: End, steps: &[i64], said: &Said) -> Option<(String, Notice)> {
        let ready = self.known.ready_since?;
        let left = between(self.now, end.at);
        let minutes = steps.iter().rfind(|minutes| left <= SignedDuration::from_mins(**minutes))?;
        // Whoever has just brought it up knows when it ends.
        let begins = earlier(end.at, SignedDuration::from_mins(*minutes));
        if !left.is_positive() || begins < ready {
            return None;
        }
        let key = format!("ends-{minutes}@");
        let is_same = |at: &str| at.parse().is_ok_and(|at: Timestamp| between(at, end.at).abs() <= SLACK);
        let is_said = said.of_prefix(&key).any(is_same);
        (!is_said).then(|| (format!("{key}{}", end.at), Notice::ends_soon(&self.known.name, end, left.unsigned_abs())))
    }

    fn saved(&self) -> Option<(String, Notice)> {
        let _ = self.spec()?.end.as_ref().filter(|end| !end.save.is_empty())?;
        let (end, cluster) = (self.end()?, &self.known.name);
        let saved = all_saved(self.seen, self.here);
        let revision = self.given.map_or(0, |given| given.revision);
        if self.is_all_saved() {
            return Some((format!("saved-{revision}"), Notice::saved(cluster, &saved)));
        }
        let is_over = end.on_hosts() <= self.now && self.known.ready_since.is_some() && self.runs();
        is_over.then(|| (format!("not-saved-{revision}"), Notice::not_saved(cluster, &saved)))
    }
}
