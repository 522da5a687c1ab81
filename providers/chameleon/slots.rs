//! When hosts can be had: a slot in the calendar that keeps the site's policy, or why there is none and what is free.
//!
//! Pure: the time is given, and nothing is asked. All is reckoned in UTC; local time is only told.

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

/// How many free slots are offered.
const OFFERED: usize = 3;
/// The least that `--shorten` takes, unless less was asked for.
const LEAST: SignedDuration = SignedDuration::from_mins(30);

/// A lease that could be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The hosts, by name.
    pub(crate) hosts: Vec<String>,
    /// When it begins, a whole minute.
    pub(crate) start: Timestamp,
    /// It begins in the minute that runs, so at once.
    pub(crate) now: bool,
    /// When it ends, a whole minute.
    pub(crate) end: Timestamp,
    /// What a person should know before: that the end was moved, and why.
    pub(crate) notes: Vec<String>,
}

/// Free time that could be had instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FreeSlot {
    /// The hosts, by name.
    pub(crate) hosts: Vec<String>,
    /// When it begins.
    pub(crate) start: Timestamp,
    /// When a lease that begins then ends.
    pub(crate) end: Timestamp,
    /// It begins at once.
    pub(crate) now: bool,
}

/// Why there is no slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// No host has this name.
    NoSuchHost {
        /// The name.
        name: String,
        /// The name that was probably meant.
        near: Option<String>,
    },
    /// No host is what was asked for.
    NoneMatches {
        /// What was asked for.
        wanted: String,
        /// What there is instead: types, or GPU models.
        there: Vec<String>,
    },
    /// There are hosts like that, and fewer than asked for.
    TooFew {
        /// How many there are.
        there: usize,
        /// How many were asked for.
        asked: usize,
    },
    /// The host cannot be reserved.
    Closed {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// Somebody has the host when the lease would begin, or within the gap.
    Taken {
        /// The host.
        host: String,
        /// Who has it.
        by: Box<Booking>,
    },
    /// The host is free then, and not for long enough.
    TooShort {
        /// The host.
        host: String,
        /// When it is to be given back.
        until: Timestamp,
        /// Who has it next.
        by: Box<Booking>,
    },
    /// So many hosts are not free at the same time.
    NotTogether {
        /// How many are free.
        free: usize,
        /// How many were asked for.
        asked: usize,
    },
    /// A lease of ours is right before or after it on the same host.
    Stacking {
        /// The host.
        host: String,
        /// That lease.
        by: Box<Booking>,
    },
    /// It is longer than the site allows.
    TooLong {
        /// How long it would be.
        asked: SignedDuration,
    },
    /// The time is over.
    Past {
        /// When it would begin or end.
        at: Timestamp,
    },
    /// It would end before it begins, or as it begins.
    Backwards,
    /// Nothing is free for long enough as far ahead as is looked.
    NeverFree,
}

/// There is no slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoSlot {
    /// Why.
    pub(crate) why: Why,
    /// What could be had instead. Each of them, asked for by its start, is a slot.
    pub(crate) free: Vec<FreeSlot>,
}

/// Finds the slot that is asked for, or says why there is none and which there are.
///
/// `rows` are all hosts of the site: whoever misspells one is told the near name.
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
    // Whatever refuses it, free time of the length that was asked for is offered.
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
        // The minute that runs counts as now.
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
    // With `Next`, an end at a time shortens as the start moves: it is looked at again then.
    if length > policy.longest && !(until.is_some() && ask.start == StartAsk::Next) {
        if !ask.shorten {
            return Err(refuse(Why::TooLong { asked: length }, policy.longest));
        }
        length = policy.longest;
        until = None;
        notes.push(format!("it is {} long: the site allows no more", when::length(policy.longest)));
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

/// The hosts that a filter means, whether they can be reserved or not, in the order of their names.
pub(crate) fn matching<'a>(rows: &'a [CalendarRow], filter: &HostFilter) -> Vec<&'a CalendarRow> {
    let mut found: Vec<&CalendarRow> = rows.iter().filter(|row| matches(row, filter)).collect();
    found.sort_by_cached_key(|row| natural(&row.name));
    found
}

/// A host is what the filter says.
pub(crate) fn matches(row: &CalendarRow, filter: &HostFilter) -> bool {
    let has = |gpu: &str| row.gpus.iter().any(|there| there.model.to_lowercase().contains(&gpu.to_lowercase()));
    // Of the model that was asked for, where one was.
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

/// The hosts to choose from: the named ones, or those that the filter means.
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

/// How long, until when, and whether less will do.
#[derive(Debug, Clone, Copy)]
struct Wish {
    length: SignedDuration,
    until: Option<Timestamp>,
    shorten: bool,
}

/// Who chose the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    /// A person did: what begins at a whole hour ends a gap before a whole hour.
    Person,
    /// It came out so.
    Clock,
}

/// What is searched.
struct Search<'a> {
    hosts: Vec<&'a CalendarRow>,
    count: usize,
    /// GPUs were counted: then a host with just enough of them is better than one with more.
    exact: bool,
    policy: &'a Policy,
    now: Timestamp,
    zone: &'a TimeZone,
}
