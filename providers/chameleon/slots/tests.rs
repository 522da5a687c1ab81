//! Slots in small calendars.

mod random;

use super::*;
use crate::provider::GpuOffer;

fn at(text: &str) -> Timestamp {
    let text = if text.len() == 5 { format!("2026-11-22T{text}:00Z") } else { text.to_owned() };
    text.parse().unwrap()
}

fn booking(start: &str, end: &str, ours: bool) -> Booking {
    Booking { start: at(start), end: at(end), lease: Some("l1".to_owned()), holder: None, ours }
}

fn row(name: &str, kind: &str, gpus: u32, bookings: Vec<Booking>) -> CalendarRow {
    CalendarRow {
        name: name.to_owned(),
        id: name.to_owned(),
        place: "CHI@TACC".to_owned(),
        kind: kind.to_owned(),
        cpus: 64,
        memory: 256 << 30,
        gpus: vec![GpuOffer { model: "NVIDIA A100".to_owned(), count: Some(gpus) }],
        gpus_from: None,
        price_per_hour: crate::money::HourlyPrice::service_units(4.0),
        closed: None,
        bookings,
    }
}

fn ask(nodes: &[&str], hours: i64, start: StartAsk) -> LeaseAsk {
    LeaseAsk {
        hosts: HostFilter { nodes: nodes.iter().map(|name| (*name).to_owned()).collect(), ..HostFilter::default() },
        count: 1,
        start,
        end: EndAsk::After(SignedDuration::from_hours(hours)),
        name: None,
        shorten: false,
    }
}

fn chicago() -> TimeZone {
    TimeZone::posix("CST6CDT,M3.2.0,M11.1.0").unwrap()
}

/// Plans at 12:30:40 UTC.
fn plan_now(rows: &[CalendarRow], ask: &LeaseAsk) -> Result<Slot, NoSlot> {
    plan(rows, ask, &Policy::default(), at("2026-11-22T12:30:40Z"), &TimeZone::UTC)
}

/// `liqid01 12:30-15:30 now 0`: the hosts, the times of day, whether now, and how many notes.
fn short(slot: &Slot) -> String {
    let time = |at: Timestamp| at.strftime("%H:%M").to_string();
    let now = if slot.now { " now" } else { "" };
    format!("{} {}-{}{now} {}", slot.hosts.join(","), time(slot.start), time(slot.end), slot.notes.len())
}

fn taken(start: &str, end: &str) -> Vec<CalendarRow> {
    vec![row("liqid01", "compute_liqid", 2, vec![booking(start, end, false)])]
}

fn free() -> Vec<CalendarRow> {
    vec![row("liqid01", "compute_liqid", 2, Vec::new())]
}

#[test]
fn what_is_free_begins_now_cut_to_the_minute() {
    for start in [StartAsk::Next, StartAsk::Now] {
        assert_eq!(short(&plan_now(&free(), &ask(&["liqid01"], 3, start)).unwrap()), "liqid01 12:30-15:30 now 0");
    }
}

#[test]
fn the_next_slot_keeps_its_distance() {
    let rows = taken("10:00", "14:55");
    assert_eq!(short(&plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::Next)).unwrap()), "liqid01 15:05-18:05 0");
    // The gap between the bookings is too short for three hours: the next slot is after the second one.
    let rows = vec![row("liqid01", "", 1, vec![booking("10:00", "14:50", false), booking("17:00", "19:50", false)])];
    assert_eq!(short(&plan_now(&rows, &ask(&["liqid01"], 2, StartAsk::Next)).unwrap()), "liqid01 15:00-16:50 1");
    assert_eq!(short(&plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::Next)).unwrap()), "liqid01 20:00-23:00 0");
    let mut less = ask(&["liqid01"], 3, StartAsk::Next);
    less.shorten = true;
    assert_eq!(
        short(&plan_now(&rows, &less).unwrap()),
        "liqid01 20:00-23:00 0",
        "shortened only if no full slot is free"
    );
}

