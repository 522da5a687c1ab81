//! What the end of its cluster has to do with how a job ended: what the guards report, for one job.

use jiff::Timestamp;
use serde::Serialize;

use super::seen::{GuardsReport, Saved, SavedHere};

/// A job that was at work when its cluster began to end, and has ended since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobEnd {
    /// When the cluster ends, by the host's clock.
    pub at: Option<Timestamp>,
    /// It went on although it was asked to save, and was stopped.
    pub stopped: bool,
    /// The newest checkpoint that was saved.
    pub checkpoint: Option<Checkpoint>,
}

/// A checkpoint that outlives the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// Where it is.
    pub path: String,
    /// Its step, if its name says one.
    pub step: Option<u64>,
    /// All that belongs with it is there, too, and was compared.
    pub verified: bool,
}

impl JobEnd {
    /// Of one job; `None` if the cluster did not end meanwhile, as far as the guards know.
    pub fn of(job: &str, seen: &GuardsReport, here: &SavedHere) -> Option<Self> {
        let (guard, row) = seen.guards().find_map(|(_, guard)| {
            let row = guard.jobs.iter().find(|row| row.id == job)?;
            Some((guard, row))
        })?;
        let is_near = guard.phase.is_at_work() || guard.phase.is_done();
        let all = || seen.guards().flat_map(|(_, guard)| &guard.saved).chain(&here.saved);
        is_near.then(|| Self { at: guard.end, stopped: row.stopped, checkpoint: all().find_map(Checkpoint::of) })
    }
}

impl Checkpoint {
    fn of(saved: &Saved) -> Option<Self> {
        let newest = saved.newest.as_deref()?;
        let path = format!("{}/{newest}", saved.to.trim_end_matches('/'));
        Some(Self { path, step: step_of(newest), verified: saved.complete })
    }
}

/// The step that the name of a checkpoint says: `run/checkpoint-00043`, `epoch=3-step=1200.ckpt`, `global_step100`. A time in
/// a name is none.
fn step_of(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?;
    let stem = name.split('.').next()?.to_ascii_lowercase();
    let word = ["checkpoint", "step", "ckpt"].iter().filter_map(|word| Some(stem.rfind(word)? + word.len())).max()?;
    let digits = stem[word..].trim_start_matches(['-', '_', '=']);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

impl std::fmt::Display for JobEnd {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.checkpoint, self.stopped) {
            (_, true) => {
                out.write_str("stopped by the end of the cluster, since it went on after it was asked to save")?
            }
            (Some(Checkpoint { step: Some(step), .. }), false) => {
                write!(out, "ended by the end of the cluster, at step {step}")?;
            }
            (_, false) => out.write_str("ended by itself while the cluster was about to end")?,
        }
        match &self.checkpoint {
            Some(Checkpoint { path, verified: true, .. }) => write!(out, "; checkpoint {path}"),
            Some(Checkpoint { path, .. }) => write!(out, "; checkpoint {path}, but not all is saved yet"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::seen::{GuardPhase, GuardState, HostGuard, JobRow};
    use super::*;

    fn seen(phase: GuardPhase, stopped: bool, newest: Option<&str>) -> GuardsReport {
        let row = |id: &str, stopped| JobRow { id: id.to_owned(), status: "SUCCEEDED".to_owned(), stopped };
        let saved = Saved {
            to: "s3://mine/run1".to_owned(),
            complete: true,
            newest: newest.map(str::to_owned),
            ..Saved::default()
        };
        let guard = GuardState {
            phase,
            jobs: vec![row("other", false), row("a", stopped)],
            saved: vec![saved],
            ..GuardState::default()
        };
        let host = HostGuard { host: "host-0".to_owned(), guard: Some(guard), error: None };
        GuardsReport::new(Timestamp::UNIX_EPOCH, vec![host], &[])
    }

    #[test]
    fn a_job_is_said_to_have_ended_by_the_end_only_where_the_guard_knows_it() {
        let of = |phase, stopped, newest| {
            JobEnd::of("a", &seen(phase, stopped, newest), &SavedHere::default()).map(|end| end.to_string())
        };
        assert_eq!(
            of(GuardPhase::Saved, false, Some("slot/checkpoint-00043")).unwrap(),
            "ended by the end of the cluster, at step 43; checkpoint s3://mine/run1/slot/checkpoint-00043"
        );
        assert_eq!(
            of(GuardPhase::Over, true, None).unwrap(),
            "stopped by the end of the cluster, since it went on after it was asked to save"
        );
        assert_eq!(
            of(GuardPhase::Draining, false, None).unwrap(),
            "ended by itself while the cluster was about to end"
        );
        assert_eq!(of(GuardPhase::CalledOff, false, None), None);
        assert_eq!(JobEnd::of("b", &seen(GuardPhase::Saved, false, None), &SavedHere::default()), None);
    }

    #[test]
    fn a_step_is_read_from_a_name_and_never_guessed() {
        let known = [
            ("checkpoint-00043", 43),
            ("r/checkpoint_000007", 7),
            ("epoch=3-step=1200.ckpt", 1200),
            ("x/global_step100", 100),
            ("checkpoint-00043.json", 43),
        ];
        for (name, step) in known {
            assert_eq!(step_of(name), Some(step), "{name}");
        }
        for name in
            ["checkpoint_2026-11-29_19-13-00.123456", "model.pt", "epoch-3", "checkpoint-", "step5/final", "checkpoint"]
        {
            assert_eq!(step_of(name), None, "{name}");
        }
    }
}
