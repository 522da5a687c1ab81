//! One host's time, cell by cell.

use jiff::{SignedDuration, Timestamp};

use super::Grid;
use crate::provider::{Booking, CalendarRow};
use crate::util::when;

/// What one half of a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Free,
    /// Of the booking with this number.
    Taken(usize),
}

/// One host's time in a grid.
pub(super) struct Lane<'a> {
    /// What is booked, in the order of time.
    pub(super) bookings: Vec<&'a Booking>,
    /// Each cell in two halves.
    pub(super) cells: Vec<(Half, Half)>,
}

impl<'a> Lane<'a> {
    pub(super) fn of(row: &'a CalendarRow, grid: &Grid) -> Self {
        let mut bookings: Vec<&Booking> =
            row.bookings.iter().filter(|booking| booking.end > grid.start && booking.start < grid.end()).collect();
        bookings.sort_by_key(|booking| booking.start);
        let quarter = SignedDuration::from_secs(grid.cell.as_secs() / 4);
        let half = SignedDuration::from_secs(grid.cell.as_secs() / 2);
        let at = |from: Timestamp| {
            // Whatever takes the middle of it, or all of what it is by less than a half: a short lease is not left out.
            let (middle, to) = (when::later(from, quarter), when::later(from, half));
            let covers = |booking: &&&Booking| booking.start <= middle && booking.end > middle;
            let within = |booking: &&&Booking| booking.start >= from && booking.end <= to;
            let found = bookings.iter().find(covers).or_else(|| bookings.iter().find(within));
            found.and_then(|found| bookings.iter().position(|booking| std::ptr::eq(*booking, *found)))
        };
        let state = |from| at(from).map_or(Half::Free, Half::Taken);
        let cells =
            (0..grid.cells).map(|cell| (state(grid.at(cell)), state(when::later(grid.at(cell), half)))).collect();
        Self { bookings, cells }
    }

    /// The first and the last cell of a booking.
    pub(super) fn cells_of(&self, number: usize) -> Option<(usize, usize)> {
        let is = |(left, right): &(Half, Half)| *left == Half::Taken(number) || *right == Half::Taken(number);
        Some((self.cells.iter().position(is)?, self.cells.iter().rposition(is)?))
    }
}

/// From when on a host is free, and until when where it is taken again: `now` is the time itself.
pub(crate) fn free_from(row: &CalendarRow, now: Timestamp) -> (Timestamp, Option<Timestamp>) {
    let mut bookings: Vec<&Booking> = row.bookings.iter().filter(|booking| booking.end > now).collect();
    bookings.sort_by_key(|booking| booking.start);
    let mut from = now;
    for booking in bookings {
        // Between two leases a gap stays free that nobody can use.
        if when::between(from, booking.start) > SignedDuration::from_mins(30) {
            return (from, Some(booking.start));
        }
        from = from.max(booking.end);
    }
    (from, None)
}