#[test]
fn now_ends_before_the_neighbour_or_is_refused() {
    let rows = taken("15:30", "18:00");
    // It ends ten minutes earlier because of the gap, with a note.
    let slot = plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::Now)).unwrap();
    assert_eq!(short(&slot), "liqid01 12:30-15:20 now 1");
    assert_eq!(slot.notes, ["it ends at Sun 22 Nov 15:20 UTC, 10 min before the next lease on liqid01"]);
    let refused = plan_now(&rows, &ask(&["liqid01"], 4, StartAsk::Now)).unwrap_err();
    assert!(matches!(&refused.why, Why::TooShort { until, .. } if *until == at("15:20")), "{refused:?}");
    assert!(refused.free.len() >= 2, "{refused:?}");
    assert_eq!((refused.free[0].start, refused.free[0].end), (at("18:10"), at("22:10")));
    // With `shorten` it is accepted.
    let shorten = LeaseAsk { shorten: true, ..ask(&["liqid01"], 4, StartAsk::Now) };
    assert_eq!(short(&plan_now(&rows, &shorten).unwrap()), "liqid01 12:30-15:20 now 1");
    let next = LeaseAsk { shorten: true, ..ask(&["liqid01"], 4, StartAsk::Next) };
    assert_eq!(short(&plan_now(&rows, &next).unwrap()), "liqid01 12:30-15:20 now 1");
    // Below the minimum it is refused even with `shorten`.
    let close = taken("12:50", "18:00");
    assert!(plan_now(&close, &shorten).is_err());
}

#[test]
fn busy_now_is_refused_with_two_slots_that_can_be_had() {
    let rows = taken("10:00", "14:00");
    let refused = plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::Now)).unwrap_err();
    assert!(matches!(&refused.why, Why::Taken { host, .. } if host == "liqid01"), "{refused:?}");
    assert!(refused.free.len() >= 2);
    let mut mine = rows.clone();
    for slot in &refused.free {
        let again = LeaseAsk { start: StartAsk::At(slot.start), ..ask(&["liqid01"], 3, StartAsk::Now) };
        let got = plan_now(&mine, &again).unwrap();
        assert_eq!((got.start, got.end), (slot.start, slot.end));
        // The same user can lease all of them: they are not stacked.
        mine[0].bookings.push(Booking { start: got.start, end: got.end, lease: None, holder: None, ours: true });
    }
}

#[test]
fn the_refusal_lists_commands() {
    let rows = taken("10:00", "14:00");
    let asked = ask(&["liqid01"], 3, StartAsk::Now);
    let refused = plan(&rows, &asked, &Policy::default(), at("12:30"), &chicago()).unwrap_err();
    let error = refused.error("lease liqid01", &asked, &Policy::default(), &chicago());
    assert_eq!(
        error.to_string(),
        "lease liqid01: liqid01 is taken: another lease has it Sun 22 Nov 04:00 to 08:00 CST (10:00 to 14:00 UTC)"
    );
    assert_eq!(
        error.hints()[0],
        "free: liqid01 Sun 22 Nov 08:10 to 11:10 CST (14:10 to 17:10 UTC): \
         gpucl lease --node liqid01 --start \"2026-11-22 08:10\" --hours 3"
    );
    let misspelt = ask(&["liqid1"], 3, StartAsk::Now);
    let error = plan_now(&rows, &misspelt).unwrap_err().error("x", &misspelt, &Policy::default(), &TimeZone::UTC);
    assert_eq!(
        (error.kind(), error.hints()),
        (crate::error::ErrorKind::NotFound, &["did you mean `liqid01`?".to_owned()][..])
    );
}

#[test]
fn what_is_free_now_is_offered_from_now_on() {
    let asked = ask(&["liqid01"], 169, StartAsk::Next);
    let refused = plan_now(&free(), &asked).unwrap_err();
    let error = refused.error("x", &asked, &Policy::default(), &TimeZone::UTC);
    assert_eq!(
        error.hints()[0],
        "free now: liqid01 Sun 22 Nov 12:30 to Sun 29 Nov 12:30 UTC: \
         gpucl lease --node liqid01 --start now --until \"2026-11-29 12:30\""
    );
    let past = ask(&["liqid01"], 3, StartAsk::At(at("12:00")));
    let error = plan_now(&free(), &past).unwrap_err().error("x", &past, &Policy::default(), &TimeZone::UTC);
    assert!(error.hints()[0].ends_with("gpucl lease --node liqid01 --start now --hours 3"), "{error}");
    assert!(error.hints()[1].contains("--start \"2026-11-22 "), "{error}");
    // A request for a later start is not offered the current time.
    let later = LeaseAsk { start: StartAsk::At(at("14:00")), ..asked };
    let error = plan_now(&free(), &later).unwrap_err().error("x", &later, &Policy::default(), &TimeZone::UTC);
    assert!(!error.hints()[0].starts_with("free now"), "{error}");
}

