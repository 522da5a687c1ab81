//! Searches the calendar for a slot within the site's policy; if there is none, reports why and what is free.
//!
//! Pure: the current time is an argument, and nothing is queried. Computes in UTC; local time is only for display.

mod choose;
mod describe;
#[cfg(test)]
mod tests;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::policy::Policy;
use crate::provider::{Booking, CalendarRow, EndAsk, GpuOffer, HostFilter, LeaseAsk, StartAsk};
pub(crate) use crate::util::human::natural;
use crate::util::near::nearest;
use crate::util::when;

/// The number of free slots to offer.
const OFFERED: usize = 3;
/// The shortest lease that `--shorten` accepts, unless a shorter one was requested.
const LEAST: SignedDuration = SignedDuration::from_mins(30);

/// A possible lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The hosts, by name.
    pub(crate) hosts: Vec<String>,
    /// The start, a whole minute.
    pub(crate) start: Timestamp,
    /// It begins in the current minute, so at once.
    pub(crate) now: bool,
    /// The end, a whole minute.
    pub(crate) end: Timestamp,
    /// Notes for the user: that the end was moved, and why.
    pub(crate) notes: Vec<String>,
}

/// An alternative slot to offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FreeSlot {
    /// The hosts, by name.
    pub(crate) hosts: Vec<String>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// It begins at once.
    pub(crate) now: bool,
}

/// Why there is no slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// No host has this name.
    NoSuchHost {
        name: String,
        /// The closest existing name, if any is similar.
        near: Option<String>,
    },
    /// No host matches the filter.
    NoneMatches {
        /// Describes the filter.
        wanted: String,
        /// The existing types, or GPU models.
        there: Vec<String>,
    },
    /// Fewer hosts match than requested.
    TooFew {
        /// The number of matching hosts that can be reserved.
        there: usize,
        /// The number requested.
        asked: usize,
    },
    /// The host cannot be reserved.
    Closed { host: String, why: String },
    /// Another booking has the host at the start of the lease, or within the gap.
    Taken { host: String, by: Box<Booking> },
    /// The host is free then, but not for long enough.
    TooShort {
        host: String,
        /// The latest end that leaves the gap.
        until: Timestamp,
        /// The next booking.
        by: Box<Booking>,
    },
    /// Fewer hosts than requested are free at the same time.
    NotTogether {
        /// The number of free hosts.
        free: usize,
        /// The number requested.
        asked: usize,
    },
    /// A lease of ours is right before or after it on the same host.
    Stacking { host: String, by: Box<Booking> },
    /// The lease would be longer than the site allows.
    TooLong {
        /// The requested length.
        asked: SignedDuration,
    },
    /// The requested start or end is in the past.
    Past { at: Timestamp },
    /// The end is not after the start.
    Backwards,
    /// No slot within the policy's horizon is long enough.
    NeverFree,
}

/// The refusal: no slot fits the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoSlot {
    pub(crate) why: Why,
    /// The alternatives. Each of them, requested by its start, is a slot.
    pub(crate) free: Vec<FreeSlot>,
}

/// Finds a slot for the request, or returns why there is none, with free alternatives.
///
/// `rows` are all hosts of the site, so that a similar name can be suggested for a misspelt one.
pub(crate) fn plan(
    rows: &[CalendarRow],
    ask: &LeaseAsk,
    policy: &Policy,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Slot, NoSlot> {
    let now = when::floor(now);
    let bare = |why| NoSlot { why, free: Vec::new() };
    let hosts = wanted(rows, ask).map_err(bare)?;
    let search = Search { hosts, count: count(ask), exact: ask.hosts.gpus.is_some(), policy, now, zone };
    // Every refusal offers free slots of the requested length.
    let start = match ask.start {
        StartAsk::At(at) => when::ceil(at).max(now),
        StartAsk::Next | StartAsk::Now => now,
    };
    let refuse = |why, length: SignedDuration| {
        let length = length.clamp(SignedDuration::from_mins(1), policy.longest);
        NoSlot { why, free: search.free(start, length) }
    };
    let usual = SignedDuration::from_hours(1);
    let (length, until) = match ask.end {
        EndAsk::After(length) => (length, None),
        EndAsk::At(until) => (when::between(start, when::floor(until)), Some(when::floor(until))),
    };
    if until.is_some_and(|until| until <= now) {
        return Err(refuse(Why::Past { at: until.unwrap_or(now) }, usual));
    }
    if let StartAsk::At(at) = ask.start {
        // The current minute counts as now.
        if when::ceil(at) < now {
            return Err(refuse(Why::Past { at }, if length.is_positive() { length } else { usual }));
        }
    }
    if !length.is_positive() {
        return Err(refuse(Why::Backwards, usual));
    }
    let mut notes = Vec::new();
    let mut length = length;
    let mut until = until;
    // With `Next` and a fixed end, the length shrinks as the start moves: the search checks it for each start.
    if length > policy.longest && !(until.is_some() && ask.start == StartAsk::Next) {
        if !ask.shorten {
            return Err(refuse(Why::TooLong { asked: length }, policy.longest));
        }
        length = policy.longest;
        until = None;
        notes.push(format!("its length is {}: the site allows no more", when::length(policy.longest)));
    }
    let wish = Wish { length, until, shorten: ask.shorten };
    let found = match ask.start {
        StartAsk::Now => search.at(now, wish, Given::Clock),
        StartAsk::At(_) => search.at(start, wish, Given::Person),
        StartAsk::Next => search.next(wish),
    };
    match found {
        Ok(mut slot) => {
            notes.append(&mut slot.notes);
            Ok(Slot { notes, ..slot })
        }
        Err(why) => Err(refuse(why, length)),
    }
}

/// The hosts that match a filter, whether they can be reserved or not, sorted by name.
pub(crate) fn matching<'a>(rows: &'a [CalendarRow], filter: &HostFilter) -> Vec<&'a CalendarRow> {
    let mut found: Vec<&CalendarRow> = rows.iter().filter(|row| matches(row, filter)).collect();
    found.sort_by_cached_key(|row| natural(&row.name));
    found
}

