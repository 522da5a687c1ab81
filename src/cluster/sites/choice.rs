//! Which of several sites a request goes to, and why. Pure.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::SiteFailure;
use crate::money::HourlyPrice;
use crate::util::when;

/// What one site offers for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteOffer {
    /// The site.
    pub site: String,
    /// When it begins; `None` for at once.
    pub start: Option<Timestamp>,
    /// The price of an hour, if known.
    pub price: Option<HourlyPrice>,
}

/// The offer to take: the earliest start, then the cheapest, then the first. A price that is unknown is the highest.
pub fn best(offers: &[SiteOffer]) -> Option<usize> {
    let rank = |offer: &SiteOffer| (offer.start.unwrap_or(Timestamp::MIN), offer.price.map_or(u64::MAX, micros));
    (0..offers.len()).min_by_key(|index| rank(&offers[*index]))
}

/// Why the request goes to the chosen offer: `it goes to CHI@TACC: free now; CHI@UC only from Mon 23 Nov 14:00 UTC`.
pub fn why(offers: &[SiteOffer], chosen: usize, failed: &[SiteFailure], zone: &TimeZone) -> String {
    let Some(best) = offers.get(chosen) else { return String::new() };
    let price =
        |offer: &SiteOffer| offer.price.map_or_else(|| "an unknown price".to_owned(), |price| price.to_string());
    let free = match best.start {
        None => "free now".to_owned(),
        Some(at) => format!("free from {}", when::both(at, zone)),
    };
    let mut parts = vec![format!("it goes to {}: {free}", best.site)];
    for (index, other) in offers.iter().enumerate().filter(|(index, _)| *index != chosen) {
        let _ = index;
        parts.push(match other.start {
            Some(at) if other.start != best.start => format!("{} only from {}", other.site, when::both(at, zone)),
            _ if other.price == best.price => format!("{} also then, at the same price", other.site),
            _ => format!("{} also then, for {} an hour and not {}", other.site, price(other), price(best)),
        });
    }
    for failure in failed {
        let because = failure.error.causes().first().cloned().unwrap_or_else(|| failure.error.to_string());
        parts.push(format!("{}: {because}", failure.name()));
    }
    parts.join("; ")
}

fn micros(price: HourlyPrice) -> u64 {
    price.0.micros
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::money::{Money, Unit};
    use crate::state::LeaseSource;

    fn offer(site: &str, start: Option<&str>, micros: Option<u64>) -> SiteOffer {
        let price = micros.map(|micros| HourlyPrice(Money { micros, unit: Unit::ServiceUnit }));
        SiteOffer { site: site.to_owned(), start: start.map(|at| at.parse().unwrap()), price }
    }

    #[test]
    fn the_earliest_start_is_taken_and_then_the_cheapest() {
        let later = Some("2026-11-23T20:00:00Z");
        let table: &[(&[SiteOffer], usize)] = &[
            (&[offer("A", later, Some(1)), offer("B", None, Some(9))], 1),
            (&[offer("A", None, Some(9)), offer("B", None, Some(1))], 1),
            (&[offer("A", None, None), offer("B", None, Some(9))], 1),
            (&[offer("A", later, Some(2)), offer("B", later, Some(2))], 0),
        ];
        for (offers, expected) in table {
            assert_eq!(best(offers), Some(*expected), "{offers:?}");
        }
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn the_reason_names_each_site() {
        let offers = [
            offer("CHI@TACC", None, Some(2_000_000)),
            offer("CHI@UC", Some("2026-11-23T20:00:00Z"), Some(1_000_000)),
            offer("CHI@NU", None, Some(3_000_000)),
            offer("CHI@NRP", None, Some(2_000_000)),
        ];
        let source = LeaseSource {
            provider: "chameleon".to_owned(),
            settings: serde_json::json!({"site": "CHI@NCAR"}),
            place: String::new(),
        };
        let failed =
            [SiteFailure { source, error: Error::new(ErrorKind::NotFound, "x").because("there is no host `a`") }];
        assert_eq!(
            why(&offers, 0, &failed, &TimeZone::UTC),
            "it goes to CHI@TACC: free now; CHI@UC only from Mon 23 Nov 20:00 UTC; CHI@NU also then, for 3 SU an hour and \
             not 2 SU; CHI@NRP also then, at the same price; CHI@NCAR: there is no host `a`"
        );
    }
}