#[test]
fn what_begins_on_the_hour_ends_before_the_hour() {
    let slot = plan_now(&free(), &ask(&["liqid01"], 3, StartAsk::At(at("14:00")))).unwrap();
    assert_eq!(short(&slot), "liqid01 14:00-16:50 1");
    assert_eq!(
        slot.notes,
        ["it ends 10 min before the hour, at Sun 22 Nov 16:50 UTC, so that the next lease can begin on the hour"]
    );
    assert_eq!(
        short(&plan_now(&free(), &ask(&["liqid01"], 3, StartAsk::At(at("14:05")))).unwrap()),
        "liqid01 14:05-17:05 0"
    );
    // A neighbour on the hour causes neither a refusal nor a further note.
    let rows = taken("17:00", "20:00");
    assert_eq!(
        short(&plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::At(at("14:00")))).unwrap()),
        "liqid01 14:00-16:50 1"
    );
    // A requested end is kept.
    let until = LeaseAsk { end: EndAsk::At(at("17:00")), ..ask(&["liqid01"], 0, StartAsk::At(at("14:00"))) };
    assert_eq!(short(&plan_now(&free(), &until).unwrap()), "liqid01 14:00-17:00 0");
    assert_eq!(short(&plan_now(&rows, &until).unwrap()), "liqid01 14:00-16:50 1");
    // Hours are those of local time.
    let india = TimeZone::posix("IST-5:30").unwrap();
    let half = ask(&["liqid01"], 2, StartAsk::At(at("14:30")));
    assert_eq!(short(&plan(&free(), &half, &Policy::default(), at("12:30"), &india).unwrap()), "liqid01 14:30-16:20 1");
}

#[test]
fn seconds_are_rounded_into_the_future() {
    let slot = plan_now(&free(), &ask(&["liqid01"], 1, StartAsk::At(at("2026-11-22T12:31:20Z")))).unwrap();
    assert_eq!(short(&slot), "liqid01 12:32-13:32 0");
    let slot = plan_now(&free(), &ask(&["liqid01"], 1, StartAsk::At(at("12:30")))).unwrap();
    assert_eq!(short(&slot), "liqid01 12:30-13:30 now 0", "the current minute is now");
    let until = LeaseAsk { end: EndAsk::At(at("2026-11-22T13:45:59Z")), ..ask(&["liqid01"], 0, StartAsk::Now) };
    assert_eq!(short(&plan_now(&free(), &until).unwrap()), "liqid01 12:30-13:45 now 0");
}

#[test]
fn an_impossible_request_says_why() {
    let why = |ask: &LeaseAsk| plan_now(&free(), ask).unwrap_err();
    let past = why(&ask(&["liqid01"], 3, StartAsk::At(at("12:29"))));
    assert!(matches!(past.why, Why::Past { .. }) && past.free.len() >= 2, "{past:?}");
    let until = |end, start| LeaseAsk { end: EndAsk::At(at(end)), ..ask(&["liqid01"], 0, start) };
    assert!(matches!(why(&until("12:00", StartAsk::Next)).why, Why::Past { .. }));
    assert!(matches!(why(&until("14:00", StartAsk::At(at("15:00")))).why, Why::Backwards));
    assert!(matches!(why(&until("15:00", StartAsk::At(at("15:00")))).why, Why::Backwards));
    let long = why(&ask(&["liqid01"], 169, StartAsk::Next));
    assert!(matches!(long.why, Why::TooLong { .. }) && long.free.len() >= 2, "{long:?}");
    let shorten = LeaseAsk { shorten: true, ..ask(&["liqid01"], 200, StartAsk::Next) };
    let week = plan_now(&free(), &shorten).unwrap();
    assert_eq!((when::between(week.start, week.end), week.notes.len()), (SignedDuration::from_hours(168), 1));
    assert!(plan_now(&free(), &ask(&["liqid01"], 168, StartAsk::Next)).is_ok());
    let near = why(&ask(&["liqid10"], 3, StartAsk::Next));
    assert_eq!(near.why, Why::NoSuchHost { name: "liqid10".to_owned(), near: Some("liqid01".to_owned()) });
    let mut closed = free();
    closed[0].closed = Some("in repair".to_owned());
    let refused = plan_now(&closed, &ask(&["liqid01"], 3, StartAsk::Next)).unwrap_err();
    assert!(matches!(refused.why, Why::Closed { .. }));
    let mut kind = ask(&[], 3, StartAsk::Next);
    kind.hosts.kind = Some("gpu_h100".to_owned());
    assert_eq!(
        why(&kind).why.cause(&Policy::default(), &TimeZone::UTC),
        "there is no host with type gpu_h100; available: compute_liqid"
    );
    kind.hosts.kind = Some("compute_liqid".to_owned());
    kind.count = 2;
    assert_eq!(why(&kind).why, Why::TooFew { there: 1, asked: 2 });
}

