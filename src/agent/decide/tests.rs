//! What is done, by what is known.

use std::collections::BTreeMap;

use super::*;
use crate::agent::clock::Clock;
use crate::agent::limits::Start;
use crate::agent::seen::{Activity, GuardPhase, GuardState, HostGuard, Saved};
use crate::name::{Key, Scope};
use crate::state::{HostNotes, ItemKind, Notes, ProjectNotes, Record};

pub(in crate::agent) fn at(text: &str) -> Timestamp {
    format!("2026-11-21T{text}:00Z").parse().unwrap()
}

pub(in crate::agent) fn limits() -> Limits {
    let start = Start { program: "gpucl".into(), environment: BTreeMap::new(), here: "/".into() };
    let mark = Clock { wall: at("09:00"), since_boot_ms: 0, boot: "this".to_owned() };
    let mut limits = Limits::new(None, None, None, start);
    limits.mark = mark;
    limits
}

/// A cluster whose hosts end at 16:50.
pub(in crate::agent) fn known(spec: &str) -> ClusterState {
    let scope = Scope { owner: "abcdefgh".parse().unwrap(), cluster: "demo".parse().unwrap() };
    let mut known = ClusterState::new(&scope, at("09:00"));
    let text = format!("name: demo\n{spec}");
    let spec = crate::spec::parse("cluster.yaml", &text, &crate::providers::find).unwrap().spec;
    known.apply(Record::SpecTaken { spec: Box::new(spec), path: None }, at("09:00"));
    let (host, project) = (Key::host(0), Key::project(0));
    let asks = |key: &Key, kind| Record::Requested { key: key.clone(), kind, digest: String::new() };
    known.apply(asks(&host, ItemKind::Resource("instance".to_owned())), at("10:00"));
    known.apply(Record::Exists { key: host.clone(), id: "i-1".to_owned() }, at("10:00"));
    let notes = HostNotes { until: Some(at("16:50")), ..HostNotes::default() };
    known.apply(Record::Noted { key: host, notes: Notes::Host(Box::new(notes)) }, at("10:00"));
    known.apply(asks(&project, ItemKind::Project), at("10:00"));
    known.apply(Record::Ready { key: project.clone() }, at("10:00"));
    let notes = Notes::Project(Box::default());
    known.apply(Record::Noted { key: project, notes }, at("10:00"));
    known.apply(Record::ClusterReady, at("10:00"));
    known
}

pub(in crate::agent) fn given() -> GivenEnd {
    let folder = tempfile::tempdir().unwrap();
    GivenEnd::next(folder.path(), Some(End { at: at("16:50"), why: Cause::WallClock }), 2).unwrap()
}

pub(in crate::agent) fn seen(when: &str, phase: GuardPhase, idle_since: Option<&str>) -> GuardsReport {
    let saved = vec![Saved { complete: phase.is_done(), ..Saved::default() }];
    let activity = Some(Activity { since: idle_since.map(at), saw: None });
    let guard = GuardState { phase, revision: 3, saved, activity, ..GuardState::default() };
    let host = HostGuard { host: "host-0".to_owned(), guard: Some(guard), error: None };
    GuardsReport::new(at(when), vec![host], &[Some(at(when))])
}

pub(in crate::agent) const DOWN: &str = "end: {warning: 10m, save: [{from: results, to: /project/me}]}\n";
const HERE: &str = "end: {warning: 10m, save: [{from: results, to: here:results}]}\n";

pub(in crate::agent) fn facts<'a>(
    limits: &'a Limits,
    known: &'a ClusterState,
    given: &'a GivenEnd,
    seen: &'a GuardsReport,
    here: &'a SavedHere,
    now: &str,
) -> Facts<'a> {
    let (given, seen, now) = (Some(given), Some(seen), at(now));
    Facts { limits, known, given, seen, here, now, looked: Some(now), copied: None, saved: None, extended: None }
}

#[test]
fn it_is_taken_down_once_all_is_saved_and_at_the_latest_at_the_end() {
    let (limits, known, given, here) = (limits(), known(DOWN), given(), SavedHere::default());
    let act = |now: &str, phase| facts(&limits, &known, &given, &seen(now, phase, None), &here, now).act();
    assert_eq!(act("16:30", GuardPhase::Waiting), None);
    assert_eq!(act("16:45", GuardPhase::Saving), None);
    let end = End { at: at("16:50"), why: Cause::WallClock };
    assert_eq!(act("16:45", GuardPhase::Saved), Some(Act::Down(Why::End(end))));
    assert_eq!(act("16:50", GuardPhase::Saving), Some(Act::Down(Why::End(end))));
    // Saved before an end that was moved since.
    let mut moved = given.clone();
    moved.revision = 4;
    assert_eq!(facts(&limits, &known, &moved, &seen("16:45", GuardPhase::Saved, None), &here, "16:45").act(), None);
}

#[test]
fn copies_to_this_machine_are_waited_for_but_not_beyond_the_end() {
    let (limits, known, given) = (limits(), known(HERE), given());
    let here = |complete, last_pass_of| {
        let saved = vec![Saved { complete, ..Saved::default() }];
        SavedHere::now(saved, last_pass_of)
    };
    let act = |now: &str, here: &SavedHere| {
        let seen = seen(now, GuardPhase::Saved, None);
        let facts = facts(&limits, &known, &given, &seen, here, now);
        (facts.copies_here(), facts.act().is_some())
    };
    assert_eq!(act("16:45", &here(true, None)), (true, false), "jobs may have written since");
    assert_eq!(act("16:45", &here(false, Some(3))), (true, false), "it failed");
    assert_eq!(act("16:45", &here(true, Some(3))), (false, true));
    assert_eq!(act("16:50", &here(false, Some(3))), (true, true), "at the latest at the end");
}

