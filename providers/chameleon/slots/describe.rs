//! Describes a refusal: the cause, and the free slots as commands.

use jiff::tz::TimeZone;

use super::{NoSlot, Why};
use crate::chameleon::policy::{Policy, taken};
use crate::error::{Error, ErrorKind};
use crate::provider::{EndAsk, LeaseAsk};
use crate::util::when;

impl NoSlot {
    /// The refusal as an error: the cause, and each free slot with the command that leases it.
    pub(crate) fn error(&self, doing: &str, ask: &LeaseAsk, policy: &Policy, zone: &TimeZone) -> Error {
        let kind = match &self.why {
            Why::NoSuchHost { .. } | Why::NoneMatches { .. } => ErrorKind::NotFound,
            Why::TooLong { .. } | Why::Past { .. } | Why::Backwards => ErrorKind::Usage,
            _ => ErrorKind::Provider,
        };
        let mut error = Error::new(kind, doing).because(self.why.cause(policy, zone));
        match &self.why {
            Why::NoSuchHost { near: Some(near), .. } => error = error.hint(format!("did you mean `{near}`?")),
            Why::NoSuchHost { near: None, .. } => error = error.hint("list all hosts: `gpucl calendar --all`"),
            Why::Stacking { by, .. } | Why::Taken { by, .. } if by.ours => {
                let name = by.lease.as_deref().unwrap_or("NAME");
                error = error.hint(format!("extend that lease: gpucl lease extend {name} --hours 1"));
            }
            Why::TooShort { until, .. } => {
                error = error.hint(format!("lease it only until {}: add --shorten", when::both(*until, zone)));
            }
            _ => {}
        }
        for slot in &self.free {
            error = error.hint(format!(
                "free{}: {} {}: gpucl lease {}",
                if slot.now { " now" } else { "" },
                slot.hosts.join(", "),
                when::span(slot.start, slot.end, zone),
                self.arguments(slot, ask, zone)
            ));
        }
        error
    }

    fn arguments(&self, slot: &super::FreeSlot, ask: &LeaseAsk, zone: &TimeZone) -> String {
        let nodes: Vec<String> = slot.hosts.iter().map(|host| format!("--node {host}")).collect();
        let end = match (&ask.end, &self.why) {
            (EndAsk::After(length), why) if !matches!(why, Why::TooLong { .. }) => {
                let minutes = length.as_mins();
                if minutes % 60 == 0 { format!("--hours {}", minutes / 60) } else { format!("--hours {minutes}m") }
            }
            _ => format!("--until \"{}\"", when::argument(slot.end, zone)),
        };
        let start = if slot.now { "now".to_owned() } else { format!("\"{}\"", when::argument(slot.start, zone)) };
        format!("{} --start {start} {end}", nodes.join(" "))
    }
}

impl Why {
    /// The cause, as a lowercase fragment for an error.
    pub(crate) fn cause(&self, policy: &Policy, zone: &TimeZone) -> String {
        let gap = when::length(policy.gap);
        match self {
            Self::NoSuchHost { name, .. } => format!("there is no host `{name}`"),
            Self::NoneMatches { wanted, there } if there.is_empty() => format!("there is no host with {wanted}"),
            Self::NoneMatches { wanted, there } => {
                format!("there is no host with {wanted}; available: {}", there.join(", "))
            }
            Self::TooFew { there, asked } => format!("{asked} hosts were requested, and only {there} can be reserved"),
            Self::Closed { host, why } => format!("{host} cannot be reserved: {why}"),
            Self::Taken { host, by } => {
                format!("{host} is taken: {} {}", taken(by), when::span(by.start, by.end, zone))
            }
            Self::TooShort { host, until, by } => format!(
                "{host} is free only until {}: {} from {} on, and {gap} before that must stay free",
                when::both(*until, zone),
                taken(by),
                when::both(by.start, zone)
            ),
            Self::NotTogether { free, asked } => {
                format!("{asked} hosts were requested, and only {free} are free for long enough at that time")
            }
            Self::Stacking { host, by } => format!(
                "{} {}: one lease right after another on the same host is against the site's policy",
                taken(by).replacen("it", host, 1),
                when::span(by.start, by.end, zone)
            ),
            Self::TooLong { asked } => format!(
                "{} is longer than the site allows, which is {}",
                when::length(*asked),
                when::length(policy.longest)
            ),
            Self::Past { at } => format!("{} is in the past", when::both(*at, zone)),
            Self::Backwards => "it would end before it begins".to_owned(),
            Self::NeverFree => {
                format!("nothing is free for that long within {}", when::length(policy.horizon))
            }
        }
    }
}
