//! The search: which hosts are free at a given time and for how long, and the first time that fits.

use jiff::{SignedDuration, Timestamp};

use super::{FreeSlot, Given, LEAST, OFFERED, Search, Slot, Why, Wish};
use crate::provider::{Booking, CalendarRow};
use crate::util::human::natural;
use crate::util::when::{between, both, earlier, is_whole_hour, later, length, next_whole_hour};

/// Whether one host fits at one time.
enum Fit<'a> {
    /// Free until `end`; `next` is the booking that makes `end` earlier than requested.
    Free { end: Timestamp, next: Option<&'a Booking> },
    /// Not free.
    Not(Why),
}

/// A host that is free.
struct Choice<'a> {
    row: &'a CalendarRow,
    end: Timestamp,
    next: Option<&'a Booking>,
}

impl Search<'_> {
    /// Finds a slot that begins at this time.
    pub(super) fn at(&self, start: Timestamp, wish: Wish, given: Given) -> Result<Slot, Why> {
        let wanted = wish.until.unwrap_or_else(|| later(start, wish.length));
        let asked = between(start, wanted);
        if !asked.is_positive() {
            return Err(Why::Backwards);
        }
        if asked > self.policy.longest {
            return Err(Why::TooLong { asked });
        }
        let mut notes = Vec::new();
        // A lease that begins on the hour ends a gap before the hour, so that the next one can begin on the hour.
        let on_the_hour = given == Given::Person
            && wish.until.is_none()
            && asked >= SignedDuration::from_hours(1)
            && is_whole_hour(start, self.zone);
        let habit = if on_the_hour { earlier(wanted, self.policy.gap) } else { wanted };
        let mut free = Vec::new();
        let mut refused = Vec::new();
        for row in &self.hosts {
            match self.fit(row, start, wanted, habit, wish.shorten) {
                Fit::Free { end, next } => free.push(Choice { row, end, next }),
                Fit::Not(why) => refused.push(why),
            }
        }
        if free.len() < self.count {
            // If every host is needed, the first one that is not free is the reason.
            let every = self.hosts.len() == self.count;
            let why = refused.into_iter().next().filter(|_| every);
            return Err(why.unwrap_or(Why::NotTogether { free: free.len(), asked: self.count }));
        }
        // The latest end first, then the fewest GPUs if a count was requested, then by name.
        free.sort_by_key(|choice| {
            let gpus: u32 = choice.row.gpus.iter().map(|gpu| gpu.count.unwrap_or(1)).sum();
            (std::cmp::Reverse(choice.end), if self.exact { gpus } else { 0 }, natural(&choice.row.name))
        });
        free.truncate(self.count);
        let shortest = free.iter().min_by_key(|choice| choice.end);
        let (end, cut) = shortest.map_or((habit, None), |choice| (choice.end, choice.next.zip(Some(choice.row))));
        if let Some((next, row)) = cut {
            notes.push(format!(
                "it ends at {}, {} before the next lease on {}{}",
                both(end, self.zone),
                length(self.policy.gap),
                row.name,
                next.holder.as_ref().map(|holder| format!(" ({holder})")).unwrap_or_default()
            ));
        } else if on_the_hour {
            notes.push(format!(
                "it ends {} before the hour, at {}, so that the next lease can begin on the hour",
                length(self.policy.gap),
                both(end, self.zone)
            ));
        }
        let mut hosts: Vec<String> = free.into_iter().map(|choice| choice.row.name.clone()).collect();
        hosts.sort_by_key(|name| natural(name));
        Ok(Slot { hosts, start, now: start == self.now, end, notes })
    }

    /// Finds the first slot from now on.
    pub(super) fn next(&self, wish: Wish) -> Result<Slot, Why> {
        let mut too_long = None;
        let full = Wish { shorten: false, ..wish };
        for start in self.candidates(self.now) {
            match self.at(start, if start == self.now { wish } else { full }, Given::Clock) {
                Ok(slot) => return Ok(slot),
                // The start has reached the fixed end.
                Err(Why::Backwards) => break,
                // The first free time is right beside a lease of ours, which should be extended instead.
                Err(why @ Why::Stacking { .. }) => return Err(why),
                Err(why @ Why::TooLong { .. }) => too_long = Some(why),
                Err(_) => {}
            }
        }
        if wish.shorten {
            let shorter =
                self.candidates(self.now).into_iter().find_map(|start| self.at(start, wish, Given::Clock).ok());
            if let Some(slot) = shorter {
                return Ok(slot);
            }
        }
        Err(too_long.unwrap_or(Why::NeverFree))
    }

    /// Free slots of this length from a time on: each can be requested by its start, with gaps between them.
    pub(super) fn free(&self, from: Timestamp, length: SignedDuration) -> Vec<FreeSlot> {
        let wish = Wish { length, until: None, shorten: false };
        let mut found: Vec<FreeSlot> = Vec::new();
        // The user takes a few minutes to request an offered slot.
        let soon = self.round_up(later(self.now, SignedDuration::from_mins(5)), 15);
        let is_now = from <= self.now;
        let mut from = from.max(soon);
        if is_now && let Ok(slot) = self.at(self.now, wish, Given::Clock) {
            from = from.max(next_whole_hour(later(slot.end, self.policy.gap), self.zone));
            found.push(FreeSlot { hosts: slot.hosts, start: slot.start, end: slot.end, now: true });
        }
        while found.len() < OFFERED {
            let first = self.candidates(from).into_iter().find_map(|start| self.at(start, wish, Given::Person).ok());
            let Some(slot) = first else { break };
            // A user who takes both must not hold the host without a break.
            from = next_whole_hour(later(slot.end, self.policy.gap), self.zone);
            found.push(FreeSlot { hosts: slot.hosts, start: slot.start, end: slot.end, now: false });
        }
        found
    }

    /// Rounds up to a multiple of `minutes` past the hour, in local time.
    fn round_up(&self, at: Timestamp, minutes: i64) -> Timestamp {
        let past = i64::from(at.to_zoned(self.zone.clone()).minute()) % minutes;
        if past == 0 { at } else { later(at, SignedDuration::from_mins(minutes - past)) }
    }

    /// The times when hosts become free, from `from` (always the first) to the policy's horizon.
    fn candidates(&self, from: Timestamp) -> Vec<Timestamp> {
        let last = later(self.now, self.policy.horizon);
        let mut times = vec![from];
        for booking in self.hosts.iter().flat_map(|row| &row.bookings) {
            let free = crate::util::when::ceil(later(booking.end, self.policy.gap));
            times.push(free);
            if booking.ours {
                // Right after a lease of ours would be stacking; an hour or more later is not.
                times.push(next_whole_hour(later(free, SignedDuration::from_hours(1)), self.zone));
            }
        }
        times.retain(|time| *time >= from && *time <= last);
        times.sort();
        times.dedup();
        times
    }

    /// Whether a host is free from `start` until `habit`, or nearly; `wanted` is the requested end.
    fn fit<'a>(
        &self,
        row: &'a CalendarRow,
        start: Timestamp,
        wanted: Timestamp,
        habit: Timestamp,
        shorten: bool,
    ) -> Fit<'a> {
        let gap = self.policy.gap;
        let host = || row.name.clone();
        let before = row.bookings.iter().filter(|booking| booking.start < later(start, gap));
        // Bookings that ended more than a gap ago do not matter.
        let holds = |booking: &&Booking| later(booking.end, gap) > start;
        if let Some(by) = before.clone().filter(holds).max_by_key(|booking| booking.end) {
            return Fit::Not(Why::Taken { host: host(), by: Box::new(by.clone()) });
        }
        if let Some(by) = before.clone().find(|booking| booking.ours && between(booking.end, start) <= gap) {
            return Fit::Not(Why::Stacking { host: host(), by: Box::new(by.clone()) });
        }
        let next = row
            .bookings
            .iter()
            .filter(|booking| booking.start >= later(start, gap))
            .min_by_key(|booking| booking.start);
        let Some(next) = next else { return Fit::Free { end: habit, next: None } };
        let last = crate::util::when::floor(earlier(next.start, gap));
        let end = last.min(habit);
        if next.ours && between(end, next.start) <= gap {
            return Fit::Not(Why::Stacking { host: host(), by: Box::new(next.clone()) });
        }
        if end == habit {
            return Fit::Free { end, next: None };
        }
        let asked = between(start, wanted);
        // A short lease (up to two gaps) has no minutes to spare.
        let slack = if asked > gap + gap { gap } else { SignedDuration::ZERO };
        let missing = between(end, wanted);
        let enough = missing <= slack || (shorten && between(start, end) >= asked.min(LEAST));
        if !enough {
            return Fit::Not(Why::TooShort { host: host(), until: last, by: Box::new(next.clone()) });
        }
        Fit::Free { end, next: Some(next) }
    }
}
