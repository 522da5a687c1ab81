//! The characters of a chart.

use super::super::Drawn;
use super::lane::{Half, Lane};
use super::{Chart, Grid, free_from};
use crate::provider::{Booking, CalendarRow};
use crate::util::when;

const RED: u8 = 31;
const GREEN: u8 = 32;
const DIM: u8 = 2;

/// What one cell shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ink {
    Free,
    Taken,
    Ours,
    Closed,
}

/// The columns left of the bars.
pub(super) struct Columns {
    name: usize,
    /// 0 if all hosts are at one place.
    place: usize,
    gpus: usize,
    free: usize,
}

impl Columns {
    /// As wide as their contents; a narrow terminal has no GPU column.
    pub(super) fn of(chart: &Chart<'_>) -> Self {
        let widest = |of: &dyn Fn(&CalendarRow) -> usize| chart.rows.iter().map(|row| of(row)).max().unwrap_or(0);
        let name = widest(&|row| row.name.chars().count()).clamp(4, 24);
        let is_one = chart.rows.windows(2).all(|pair| pair[0].place == pair[1].place);
        let place = if is_one { 0 } else { widest(&|row| row.place.chars().count()).clamp(5, 16) };
        let gpus = widest(&|row| gpus(row).chars().count()).clamp(4, 12);
        let free = widest(&|row| free(row, chart).chars().count()).max(4);
        Self { name, place, gpus: if chart.style.width >= 100 { gpus } else { 0 }, free }
    }

    /// Their width in terminal columns, including the gaps.
    pub(super) fn width(&self) -> usize {
        let with_gap = |width: usize| if width == 0 { 0 } else { width + 2 };
        self.name + 2 + with_gap(self.place) + with_gap(self.gpus) + self.free + 2
    }

    fn text(&self, [name, place, gpus, free]: [&str; 4]) -> String {
        let cut = |text: &str, width: usize| text.chars().take(width).collect::<String>();
        let mut line = format!("{:<width$}  ", cut(name, self.name), width = self.name);
        if self.place > 0 {
            line.push_str(&format!("{:<width$}  ", cut(place, self.place), width = self.place));
        }
        if self.gpus > 0 {
            line.push_str(&format!("{:<width$}  ", cut(gpus, self.gpus), width = self.gpus));
        }
        line + &format!("{:<width$}  ", cut(free, self.free), width = self.free)
    }
}

/// `2x A100 PCIe`, without the vendor's name.
fn gpus(row: &CalendarRow) -> String {
    let gpus = row.gpus.iter().map(|gpu| {
        let model = ["NVIDIA ", "AMD ", "Intel "]
            .iter()
            .fold(gpu.model.as_str(), |model, vendor| model.trim_start_matches(vendor));
        format!("{}x {model}", gpu.count.map_or_else(|| "?".to_owned(), |count| count.to_string()))
    });
    gpus.collect::<Vec<_>>().join(" ")
}

/// When it is next free, in a few letters: `now`, `in 2 h`, or `closed` if it cannot be reserved.
fn free(row: &CalendarRow, chart: &Chart<'_>) -> String {
    if row.closed.is_some() {
        return "closed".to_owned();
    }
    let (from, _) = free_from(row, chart.now);
    if from <= chart.now {
        return "now".to_owned();
    }
    // The largest unit is enough here; the chart shows the rest.
    let minutes = when::between(chart.now, from).as_mins();
    match minutes {
        0..60 => format!("in {} min", minutes + 1),
        60..2880 => format!("in {} h", (minutes + 59) / 60),
        _ => format!("in {} d", (minutes + 1439) / 1440),
    }
}

