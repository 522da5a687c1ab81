//! One host's time, cell by cell.

use jiff::{SignedDuration, Timestamp};

use super::Grid;
use crate::provider::{Booking, CalendarRow};
use crate::util::when;

/// The state of one half of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Free,
    /// Taken by the booking with this index.
    Taken(usize),
}

/// One host's time in a grid.
pub(super) struct Lane<'a> {
    /// The bookings, sorted by start.
    pub(super) bookings: Vec<&'a Booking>,
    /// The cells, as left and right halves.
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
            // The booking over the middle of the half; otherwise one within the half, so that short leases are visible.
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

/// When a host is next free (`now` if it is free), and until when; `None` if nothing is booked after that.
pub(crate) fn free_from(row: &CalendarRow, now: Timestamp) -> (Timestamp, Option<Timestamp>) {
    let mut bookings: Vec<&Booking> = row.bookings.iter().filter(|booking| booking.end > now).collect();
    bookings.sort_by_key(|booking| booking.start);
    let mut from = now;
    for booking in bookings {
        // A gap of up to 30 minutes between two leases is useless.
        if when::between(from, booking.start) > SignedDuration::from_mins(30) {
            return (from, Some(booking.start));
        }
        from = from.max(booking.end);
    }
    (from, None)
}
