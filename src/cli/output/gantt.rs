//! The calendar as a chart: a line for each host, time from left to right, free time visible at a glance.

mod draw;
mod lane;
#[cfg(test)]
mod tests;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::Drawn;
use crate::provider::CalendarRow;
use crate::util::when;

pub(crate) use lane::free_from;

/// The widest chart, in columns, however wide the terminal is: beyond that the eye no longer follows a line.
const WIDEST: usize = 240;
/// Possible cell lengths in minutes: each divides a day, so that midnight is an edge.
const CELLS: &[i64] = &[5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440];

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// The terminal's columns.
    pub(crate) width: usize,
    /// Whether block characters may be used.
    pub(crate) blocks: bool,
    /// Whether colours may be used.
    pub(crate) colour: bool,
}

/// The hosts and the time span of a chart.
pub(crate) struct Chart<'a> {
    /// The hosts, in the order in which they are drawn.
    pub(crate) rows: Vec<&'a CalendarRow>,
    /// The current time, near the left edge.
    pub(crate) now: Timestamp,
    /// The time span in days.
    pub(crate) days: i64,
    /// The time zone of the labels.
    pub(crate) zone: TimeZone,
    pub(crate) style: Style,
}

/// The cells: start time, length and number.
#[derive(Debug, Clone, Copy)]
struct Grid {
    start: Timestamp,
    cell: SignedDuration,
    cells: usize,
}

impl Grid {
    /// The start time of a cell.
    fn at(&self, cell: usize) -> Timestamp {
        let seconds = self.cell.as_secs() * i64::try_from(cell).unwrap_or(0);
        when::later(self.start, SignedDuration::from_secs(seconds))
    }

    /// The cell of a time; `None` outside.
    fn of(&self, at: Timestamp) -> Option<usize> {
        let over = when::between(self.start, at).as_secs();
        let cell = usize::try_from(over / self.cell.as_secs()).ok().filter(|_| over >= 0)?;
        (cell < self.cells).then_some(cell)
    }

    fn end(&self) -> Timestamp {
        self.at(self.cells)
    }
}

impl Chart<'_> {
    /// The lines of the chart.
    pub(crate) fn lines(&self) -> Vec<Drawn> {
        let columns = draw::Columns::of(self);
        let grid = self.grid(self.style.width.min(WIDEST).saturating_sub(columns.width()).max(8));
        let plain = |line: String| Drawn::default().text(&line);
        let mut lines = vec![plain(self.headline(&grid))];
        lines.extend(draw::ruler(self, &grid, &columns).into_iter().map(plain));
        for row in &self.rows {
            lines.push(draw::line(self, &grid, &columns, row));
        }
        // On a long chart the first ruler has scrolled out of sight.
        if self.rows.len() > 20 {
            lines.extend(draw::ruler(self, &grid, &columns).into_iter().next().map(plain));
        }
        lines.push(draw::legend(self));
        lines
    }

    /// The finest grid that fits. It begins at the edge before now, so that now is in the first cell.
    fn grid(&self, room: usize) -> Grid {
        let whole = self.days * 1440;
        let fits = |cell: &&i64| whole / **cell <= i64::try_from(room).unwrap_or(8);
        let cell = CELLS.iter().find(fits).copied().unwrap_or(1440);
        let midnight = self.midnight(self.now);
        let since = when::between(midnight, self.now).as_mins();
        let start = when::later(midnight, SignedDuration::from_mins(since - since.rem_euclid(cell)));
        let cells = usize::try_from(whole / cell).unwrap_or(1).clamp(1, room);
        Grid { start, cell: SignedDuration::from_mins(cell), cells }
    }

    /// The last local midnight before a time.
    fn midnight(&self, at: Timestamp) -> Timestamp {
        at.to_zoned(self.zone.clone()).start_of_day().map_or(at, |day| day.timestamp())
    }

    /// Local midnights within the grid; a day may have 23 or 25 hours.
    fn midnights(&self, grid: &Grid) -> Vec<Timestamp> {
        let mut found = Vec::new();
        let mut day = grid.start.to_zoned(self.zone.clone());
        while let Ok(next) = day.tomorrow().and_then(|day| day.start_of_day()) {
            if next.timestamp() >= grid.end() {
                break;
            }
            found.push(next.timestamp());
            day = next;
        }
        found
    }

    fn headline(&self, grid: &Grid) -> String {
        let mut places: Vec<&str> = self.rows.iter().map(|row| row.place.as_str()).collect();
        places.sort_unstable();
        places.dedup();
        let places = if places.is_empty() { String::new() } else { format!("{}, ", places.join(" and ")) };
        let utc = self.now.to_zoned(TimeZone::UTC).strftime("%H:%M UTC").to_string();
        let zone = when::zone_name(self.now, &self.zone);
        let now = self.now.to_zoned(self.zone.clone()).strftime("%a %-d %b %H:%M");
        let now = if zone == "UTC" { format!("now {now} UTC") } else { format!("times in {zone}; now {now} = {utc}") };
        let changed = if self.changes(grid) { "; the clocks change within this time" } else { "" };
        format!("{places}{now}; a cell is {}{changed}", when::length(grid.cell))
    }

    /// Whether the clocks change within the grid.
    fn changes(&self, grid: &Grid) -> bool {
        self.zone.to_offset(grid.start) != self.zone.to_offset(grid.end())
    }
}