/// The lines above the hosts: the days, and the hours if there is room.
pub(super) fn ruler(chart: &Chart<'_>, grid: &Grid, columns: &Columns) -> Vec<String> {
    let edges: Vec<usize> = chart.midnights(grid).iter().filter_map(|day| grid.of(*day)).collect();
    let mut days = vec![' '; grid.cells];
    // The current day is labelled at now, if there is room before the next one.
    let starts: Vec<usize> = std::iter::once(0).chain(edges.iter().copied()).collect();
    let ends: Vec<usize> = edges.iter().copied().chain([grid.cells]).collect();
    let least = starts.iter().zip(&ends).skip(1).map(|(start, end)| end - start);
    let room = least.take(edges.len().saturating_sub(1).max(1)).min().unwrap_or(grid.cells);
    let form = [(11, "%a %-d %b"), (7, "%a %-d"), (3, "%-d")]
        .iter()
        .find(|(width, _)| room >= *width)
        .map_or("%-d", |(_, form)| *form);
    for (start, end) in starts.iter().zip(&ends) {
        let name = grid.at(*start).max(chart.now).to_zoned(chart.zone.clone()).strftime(form).to_string();
        let name = if *start == 0 { format!("now, {name}") } else { name };
        // Without room for the label, a mark stands for now.
        let mark = if chart.style.blocks { "▼" } else { "v" };
        let name = match end - start {
            room if *start != 0 || name.len() < room => name,
            0..4 => mark.to_owned(),
            _ => "now".to_owned(),
        };
        if name.chars().count() < end - start || (*end == grid.cells && name.len() == end - start) || *start == 0 {
            put(&mut days, *start, &name);
        }
    }
    let mut lines = vec![(columns.text([""; 4]) + &days.into_iter().collect::<String>()).trim_end().to_owned()];
    let mut hours = vec![' '; grid.cells];
    let per_day = 86_400 / usize::try_from(grid.cell.as_secs()).unwrap_or(86_400);
    // Hours are shown if three letters fit between them.
    let every = [1, 2, 3, 6, 12].into_iter().find(|hours| per_day * hours / 24 >= 4);
    if let Some(every) = every {
        for cell in 0..grid.cells {
            let here = grid.at(cell).to_zoned(chart.zone.clone());
            if cell + 2 <= grid.cells && here.minute() == 0 && i64::from(here.hour()) % every as i64 == 0 {
                put(&mut hours, cell, &format!("{:02}", here.hour()));
            }
        }
    }
    let hours: String = hours.into_iter().collect();
    lines.push((columns.text(["NAME", "WHERE", "GPUS", "FREE"]) + &hours).trim_end().to_owned());
    lines
}

fn put(line: &mut [char], at: usize, text: &str) {
    for (place, letter) in line.iter_mut().skip(at).zip(text.chars()) {
        *place = letter;
    }
}

/// The line of one host.
pub(super) fn line(chart: &Chart<'_>, grid: &Grid, columns: &Columns, row: &CalendarRow) -> Drawn {
    let lane = Lane::of(row, grid);
    let edges: Vec<usize> = chart.midnights(grid).iter().filter_map(|day| grid.of(*day)).collect();
    let mut cells: Vec<(char, Ink)> = Vec::with_capacity(grid.cells);
    for (number, (left, right)) in lane.cells.iter().enumerate() {
        let before = number.checked_sub(1).and_then(|before| lane.cells.get(before)).map(|cell| cell.1);
        cells.push(cell(chart, &lane.bookings, (*left, *right), before, edges.contains(&number), row.closed.is_some()));
    }
    for (number, booking) in lane.bookings.iter().enumerate() {
        if let (Some((first, last)), Some(holder)) = (lane.cells_of(number), label(booking)) {
            write_into(&mut cells, first, last, &holder);
        }
    }
    let mut drawn = Drawn::default().text(&columns.text([&row.name, &row.place, &gpus(row), &free(row, chart)]));
    let mut from = 0;
    while from < cells.len() {
        let ink = cells[from].1;
        let to = cells[from..].iter().position(|cell| cell.1 != ink).map_or(cells.len(), |length| from + length);
        let piece: String = cells[from..to].iter().map(|cell| cell.0).collect();
        drawn = painted(chart, drawn, ink, &piece);
        from = to;
    }
    drawn.trimmed()
}

