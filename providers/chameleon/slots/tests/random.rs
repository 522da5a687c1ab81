//! Property tests of the policy on generated calendars.

use super::*;

/// A deterministic pseudo-random generator of small numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn minutes(&mut self, steps: u64) -> SignedDuration {
        SignedDuration::from_mins(i64::try_from(self.below(steps) * 5).unwrap())
    }
}

fn random_rows(dice: &mut Dice, now: Timestamp, some_ours: bool) -> Vec<CalendarRow> {
    let mut rows = Vec::new();
    for name in ["n1", "n2", "n3"] {
        let mut bookings = Vec::new();
        let mut time = when::earlier(now, dice.minutes(40));
        for _ in 0..dice.below(7) {
            let start = when::later(time, dice.minutes(60));
            let end = when::later(start, SignedDuration::from_mins(5) + dice.minutes(100));
            bookings.push(Booking { start, end, lease: None, holder: None, ours: some_ours && dice.below(5) == 0 });
            time = end;
        }
        // Services list bookings in no particular order.
        if dice.below(2) == 0 {
            bookings.reverse();
        }
        rows.push(row(name, "t", 1 + u32::try_from(dice.below(3)).unwrap(), bookings));
    }
    rows
}

fn keeps_the_policy(rows: &[CalendarRow], slot: &Slot, policy: &Policy) -> Result<(), String> {
    for host in &slot.hosts {
        for other in &rows.iter().find(|row| row.name == *host).unwrap().bookings {
            let (before, after) = (when::between(other.end, slot.start), when::between(slot.end, other.start));
            if before < policy.gap && after < policy.gap {
                return Err(format!("{host} meets {other:?}"));
            }
            if other.ours
                && ((before <= policy.gap && !before.is_negative()) || (after <= policy.gap && !after.is_negative()))
            {
                return Err(format!("{host} is stacked on {other:?}"));
            }
        }
    }
    Ok(())
}

/// No slot overlaps a neighbour, is shorter than allowed or begins later than possible, and offered slots can be had.
#[test]
fn every_slot_keeps_the_policy() {
    let (policy, zone) = (Policy::default(), chicago());
    let mut dice = Dice(5);
    let (mut slots, mut refusals) = (0, 0);
    for round in 0..1000 {
        let now = when::later(at("2026-10-31T00:00:00Z"), dice.minutes(600));
        let some_ours = round % 2 == 0;
        let rows = random_rows(&mut dice, now, some_ours);
        let mut ask = ask(&[], 0, StartAsk::Next);
        match dice.below(4) {
            0 => ask.hosts.nodes = vec!["n1".to_owned()],
            1 => ask.hosts.nodes = vec!["n3".to_owned(), "n2".to_owned()],
            _ => ask.count = 1 + u32::try_from(dice.below(3)).unwrap(),
        }
        let length = SignedDuration::from_mins(5) + dice.minutes(150);
        ask.start = match dice.below(3) {
            0 => StartAsk::Next,
            1 => StartAsk::Now,
            _ => StartAsk::At(when::later(now, dice.minutes(400))),
        };
        let from = if let StartAsk::At(at) = ask.start { at } else { now };
        ask.end = if dice.below(4) == 0 { EndAsk::At(when::later(from, length)) } else { EndAsk::After(length) };
        ask.shorten = dice.below(4) == 0;
        let case = format!("round {round}: {ask:?} at {now} in {rows:#?}");
        match plan(&rows, &ask, &policy, now, &zone) {
            Ok(slot) => {
                slots += 1;
                keeps_the_policy(&rows, &slot, &policy).unwrap_or_else(|why| panic!("{why}: {slot:?} {case}"));
                let wanted = if let EndAsk::At(until) = ask.end { when::between(slot.start, until) } else { length };
                let got = when::between(slot.start, slot.end);
                assert!(got.is_positive() && got <= policy.longest && got <= wanted, "{slot:?} {case}");
                let least = if wanted > policy.gap * 2 { wanted - policy.gap } else { wanted };
                assert!(got >= least || (ask.shorten && got >= LEAST.min(wanted)), "{slot:?} {case}");
                assert_eq!(got == wanted, slot.notes.is_empty(), "a moved end needs a note: {slot:?} {case}");
                assert_eq!(slot.now, slot.start == now, "{case}");
                if ask.start == StartAsk::Next && !some_ours {
                    // No earlier start is free. Beside a lease of ours the search keeps more distance than required.
                    let mut earlier = now;
                    while earlier < slot.start {
                        let there = LeaseAsk { start: StartAsk::At(earlier), shorten: false, ..ask.clone() };
                        assert!(
                            plan(&rows, &there, &policy, now, &zone).is_err(),
                            "{earlier} is free: {slot:?} {case}"
                        );
                        earlier = when::later(earlier, SignedDuration::from_mins(5));
                    }
                } else if ask.start != StartAsk::Next {
                    assert_eq!(slot.start, from, "{case}");
                }
            }
            Err(refused) => {
                refusals += 1;
                assert!(refused.free.len() >= 2, "{refused:?} {case}");
                for offer in &refused.free {
                    let hosts = HostFilter { nodes: offer.hosts.clone(), ..HostFilter::default() };
                    let length = match ask.end {
                        EndAsk::After(length) => length,
                        EndAsk::At(until) => when::between(from, until),
                    };
                    // A slot that is free now is requested at once, a later one three minutes after.
                    let (start, while_later) =
                        if offer.now { (StartAsk::Now, 0) } else { (StartAsk::At(offer.start), 3) };
                    let again = LeaseAsk { hosts, start, end: EndAsk::After(length), shorten: false, ..ask.clone() };
                    let then = when::later(now, SignedDuration::from_mins(while_later));
                    let got = plan(&rows, &again, &policy, then, &zone);
                    let got = got.unwrap_or_else(|why| panic!("{offer:?} cannot be had: {why:?} {case}"));
                    assert_eq!((got.start, got.end), (offer.start, offer.end), "{case}");
                }
            }
        }
    }
    assert!(slots > 300 && refusals > 300, "{slots} slots, {refusals} refusals");
}