#[test]
fn leases_of_ours_are_not_stacked() {
    let rows = vec![row("liqid01", "", 1, vec![booking("11:00", "14:00", true)])];
    let refused = plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::Next)).unwrap_err();
    assert!(matches!(refused.why, Why::Stacking { .. }), "{refused:?}");
    assert!(refused.free.len() >= 2);
    let error = refused.error("x", &ask(&["liqid01"], 3, StartAsk::Next), &Policy::default(), &TimeZone::UTC);
    assert_eq!(error.hints()[0], "extend that lease: gpucl lease extend l1 --hours 1");
    let right_after = plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::At(at("14:10")))).unwrap_err();
    assert!(matches!(right_after.why, Why::Stacking { .. }));
    assert!(plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::At(at("16:05")))).is_ok());
    // The same right before a lease of ours.
    let rows = vec![row("liqid01", "", 1, vec![booking("17:00", "20:00", true)])];
    let right_before = plan_now(&rows, &ask(&["liqid01"], 3, StartAsk::At(at("14:00")))).unwrap_err();
    assert!(matches!(right_before.why, Why::Stacking { .. }));
    // By type, another host is taken.
    let mut rows =
        vec![row("liqid01", "t", 1, vec![booking("11:00", "14:00", true)]), row("liqid02", "t", 1, Vec::new())];
    rows[1].bookings = vec![booking("11:00", "14:00", false)];
    let mut kind = ask(&[], 3, StartAsk::Next);
    kind.hosts.kind = Some("t".to_owned());
    assert_eq!(short(&plan_now(&rows, &kind).unwrap()), "liqid02 14:10-17:10 0");
}

#[test]
fn several_hosts_begin_together() {
    let rows = vec![
        row("liqid01", "t", 1, vec![booking("10:00", "13:50", false)]),
        row("liqid02", "t", 1, vec![booking("15:00", "18:00", false)]),
        row("liqid10", "t", 2, Vec::new()),
    ];
    let both = ask(&["liqid02", "liqid01"], 3, StartAsk::Next);
    assert_eq!(short(&plan_now(&rows, &both).unwrap()), "liqid01,liqid02 18:10-21:10 0");
    let twice = ask(&["liqid10", "liqid10"], 3, StartAsk::Next);
    assert_eq!(short(&plan_now(&rows, &twice).unwrap()), "liqid10 12:30-15:30 now 0");
    let mut kind = ask(&[], 3, StartAsk::Next);
    kind.hosts.kind = Some("T".to_owned());
    assert_eq!(short(&plan_now(&rows, &kind).unwrap()), "liqid10 12:30-15:30 now 0");
    kind.count = 2;
    assert_eq!(short(&plan_now(&rows, &kind).unwrap()), "liqid01,liqid10 14:00-17:00 0");
    kind.start = StartAsk::Now;
    assert_eq!(plan_now(&rows, &kind).unwrap_err().why, Why::NotTogether { free: 1, asked: 2 });
}

#[test]
fn hosts_with_just_enough_gpus_come_first() {
    let rows = vec![row("a1", "t", 4, Vec::new()), row("b10", "t", 2, Vec::new()), row("b9", "t", 2, Vec::new())];
    let mut by_gpus = ask(&[], 3, StartAsk::Next);
    by_gpus.hosts.gpu = Some("a100".to_owned());
    assert_eq!(plan_now(&rows, &by_gpus).unwrap().hosts, ["a1"], "without a number, by name");
    by_gpus.hosts.gpus = Some(2);
    assert_eq!(plan_now(&rows, &by_gpus).unwrap().hosts, ["b9"]);
    by_gpus.hosts.gpus = Some(3);
    assert_eq!(plan_now(&rows, &by_gpus).unwrap().hosts, ["a1"]);
    by_gpus.hosts.gpus = Some(8);
    assert!(matches!(plan_now(&rows, &by_gpus).unwrap_err().why, Why::NoneMatches { .. }));
}

#[test]
fn a_change_of_the_clocks_changes_no_length() {
    // On 1 November at 02:00 the clocks go back: three hours remain three hours.
    let start = at("2026-11-01T05:00:00Z");
    let slot = plan(
        &free(),
        &ask(&["liqid01"], 3, StartAsk::At(start)),
        &Policy::default(),
        at("2026-10-31T12:00:00Z"),
        &chicago(),
    );
    let slot = slot.unwrap();
    assert_eq!(when::between(slot.start, slot.end), SignedDuration::from_mins(170));
    assert_eq!(
        slot.notes,
        [
            "it ends 10 min before the hour, at Sun 1 Nov 01:50 CST (07:50 UTC), so that the next lease can begin on the hour"
        ]
    );
}