fn painted(chart: &Chart<'_>, drawn: Drawn, ink: Ink, text: &str) -> Drawn {
    let code = match ink {
        Ink::Free | Ink::Closed => DIM,
        Ink::Taken => RED,
        Ink::Ours => GREEN,
    };
    if chart.style.colour { drawn.ink(code, text) } else { drawn.text(text) }
}

/// The holder of a booking, if the service reports one.
fn label(booking: &Booking) -> Option<String> {
    let name = booking.holder.as_deref().filter(|name| !name.is_empty());
    match (booking.ours, name) {
        (_, Some(name)) => Some(name.to_owned()),
        (true, None) => Some("yours".to_owned()),
        (false, None) => None,
    }
}

/// Writes a name into a bar, cut to fit; a bar with room for fewer than three letters stays plain.
fn write_into(cells: &mut [(char, Ink)], first: usize, last: usize, name: &str) {
    // Both ends stay plain, so that the start and the end are visible.
    let room = (last + 1).saturating_sub(first).saturating_sub(2);
    if room < 3 {
        return;
    }
    let letters: Vec<char> = name.chars().take(room).collect();
    let begin = first + 1 + (room - letters.len()) / 2;
    for (place, letter) in cells.iter_mut().skip(begin).zip(letters) {
        place.0 = letter;
    }
}

/// The character of one cell.
fn cell(
    chart: &Chart<'_>,
    bookings: &[&Booking],
    (left, right): (Half, Half),
    before: Option<Half>,
    is_midnight: bool,
    closed: bool,
) -> (char, Ink) {
    let blocks = chart.style.blocks;
    let ink = |half: Half| match half {
        Half::Taken(number) if bookings.get(number).is_some_and(|booking| booking.ours) => Ink::Ours,
        Half::Taken(_) => Ink::Taken,
        Half::Free => Ink::Free,
    };
    let other =
        |half: Half, last: Option<Half>| matches!((half, last), (Half::Taken(a), Some(Half::Taken(b))) if a != b);
    let (shape, ink) = match (left, right) {
        (Half::Free, Half::Free) if closed => ('x', Ink::Closed),
        (Half::Free, Half::Free) if is_midnight => (if blocks { '┊' } else { ':' }, Ink::Free),
        (Half::Free, Half::Free) => (if blocks { '·' } else { '.' }, Ink::Free),
        (left, right) if ink(left) == Ink::Ours || ink(right) == Ink::Ours => {
            (if blocks { '▒' } else { '=' }, Ink::Ours)
        }
        // If one lease directly follows another, the edge is visible.
        (left, right) if other(left, before) || other(right, Some(left)) => {
            (if blocks { '▐' } else { '|' }, ink(right))
        }
        (Half::Free, right) => (if blocks { '▐' } else { '[' }, ink(right)),
        (left, Half::Free) => (if blocks { '▌' } else { ']' }, ink(left)),
        (left, _) => (if blocks { '█' } else { '#' }, ink(left)),
    };
    (shape, ink)
}

/// What the characters mean.
pub(super) fn legend(chart: &Chart<'_>) -> Drawn {
    let blocks = chart.style.blocks;
    let mut parts = vec![
        (if blocks { "···" } else { "..." }, Ink::Free, "free"),
        (if blocks { "███" } else { "###" }, Ink::Taken, "taken"),
        (if blocks { "▒▒▒" } else { "===" }, Ink::Ours, "yours"),
    ];
    if chart.rows.iter().any(|row| row.closed.is_some()) {
        parts.push(("xxx", Ink::Closed, "cannot be reserved"));
    }
    let add = |drawn: Drawn, (number, (sign, ink, word)): (usize, (&str, Ink, &str))| {
        let drawn = if number > 0 { drawn.text("   ") } else { drawn };
        painted(chart, drawn, ink, sign).text(&format!(" {word}"))
    };
    parts.into_iter().enumerate().fold(Drawn::default(), add)
}
