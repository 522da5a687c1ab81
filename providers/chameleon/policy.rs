//! A site's rules for reserving hosts.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::provider::Booking;
use crate::util::when;

/// A site's rules for leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Free time between two leases on a host: the service ends and starts leases in one batch, and cleans hosts.
    pub(crate) gap: SignedDuration,
    /// The maximum length of a lease.
    pub(crate) longest: SignedDuration,
    /// How long before its end a lease may be extended; `None` if `longest` limits the lease as a whole.
    pub(crate) extension_window: Option<SignedDuration>,
    /// How far ahead to search for free time.
    pub(crate) horizon: SignedDuration,
}

impl Default for Policy {
    fn default() -> Self {
        let hours = SignedDuration::from_hours;
        Self {
            gap: SignedDuration::from_mins(10),
            longest: hours(7 * 24),
            extension_window: Some(hours(48)),
            horizon: hours(14 * 24),
        }
    }
}

/// Why the end of a lease cannot be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoExtension {
    /// The lease has ended.
    Over,
    /// The new end is in the past, or not after the start.
    Past,
    /// The new end is not later than the current one.
    Shorter,
    /// The extension window is not open yet.
    TooEarly {
        /// When the window opens.
        from: Timestamp,
    },
    /// The lease would be longer than the site allows.
    TooLong {
        /// The latest allowed end.
        most: Timestamp,
    },
    /// Another booking has a host at that time.
    Taken {
        by: Booking,
        /// The latest end before it; `None` if no time is left.
        most: Option<Timestamp>,
    },
}

/// A new end that the site accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extension {
    /// The end, possibly earlier than requested.
    pub(crate) end: Timestamp,
    /// Notes for the user, such as why it ends earlier.
    pub(crate) notes: Vec<String>,
}

/// A request to move the end of an existing lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtensionAsk {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) new_end: Timestamp,
    /// The result may end earlier than the lease does now, or than requested.
    pub(crate) may_shorten: bool,
}

/// Decides whether a lease's end may move, and to when. `next` is the first other booking on its hosts after its end.
pub(crate) fn may_extend(
    ask: ExtensionAsk,
    now: Timestamp,
    policy: &Policy,
    next: Option<&Booking>,
    zone: &TimeZone,
) -> Result<Extension, NoExtension> {
    let wanted = when::floor(ask.new_end);
    if ask.end <= now {
        return Err(NoExtension::Over);
    }
    if wanted <= now || wanted <= ask.start {
        return Err(NoExtension::Past);
    }
    if wanted <= ask.end {
        return match ask.may_shorten {
            true => Ok(Extension { end: wanted, notes: Vec::new() }),
            false => Err(NoExtension::Shorter),
        };
    }
    if let Some(from) = policy.extension_window.map(|window| when::earlier(ask.end, window)).filter(|from| now < *from)
    {
        return Err(NoExtension::TooEarly { from });
    }
    // With an extension window, `longest` limits the added time; without one, the lease as a whole.
    let counted_from = if policy.extension_window.is_some() { ask.end } else { ask.start };
    let mut end = wanted;
    let mut notes = Vec::new();
    let most = when::later(counted_from, policy.longest);
    if end > most {
        if !ask.may_shorten || most <= ask.end {
            return Err(NoExtension::TooLong { most });
        }
        end = most;
        notes.push(format!("it ends at {} at the latest: the site allows no more", when::both(most, zone)));
    }
    if let Some(next) = next {
        let most = when::earlier(next.start, policy.gap);
        if end > most {
            let little = when::between(most, end) <= policy.gap && most > ask.end;
            if most <= ask.end || !(little || ask.may_shorten) {
                return Err(NoExtension::Taken { by: next.clone(), most: (most > ask.end).then_some(most) });
            }
            end = most;
            notes.push(format!(
                "it ends at {}, {} before the next lease on it",
                when::both(most, zone),
                when::length(policy.gap)
            ));
        }
    }
    Ok(Extension { end, notes })
}

impl NoExtension {
    /// The cause, as a lowercase fragment for an error.
    pub(crate) fn cause(&self, policy: &Policy, zone: &TimeZone) -> String {
        let local = |at: &Timestamp| when::both(*at, zone);
        match self {
            Self::Over => "it has ended".to_owned(),
            Self::Past => "that time is in the past".to_owned(),
            Self::Shorter => "the new end is not later than the current one; --shorten allows that".to_owned(),
            Self::TooEarly { from } => format!(
                "the site extends a lease only in its last {}, from {} on",
                when::length(policy.extension_window.unwrap_or_default()),
                local(from)
            ),
            Self::TooLong { most } => {
                format!("the site allows {} at once: {} is the latest end", when::length(policy.longest), local(most))
            }
            Self::Taken { by, most: Some(most) } => {
                format!("{} from {} on: {} is the latest end before that", taken(by), local(&by.start), local(most))
            }
            Self::Taken { by, most: None } => format!("{} from {} on", taken(by), local(&by.start)),
        }
    }
}

