//! When a cluster reaches its limits, by each clock.

use super::*;
use crate::name::{Key, Scope};
use crate::state::{ItemKind, Record};

fn at(text: &str) -> Timestamp {
    format!("2026-11-21T{text}:00Z").parse().unwrap()
}

fn clock(wall: &str, minutes: i64, boot: &str) -> Clock {
    Clock { wall: at(wall), since_boot_ms: minutes * 60_000, boot: boot.to_owned() }
}

fn limits(after_minutes: Option<u64>, max_cents: Option<u64>) -> Limits {
    let start = Start { program: "gpucl".into(), environment: BTreeMap::new(), here: "/".into() };
    let max_cost = max_cents.map(|cents| crate::money::HourlyPrice::cents(cents).0);
    let mark = clock("10:00", 100, "this");
    Limits { mark, ..Limits::new(after_minutes.map(|minutes| minutes * 60), None, max_cost, start) }
}

/// A host for one dollar an hour, since 10:00.
fn known(answered: bool) -> ClusterState {
    let scope = Scope { owner: "abcdefgh".parse().unwrap(), cluster: "demo".parse().unwrap() };
    let (mut known, key) = (ClusterState::new(&scope, at("09:00")), Key::host(0));
    let kind = ItemKind::Resource("instance".to_owned());
    known.apply(Record::Requested { key: key.clone(), kind, digest: String::new() }, at("10:00"));
    let price = crate::money::HourlyPrice::cents(100);
    known.apply(Record::Priced { key: key.clone(), price, from: None }, at("10:00"));
    if answered {
        known.apply(Record::Exists { key, id: "i-1".to_owned() }, at("10:00"));
    }
    known
}

#[test]
fn the_clock_that_is_ahead_decides() {
    let (limits, known) = (limits(Some(180), None), known(true));
    let over = |clock: &Clock| limits.verdict(&known, clock, false).is_some();
    assert!(!over(&clock("12:59", 279, "this")));
    assert!(over(&clock("13:00", 280, "this")));
    // Set back by two hours, and set forward.
    assert!(over(&clock("11:00", 280, "this")));
    assert!(over(&clock("13:30", 190, "this")));
    // After a reboot there is only the wall clock.
    assert!(!over(&clock("12:59", 1000, "another")));
    assert!(over(&clock("13:00", 1, "another")));
}

#[test]
fn it_ends_at_its_cost_limit() {
    let (limits, known) = (limits(None, Some(250)), known(true));
    assert_eq!(limits.verdict(&known, &clock("12:29", 249, "this"), false), None);
    let why = limits.verdict(&known, &clock("12:30", 250, "this"), false).unwrap();
    assert_eq!(why.to_string(), "it has cost about 2.50 USD, which is its `max_cost`");
    assert_eq!(limits.cost_ends(&known, at("11:00")), Some(at("12:30")));
    // A clock that is set back lowers no cost.
    assert!(limits.verdict(&known, &clock("10:30", 250, "this"), false).is_some());
}

#[test]
fn requests_without_a_response_count_once_no_command_works_on_them() {
    let (by_time, by_cost, known) = (limits(Some(60), None), limits(None, Some(100)), known(false));
    for limits in [by_time, by_cost] {
        assert_eq!(limits.verdict(&known, &clock("12:00", 220, "this"), false), None);
        assert!(limits.verdict(&known, &clock("12:00", 220, "this"), true).is_some());
    }
}

#[test]
fn limits_are_written_and_read_and_keep_the_clocks_of_an_earlier_up() {
    let folder = tempfile::tempdir().unwrap();
    let first = limits(Some(60), None);
    first.clone().write(folder.path()).unwrap();
    assert_eq!(Limits::of(folder.path()).unwrap(), Some(first.clone()));
    let later = Limits { mark: clock("11:00", 160, "this"), ..limits(Some(120), None) };
    later.write(folder.path()).unwrap();
    let read = Limits::of(folder.path()).unwrap().unwrap();
    assert_eq!((read.mark, read.after_seconds), (first.mark, Some(7200)));
    fs_err::write(folder.path().join("deadline.json"), "{").unwrap();
    assert!(Limits::of(folder.path()).is_err(), "a damaged deadline is treated as none");
}
