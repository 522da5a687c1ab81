//! What a site asks of those who reserve its hosts.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::provider::Booking;
use crate::util::when;

/// A site's rules for leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// What stays free between two leases on one host: the service ends and starts leases in one batch, and hosts are cleaned.
    pub(crate) gap: SignedDuration,
    /// The longest lease.
    pub(crate) longest: SignedDuration,
    /// A lease can be made longer only within this time before its end; `None` where the whole lease is what is limited.
    pub(crate) extension_window: Option<SignedDuration>,
    /// How far ahead free time is looked for.
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

/// Why a lease's end is not moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoExtension {
    /// The lease is over.
    Over,
    /// The new end is over already.
    Past,
    /// It would end earlier than it does.
    Shorter,
    /// It can be made longer only from then on.
    TooEarly {
        /// From when on.
        from: Timestamp,
    },
    /// It would be longer than is allowed.
    TooLong {
        /// The last end that is allowed.
        most: Timestamp,
    },
    /// Somebody else has a host then.
    Taken {
        /// Whose turn it is.
        by: Booking,
        /// The last end before that; `None` when there is no time left.
        most: Option<Timestamp>,
    },
}

/// A new end that the site would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extension {
    /// The end.
    pub(crate) end: Timestamp,
    /// What else a person should know before.
    pub(crate) notes: Vec<String>,
}

/// What is asked of a lease that there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtensionAsk {
    /// When the lease begins.
    pub(crate) start: Timestamp,
    /// When it ends.
    pub(crate) end: Timestamp,
    /// When it is to end.
    pub(crate) new_end: Timestamp,
    /// It may end earlier than it does, or than was asked for.
    pub(crate) may_shorten: bool,
}

/// Whether the end of a lease may be moved, and to when. `next` is the first booking of others on its hosts after its end.
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
    // With a window, what is added counts; without, the lease as a whole.
    let counted_from = if policy.extension_window.is_some() { ask.end } else { ask.start };
    let mut end = wanted;
    let mut notes = Vec::new();
    let most = when::later(counted_from, policy.longest);
    if end > most {
        if !ask.may_shorten || most <= ask.end {
            return Err(NoExtension::TooLong { most });
        }
        end = most;
        notes.push(format!("it ends at {} and not later: the site allows no more", when::both(most, zone)));
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
    /// Why, as a lowercase fragment.
    pub(crate) fn cause(&self, policy: &Policy, zone: &TimeZone) -> String {
        let local = |at: &Timestamp| when::both(*at, zone);
        match self {
            Self::Over => "it is over".to_owned(),
            Self::Past => "that time is over".to_owned(),
            Self::Shorter => {
                "it would end earlier than it does, which is not done unless --shorten is given".to_owned()
            }
            Self::TooEarly { from } => format!(
                "the site lets a lease be made longer only in its last {}, from {} on",
                when::length(policy.extension_window.unwrap_or_default()),
                local(from)
            ),
            Self::TooLong { most } => format!(
                "the site allows {} at once: {} is the last end that it takes",
                when::length(policy.longest),
                local(most)
            ),
            Self::Taken { by, most: Some(most) } => {
                format!("{} from {} on: {} is the last end before that", taken(by), local(&by.start), local(most))
            }
            Self::Taken { by, most: None } => format!("{} from {} on", taken(by), local(&by.start)),
        }
    }
}

/// Who has a host, as far as it is told: `lease demo has it`.
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
    fn the_end_only_moves_later_unless_told() {
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
            "another lease has it from Sun 22 Nov 19:00 UTC on: Sun 22 Nov 18:50 UTC is the last end before that"
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
        // Where the lease as a whole is limited, a week is all.
        let whole = Policy { extension_window: None, ..Policy::default() };
        let refused =
            may_extend(week("2026-11-22T15:00:00Z"), at("2026-11-20T14:00:00Z"), &whole, None, &TimeZone::UTC);
        assert_eq!(refused, Err(NoExtension::TooLong { most: at("2026-11-22T14:00:00Z") }));
    }
}