/// Describes who has a host, as far as known: `lease demo has it`.
pub(super) fn taken(by: &Booking) -> String {
    match (&by.holder, by.ours) {
        (Some(holder), true) => format!("your own lease {holder} has it"),
        (Some(holder), false) => format!("{holder} has it"),
        (None, true) => "a lease of your own has it".to_owned(),
        (None, false) => "another lease has it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ask(new_end: &str, may_shorten: bool) -> ExtensionAsk {
        let (start, end) = (at("2026-11-22T14:00:00Z"), at("2026-11-22T16:50:00Z"));
        ExtensionAsk { start, end, new_end: at(new_end), may_shorten }
    }

    fn next(start: &str) -> Booking {
        let start = at(start);
        Booking {
            start,
            end: when::later(start, SignedDuration::from_hours(3)),
            lease: None,
            holder: None,
            ours: false,
        }
    }

    fn extend(ask: ExtensionAsk, now: &str, next: Option<&Booking>) -> Result<String, NoExtension> {
        let done = may_extend(ask, at(now), &Policy::default(), next, &TimeZone::UTC)?;
        Ok(format!("{} {}", done.end, done.notes.len()))
    }

    const NOW: &str = "2026-11-22T15:00:00Z";

    #[test]
    fn the_end_moves_only_later_unless_shortening_is_allowed() {
        assert_eq!(extend(ask("2026-11-22T18:50:30Z", false), NOW, None).unwrap(), "2026-11-22T18:50:00Z 0");
        assert_eq!(extend(ask("2026-11-22T16:50:00Z", false), NOW, None), Err(NoExtension::Shorter));
        assert_eq!(extend(ask("2026-11-22T15:30:00Z", false), NOW, None), Err(NoExtension::Shorter));
        assert_eq!(extend(ask("2026-11-22T15:30:00Z", true), NOW, None).unwrap(), "2026-11-22T15:30:00Z 0");
        assert_eq!(extend(ask("2026-11-22T14:30:00Z", true), NOW, None), Err(NoExtension::Past));
        assert_eq!(extend(ask("2026-11-22T18:00:00Z", false), "2026-11-22T17:00:00Z", None), Err(NoExtension::Over));
    }

    #[test]
    fn the_next_lease_keeps_its_gap() {
        let by = next("2026-11-22T19:00:00Z");
        assert_eq!(extend(ask("2026-11-22T18:50:00Z", false), NOW, Some(&by)).unwrap(), "2026-11-22T18:50:00Z 0");
        assert_eq!(extend(ask("2026-11-22T19:00:00Z", false), NOW, Some(&by)).unwrap(), "2026-11-22T18:50:00Z 1");
        let most = Some(at("2026-11-22T18:50:00Z"));
        let refused = extend(ask("2026-11-22T20:00:00Z", false), NOW, Some(&by)).unwrap_err();
        assert_eq!(refused, NoExtension::Taken { by: by.clone(), most });
        assert_eq!(
            refused.cause(&Policy::default(), &TimeZone::UTC),
            "another lease has it from Sun 22 Nov 19:00 UTC on: Sun 22 Nov 18:50 UTC is the latest end before that"
        );
        assert_eq!(extend(ask("2026-11-22T20:00:00Z", true), NOW, Some(&by)).unwrap(), "2026-11-22T18:50:00Z 1");
        let close = next("2026-11-22T17:00:00Z");
        let none = Err(NoExtension::Taken { by: close.clone(), most: None });
        assert_eq!(extend(ask("2026-11-22T16:55:00Z", false), NOW, Some(&close)), none);
        assert_eq!(extend(ask("2026-11-22T18:00:00Z", true), NOW, Some(&close)), none);
    }

    #[test]
    fn a_long_lease_waits_for_its_window() {
        let week = |new_end: &str| ExtensionAsk {
            start: at("2026-11-15T14:00:00Z"),
            end: at("2026-11-22T14:00:00Z"),
            new_end: at(new_end),
            may_shorten: false,
        };
        let refused = extend(week("2026-11-23T14:00:00Z"), "2026-11-20T13:59:00Z", None).unwrap_err();
        assert_eq!(refused, NoExtension::TooEarly { from: at("2026-11-20T14:00:00Z") });
        assert!(extend(week("2026-11-29T14:00:00Z"), "2026-11-20T14:00:00Z", None).is_ok());
        let refused = extend(week("2026-11-29T14:01:00Z"), "2026-11-20T14:00:00Z", None).unwrap_err();
        assert_eq!(refused, NoExtension::TooLong { most: at("2026-11-29T14:00:00Z") });
        // If the lease as a whole is limited, a week is the maximum.
        let whole = Policy { extension_window: None, ..Policy::default() };
        let refused =
            may_extend(week("2026-11-22T15:00:00Z"), at("2026-11-20T14:00:00Z"), &whole, None, &TimeZone::UTC);
        assert_eq!(refused, Err(NoExtension::TooLong { most: at("2026-11-22T14:00:00Z") }));
    }
}
