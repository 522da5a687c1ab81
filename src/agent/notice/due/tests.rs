//! What is said when.

use crate::agent::decide::tests::{DOWN, at, facts, given, known, limits, seen};
use crate::agent::notice::said;
use crate::agent::notice::{EndedJobs, Event, Notice, Said};
use crate::agent::seen::{GuardPhase, SavedHere};

/// What is due at a time on 21 November for a cluster that ends at 16:50, with its guard in this phase; it is said then.
fn due(folder: &std::path::Path, now: &str, phase: GuardPhase, idle_since: Option<&str>) -> Vec<(Event, String)> {
    let spec = format!("{DOWN}idle: {{after: 30m}}\n");
    let (limits, known, given, here) = (limits(), known(&spec), given(), SavedHere::default());
    let seen = seen(now, phase, idle_since);
    let due = facts(&limits, &known, &given, &seen, &here, now).notices(None, &Said::of(folder));
    due.iter().for_each(|(key, _)| assert!(said::claim(folder, key, false), "{key}"));
    due.into_iter().map(|(_, Notice { event, text, .. })| (event, text)).collect()
}

#[test]
fn an_end_is_announced_sixty_fifteen_and_five_minutes_before_and_each_once() {
    let folder = tempfile::tempdir().unwrap();
    said::begin(folder.path()).unwrap();
    let at = |now| due(folder.path(), now, GuardPhase::Waiting, None);
    assert_eq!(at("15:49"), []);
    let [(event, text)] = at("15:50").try_into().unwrap();
    assert_eq!(event, Event::EndsSoon);
    assert!(
        text.starts_with("demo ends in 60 minutes, at ")
            && text.ends_with(": the job of its hosts reaches its time limit")
    );
    assert_eq!(at("15:51"), []);
    assert!(at("16:35")[0].1.starts_with("demo ends in 15 minutes"));
    assert_eq!(at("16:36"), []);
    assert!(at("16:47")[0].1.starts_with("demo ends in 3 minutes"), "this machine slept");
    assert_eq!(at("16:48"), []);
}

#[test]
fn an_end_that_was_moved_is_announced_again_and_one_that_moves_a_little_is_not() {
    let folder = tempfile::tempdir().unwrap();
    said::begin(folder.path()).unwrap();
    assert!(said::claim(folder.path(), "ends-15@2026-11-21T16:46:00Z", false));
    assert_eq!(due(folder.path(), "16:36", GuardPhase::Waiting, None), []);
    let folder = tempfile::tempdir().unwrap();
    said::begin(folder.path()).unwrap();
    assert!(said::claim(folder.path(), "ends-15@2026-11-21T15:50:00Z", false));
    assert_eq!(due(folder.path(), "16:36", GuardPhase::Waiting, None).len(), 1);
}

#[test]
fn an_end_so_near_when_it_became_ready_is_announced_at_the_next_mark_only() {
    let folder = tempfile::tempdir().unwrap();
    let (limits, mut known, given, here) = (limits(), known(DOWN), given(), SavedHere::default());
    known.ready_since = Some(at("16:00"));
    let count = |now| {
        let seen = seen(now, GuardPhase::Waiting, None);
        facts(&limits, &known, &given, &seen, &here, now).notices(None, &Said::of(folder.path())).len()
    };
    assert_eq!((count("16:01"), count("16:35")), (0, 1));
}

#[test]
fn idleness_is_announced_five_minutes_before_it_acts() {
    let folder = tempfile::tempdir().unwrap();
    said::begin(folder.path()).unwrap();
    let at = |now, since| due(folder.path(), now, GuardPhase::Waiting, Some(since));
    assert_eq!(at("12:24", "12:00"), []);
    assert!(at("12:25", "12:00")[0].1.ends_with("nobody uses it"));
    assert_eq!(at("12:26", "12:00"), []);
    assert_eq!(at("13:25", "13:00").len(), 1, "it was used in between");
}

#[test]
fn what_was_saved_is_said_once_and_what_was_not_when_the_end_has_come() {
    let folder = tempfile::tempdir().unwrap();
    said::begin(folder.path()).unwrap();
    assert_eq!(due(folder.path(), "16:45", GuardPhase::Saving, None)[0].0, Event::EndsSoon);
    let [(event, text)] = due(folder.path(), "16:46", GuardPhase::Saved, None).try_into().unwrap();
    assert_eq!(event, Event::Saved);
    assert!(text.starts_with("demo is saved: ") && text.contains("verified"), "{text}");
    assert_eq!(due(folder.path(), "16:47", GuardPhase::Saved, None), []);
    let other = tempfile::tempdir().unwrap();
    assert_eq!(due(other.path(), "16:49", GuardPhase::Saving, None).len(), 1, "the end alone");
    // A batch job ends twenty seconds earlier.
    let over = due(other.path(), "16:50", GuardPhase::Saving, None);
    assert_eq!(over[0].0, Event::NotSaved);
    assert!(over[0].1.starts_with("the end of demo has come, and NOT all of it is saved: "), "{}", over[0].1);
}

#[test]
fn a_job_that_has_ended_is_said_once_and_what_hosts_write_is_made_plain() {
    let folder = tempfile::tempdir().unwrap();
    said::begin(folder.path()).unwrap();
    let (limits, known, given, here) = (limits(), known(DOWN), given(), SavedHere::default());
    let seen = seen("12:00", GuardPhase::Waiting, None);
    let ended = ["job-1", "<!channel>\u{1b}[2J"].map(|id| (id.to_owned(), "FAILED".to_owned()));
    let jobs = EndedJobs { ended: ended.into(), ..EndedJobs::default() };
    let due = || facts(&limits, &known, &given, &seen, &here, "12:00").notices(Some(&jobs), &Said::of(folder.path()));
    let first = due();
    assert_eq!(first[0].1.text, "job job-1 on demo has ended: failed");
    assert!(!first[1].1.text.contains(['<', '\u{1b}']), "{}", first[1].1.text);
    assert!(said::claim(folder.path(), "job-job-1", false));
    assert_eq!(due().len(), 1);
}
