//! The end of a cluster, for reports: when, by what, and how far its guards are, from the records on this machine.

use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;

use crate::agent::decide::IDLE_WARNING;
use crate::agent::end::{Cause, End};
use crate::agent::limits::Limits;
use crate::agent::seen::{GuardPhase, GuardsReport, HostGuard, Saved, SavedHere};
use crate::spec::Then;
use crate::state::ClusterState;
use crate::util::human;
use crate::util::when::earlier;

/// The end of a cluster.
#[derive(Debug, Clone, Serialize)]
pub struct EndReport {
    /// When; null if only idleness ends it, or nothing that is known by now.
    pub at: Option<Timestamp>,
    /// By what.
    pub why: Option<Cause>,
    /// When jobs are asked to save; null without `end:`.
    pub begins: Option<Timestamp>,
    /// What happens once all is saved; null without `end:`.
    pub then: Option<Then>,
    /// Until when `gpucl keep` keeps it.
    pub kept_until: Option<Timestamp>,
    /// When the guards were last looked at.
    pub seen: Option<Timestamp>,
    /// What the guards said then, host by host.
    pub hosts: Vec<HostGuard>,
    /// What was copied to this machine.
    pub here: Vec<Saved>,
    /// Whether nobody uses it; null without `idle:`.
    pub idle: Option<IdleReport>,
}

/// Whether nobody uses a cluster.
#[derive(Debug, Clone, Serialize)]
pub struct IdleReport {
    /// After how many seconds without use it ends.
    pub after_seconds: u64,
    /// What happens then.
    pub then: Then,
    /// Since when nobody uses it; null while somebody does, or while that is unknown.
    pub since: Option<Timestamp>,
    /// What was seen last.
    pub saw: Option<String>,
    /// When it ends if nobody comes.
    pub at: Option<Timestamp>,
}

/// The end of a cluster; `None` if its spec says nothing of it and none is known.
pub(super) fn ending(folder: &Path, known: &ClusterState) -> Option<EndReport> {
    let limits = Limits::of(folder).ok().flatten();
    let end = End::all(limits.as_ref(), known, Timestamp::now()).into_iter().next();
    let spec = known.running_spec();
    let of_spec = spec.and_then(|spec| spec.end.as_ref());
    let of_idle = spec.and_then(|spec| spec.idle.as_ref());
    if end.is_none() && of_spec.is_none() && of_idle.is_none() {
        return None;
    }
    let seen = GuardsReport::of(folder);
    let idle = of_idle.map(|idle| IdleReport {
        after_seconds: idle.after().as_secs(),
        then: idle.then,
        since: seen.as_ref().and_then(|seen| seen.idle_since),
        saw: seen.as_ref().and_then(GuardsReport::saw).map(str::to_owned),
        at: limits
            .as_ref()
            .zip(seen.as_ref())
            .and_then(|(limits, seen)| End::idle(idle, limits, seen))
            .map(|end| end.at),
    });
    Some(EndReport {
        at: end.map(|end| end.at),
        why: end.map(|end| end.why),
        begins: end.zip(of_spec).map(|(end, of_spec)| end.before(of_spec.warning())),
        then: of_spec.map(|of_spec| of_spec.then),
        kept_until: limits.and_then(|limits| limits.kept_until),
        seen: seen.as_ref().map(|seen| seen.at),
        hosts: seen.map(|seen| seen.hosts).unwrap_or_default(),
        here: SavedHere::of(folder).saved,
        idle,
    })
}

impl EndReport {
    /// It in words: a line for each thing that `status` says of it.
    pub fn lines(&self, now: Timestamp) -> Vec<String> {
        let mut lines = Vec::new();
        if let (Some(at), Some(why), Some(begins)) = (self.at, self.why, self.begins) {
            let when = human::in_time(at);
            lines.push(match begins > now {
                true => format!("end: {when}, as {why}; jobs are asked to save at {}", human::local(begins)),
                false => format!("end: {when}, as {why}; it has begun"),
            });
        }
        if let Some(until) = self.kept_until.filter(|until| *until > now) {
            lines.push(format!("kept until {}", human::in_time(until)));
        }
        lines.extend(self.hosts.iter().flat_map(of_guard));
        lines.extend(self.here.iter().map(|saved| format!("  {}", saved.line())));
        lines.extend(self.idle.iter().map(|idle| idle.line(now)));
        lines
    }
}