pub(crate) fn matches(row: &CalendarRow, filter: &HostFilter) -> bool {
    let has = |gpu: &str| row.gpus.iter().any(|there| there.model.to_lowercase().contains(&gpu.to_lowercase()));
    // Counts only GPUs of the requested model, if one was given.
    let counted = row.gpus.iter().filter(|there| {
        filter.gpu.as_deref().is_none_or(|gpu| there.model.to_lowercase().contains(&gpu.to_lowercase()))
    });
    let gpus: u32 = counted.map(|there| there.count.unwrap_or(1)).sum();
    (filter.nodes.is_empty() || filter.nodes.contains(&row.name))
        && filter.kind.as_ref().is_none_or(|kind| row.kind.eq_ignore_ascii_case(kind))
        && filter.gpu.as_deref().is_none_or(has)
        && filter.gpus.is_none_or(|least| gpus >= least)
}

fn count(ask: &LeaseAsk) -> usize {
    let named = {
        let mut names = ask.hosts.nodes.clone();
        names.sort();
        names.dedup();
        names.len()
    };
    if named > 0 { named } else { (ask.count as usize).max(1) }
}

/// The hosts to choose from: the named ones, or those that match the filter.
fn wanted<'a>(rows: &'a [CalendarRow], ask: &LeaseAsk) -> Result<Vec<&'a CalendarRow>, Why> {
    for name in &ask.hosts.nodes {
        let Some(row) = rows.iter().find(|row| row.name == *name) else {
            let near = nearest(name, rows.iter().map(|row| row.name.as_str())).map(str::to_owned);
            return Err(Why::NoSuchHost { name: name.clone(), near });
        };
        if let Some(why) = &row.closed {
            return Err(Why::Closed { host: name.clone(), why: why.clone() });
        }
    }
    let found = matching(rows, &ask.hosts);
    if found.is_empty() || (!ask.hosts.nodes.is_empty() && found.len() < count(ask)) {
        return Err(none_matches(rows, &ask.hosts));
    }
    let open: Vec<&CalendarRow> = found.iter().copied().filter(|row| row.closed.is_none()).collect();
    match (open.as_slice(), found.first().map(|row| (&row.name, &row.closed))) {
        ([], Some((host, Some(why)))) => Err(Why::Closed { host: host.clone(), why: why.clone() }),
        _ if open.len() < count(ask) => Err(Why::TooFew { there: open.len(), asked: count(ask) }),
        _ => Ok(open),
    }
}

fn none_matches(rows: &[CalendarRow], filter: &HostFilter) -> Why {
    let mut words = filter.nodes.clone();
    words.extend(filter.kind.iter().map(|kind| format!("type {kind}")));
    words.extend(filter.gpu.iter().map(|gpu| format!("GPU {gpu}")));
    words.extend(filter.gpus.iter().map(|gpus| format!("{gpus} or more GPUs")));
    let kind_is_there =
        filter.kind.as_ref().is_none_or(|kind| rows.iter().any(|row| row.kind.eq_ignore_ascii_case(kind)));
    let mut there: Vec<String> = if kind_is_there {
        let gpus = rows.iter().flat_map(|row| &row.gpus);
        gpus.map(GpuOffer::describe).collect()
    } else {
        rows.iter().map(|row| row.kind.clone()).filter(|kind| !kind.is_empty()).collect()
    };
    there.sort();
    there.dedup();
    Why::NoneMatches { wanted: words.join(", "), there }
}

/// The requested length or end, and whether a shorter lease is acceptable.
#[derive(Debug, Clone, Copy)]
struct Wish {
    length: SignedDuration,
    until: Option<Timestamp>,
    shorten: bool,
}

/// How the start was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    /// By the user: a lease that begins on the hour ends a gap before an hour.
    Person,
    /// By the search.
    Clock,
}

/// The hosts and rules of one search.
struct Search<'a> {
    hosts: Vec<&'a CalendarRow>,
    count: usize,
    /// A GPU count was requested: prefer a host with just enough GPUs to one with more.
    exact: bool,
    policy: &'a Policy,
    now: Timestamp,
    zone: &'a TimeZone,
}