#[test]
fn nodes_are_stopped_once_and_what_costs_is_taken_down_at_its_end_all_the_same() {
    let stop = format!("deadline: 6h\n{}", DOWN.replace("warning: 10m", "warning: 10m, then: stop"));
    let (limits, mut known, given, here) = (limits(), known(&stop), given(), SavedHere::default());
    let saved = seen("16:45", GuardPhase::Saved, None);
    assert!(matches!(facts(&limits, &known, &given, &saved, &here, "16:45").act(), Some(Act::Stop(_))));
    let stopped = ProjectNotes { stopped: true, ..ProjectNotes::default() };
    known.apply(Record::Noted { key: Key::project(0), notes: Notes::Project(Box::new(stopped)) }, at("16:46"));
    assert_eq!(facts(&limits, &known, &given, &saved, &here, "16:47").act(), None);
    // The deadline is a limit: `Limits::verdict` acts on it whatever the nodes do.
    let mut limits = limits;
    limits.at = Some(at("16:48"));
    assert!(limits.verdict(&known, &Clock { wall: at("16:48"), ..limits.mark.clone() }, false).is_some());
}

/// Its guards ended with its nodes: this machine saves what is on its hosts before they go.
#[test]
fn what_a_cluster_has_that_was_stopped_by_hand_is_saved_once_in_its_last_minutes() {
    let (limits, mut known, given, here) = (limits(), known(DOWN), given(), SavedHere::default());
    let saves = |known: &ClusterState, now: &str, seen: &GuardsReport, saved: Option<&str>| {
        let facts = Facts { saved: saved.map(at), ..facts(&limits, known, &given, seen, &here, now) };
        facts.saves_stopped()
    };
    let before = seen("16:00", GuardPhase::Waiting, None);
    assert!(!saves(&known, "16:45", &before, None), "guards see to it");
    let stopped = ProjectNotes { stopped: true, ..ProjectNotes::default() };
    known.apply(Record::Noted { key: Key::project(0), notes: Notes::Project(Box::new(stopped)) }, at("16:10"));
    assert!(!saves(&known, "16:30", &before, None), "the end is far");
    assert!(saves(&known, "16:41", &before, None));
    assert!(!saves(&known, "16:41", &before, Some("16:41")), "it is tried once a minute");
    assert!(saves(&known, "16:43", &before, Some("16:41")), "it failed");
    assert!(!saves(&known, "16:43", &seen("16:42", GuardPhase::Saved, None), Some("16:41")));
}

#[test]
fn idleness_acts_after_its_time_by_a_fresh_look_only() {
    let (limits, known, given, here) = (limits(), known("idle: {after: 30m}\n"), given(), SavedHere::default());
    let act = |now: &str, looked: &str, since| {
        let seen = seen(looked, GuardPhase::Waiting, since);
        facts(&limits, &known, &given, &seen, &here, now).act()
    };
    assert_eq!(act("12:29", "12:29", Some("12:00")), None);
    assert_eq!(act("12:30", "12:30", Some("12:00")), Some(Act::Down(Why::Idle(at("12:00")))));
    assert_eq!(act("12:30", "12:30", None), None, "a job runs");
    assert_eq!(act("14:00", "12:10", Some("12:00")), None, "this machine slept: somebody may have come");
    let mut kept = limits.clone();
    kept.kept_until = Some(at("13:00"));
    let idle = seen("12:45", GuardPhase::Waiting, Some("12:00"));
    assert_eq!(facts(&kept, &known, &given, &idle, &here, "12:45").act(), None);
}

#[test]
fn hosts_are_looked_at_rarely_and_often_near_the_end() {
    let (limits, known, given, here) = (limits(), known(DOWN), given(), SavedHere::default());
    let every = |now: &str| {
        let seen = seen(now, GuardPhase::Waiting, None);
        let facts = facts(&limits, &known, &given, &seen, &here, now);
        between(facts.now, facts.next_look().unwrap()).as_secs()
    };
    assert_eq!(every("12:00"), 300);
    assert_eq!(every("16:38"), 120, "the window is not missed");
    assert_eq!(every("16:41"), 15);
    assert_eq!(every("16:49"), 4, "hosts may be gone after the end");
}

#[test]
fn an_extension_is_asked_for_hours_before_and_again_later() {
    let extend = DOWN.replace("warning: 10m", "warning: 10m, then: extend");
    let spec = format!("provider: {{name: chameleon}}\nruntime: docker\nhosts: [{{node: liqid01}}]\n{extend}");
    let (limits, known, given, here) = (limits(), known(&spec), given(), SavedHere::default());
    let waits = seen("12:00", GuardPhase::Waiting, None);
    let asks = |now: &str, extended: Option<&str>| {
        let facts = facts(&limits, &known, &given, &waits, &here, now);
        Facts { extended: extended.map(at), ..facts }.extends()
    };
    assert!(!asks("14:39", None) && asks("14:41", None));
    assert!(!asks("14:45", Some("14:41")) && asks("14:51", Some("14:41")));
}