/// What the guard of a host says, unless it waits and nothing was saved yet.
fn of_guard(host: &HostGuard) -> Vec<String> {
    let Some(guard) = &host.guard else {
        let why = host.error.clone().unwrap_or_default();
        return vec![format!("warning: the guard on {} does not answer: {why}", host.host)];
    };
    let mut lines = Vec::new();
    if guard.phase != GuardPhase::Waiting {
        lines.push(format!("{}: {}", host.host, guard.phase));
    }
    if guard.fits == Some(false) {
        lines.push(format!(
            "warning: {}: what is to be saved does not fit in the time that is left: {} will be missing",
            host.host,
            human::bytes(guard.missing_bytes)
        ));
    }
    if let Some(skew) = guard.skew_s.filter(|skew| skew.abs() > 60.0) {
        let by = human::short_duration(std::time::Duration::from_secs_f64(skew.abs()));
        lines.push(format!("warning: the clock of {} differs from this machine's by {by}", host.host));
    }
    if guard.phase.is_at_work() || guard.phase.is_done() {
        lines.extend(guard.saved.iter().map(|saved| format!("  {}", saved.line())));
    }
    lines
}

impl IdleReport {
    fn line(&self, now: Timestamp) -> String {
        let then = if self.then == Then::Stop { "its nodes are stopped" } else { "it is taken down" };
        let after = human::duration(std::time::Duration::from_secs(self.after_seconds));
        match (self.since, self.at) {
            (Some(since), Some(at)) if earlier(at, IDLE_WARNING) <= now => {
                format!("warning: nobody has used it since {}: {then} {}", human::local(since), human::in_time(at))
            }
            (Some(since), Some(at)) => {
                format!(
                    "idle: nobody has used it since {}; {then} {} if nobody comes",
                    human::local(since),
                    human::in_time(at)
                )
            }
            _ => {
                let saw = self.saw.as_deref().unwrap_or("its guard was not asked yet");
                format!("idle: no ({saw}); {then} after {after} without use")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-21T{text}:00Z").parse().unwrap()
    }

    fn idle(since: Option<&str>, end: Option<&str>) -> IdleReport {
        let saw = Some("a job runs".to_owned());
        IdleReport { after_seconds: 1800, then: Then::Down, since: since.map(at), saw, at: end.map(at) }
    }

    #[test]
    fn what_was_looked_at_and_since_when_is_said_and_a_warning_comes_five_minutes_before() {
        assert_eq!(idle(None, None).line(at("12:00")), "idle: no (a job runs); it is taken down after 30m without use");
        let since = idle(Some("12:00"), Some("12:30"));
        assert!(since.line(at("12:20")).starts_with("idle: nobody has used it since"));
        assert!(since.line(at("12:25")).starts_with("warning: nobody has used it since"));
    }

    #[test]
    fn what_does_not_fit_and_what_failed_is_a_warning() {
        let saved = Saved { failed: Some("the store is full".to_owned()), ..Saved::default() };
        let guard = crate::agent::seen::GuardState {
            phase: GuardPhase::Saving,
            fits: Some(false),
            missing_bytes: 1 << 30,
            skew_s: Some(-3600.0),
            saved: vec![saved],
            ..Default::default()
        };
        let host = HostGuard { host: "host-0".to_owned(), guard: Some(guard), error: None };
        let text = of_guard(&host).join("\n");
        for part in
            ["host-0: saving", "1.0 GiB will be missing", "differs from this machine's by 1h 00m", "NOT all saved"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
