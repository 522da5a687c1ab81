//! Costs: amounts in a unit, and hourly prices.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The unit of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// US dollars.
    #[serde(rename = "USD")]
    Usd,
    /// Service units of a research site, in which allocations are counted.
    #[serde(rename = "SU")]
    ServiceUnit,
}

impl fmt::Display for Unit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Usd => "USD",
            Self::ServiceUnit => "SU",
        })
    }
}

/// An amount, in millionths of its unit, so that sums of minutes are exact enough.
///
/// In JSON it is `{"amount": 3.29, "unit": "USD"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub struct Money {
    /// Millionths of the unit.
    pub micros: u64,
    /// The unit.
    pub unit: Unit,
}

/// The serialized form, in files and in JSON.
#[derive(Serialize, Deserialize)]
struct Form {
    amount: f64,
    unit: Unit,
}

impl From<Form> for Money {
    fn from(form: Form) -> Self {
        Self { micros: (form.amount * 1e6).round() as u64, unit: form.unit }
    }
}

impl From<Money> for Form {
    fn from(money: Money) -> Self {
        Self { amount: money.micros as f64 / 1e6, unit: money.unit }
    }
}

impl fmt::Display for Money {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Sites show service units without decimals where they are whole.
        if self.unit == Unit::ServiceUnit && self.micros.is_multiple_of(1_000_000) {
            return write!(out, "{} {}", self.micros / 1_000_000, self.unit);
        }
        let cents = self.micros.div_ceil(10_000);
        write!(out, "{}.{:02} {}", cents / 100, cents % 100, self.unit)
    }
}

/// The price of one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HourlyPrice(pub Money);

impl HourlyPrice {
    /// A price in US cents an hour, as cloud providers list it. Saturates on overflow: confirmations and cost limits
    /// depend on it, so a price must never look lower than it is.
    pub const fn cents(cents: u64) -> Self {
        Self(Money { micros: cents.saturating_mul(10_000), unit: Unit::Usd })
    }

    /// A price in service units an hour; `None` if negative, not finite or too large.
    pub fn service_units(units: f64) -> Option<Self> {
        let micros = (units * 1e6).round();
        (0.0..1e15).contains(&micros).then_some(Self(Money { micros: micros as u64, unit: Unit::ServiceUnit }))
    }

    /// The cost of this much time.
    pub fn over(self, time: Duration) -> Money {
        let micros = u128::from(self.0.micros).saturating_mul(time.as_millis()) / 3_600_000;
        Money { micros: u64::try_from(micros).unwrap_or(u64::MAX), unit: self.0.unit }
    }

    /// How much time this amount pays for; `None` if the units differ or the price is zero.
    pub fn time_for(self, money: Money) -> Option<Duration> {
        if self.0.unit != money.unit || self.0.micros == 0 {
            return None;
        }
        let millis = u128::from(money.micros) * 3_600_000 / u128::from(self.0.micros);
        Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for HourlyPrice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The sums of these amounts, one per unit.
pub fn sums(amounts: impl IntoIterator<Item = Money>) -> Vec<Money> {
    let mut sums = std::collections::BTreeMap::<Unit, u64>::new();
    for money in amounts {
        let sum = sums.entry(money.unit).or_default();
        *sum = sum.saturating_add(money.micros);
    }
    sums.into_iter().map(|(unit, micros)| Money { micros, unit }).collect()
}

/// Amounts as text: `3.29 USD, 4 SU`, or `nothing` if there are none.
pub fn describe(amounts: &[Money]) -> String {
    match amounts {
        [] => "nothing".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        assert_eq!(HourlyPrice::cents(329).to_string(), "3.29 USD");
        assert_eq!(HourlyPrice::service_units(4.0).unwrap().to_string(), "4 SU");
        assert_eq!(HourlyPrice::service_units(1.5).unwrap().to_string(), "1.50 SU");
        // Rounded up: never less than the amount.
        assert_eq!(Money { micros: 1, unit: Unit::Usd }.to_string(), "0.01 USD");
        assert_eq!(HourlyPrice::service_units(f64::NAN), None);
    }

    #[test]
    fn a_price_survives_serialization() {
        let price = HourlyPrice::cents(329);
        let text = serde_json::to_string(&price).unwrap();
        assert_eq!(text, r#"{"amount":3.29,"unit":"USD"}"#);
        assert_eq!(serde_json::from_str::<HourlyPrice>(&text).unwrap(), price);
    }

    #[test]
    fn time_and_money_follow_from_each_other() {
        let price = HourlyPrice::cents(120);
        let half_an_hour = price.over(Duration::from_secs(1800));
        assert_eq!(half_an_hour.to_string(), "0.60 USD");
        assert_eq!(price.time_for(half_an_hour), Some(Duration::from_secs(1800)));
        assert_eq!(price.time_for(Money { unit: Unit::ServiceUnit, ..half_an_hour }), None);
        assert_eq!(HourlyPrice::cents(0).time_for(half_an_hour), None);
    }

    #[test]
    fn a_huge_price_or_time_is_never_cheap() {
        let most = Money { micros: u64::MAX, unit: Unit::Usd };
        for cents in [u64::MAX, u64::MAX / 10_000 + 1, 1 << 51] {
            assert_eq!(HourlyPrice::cents(cents).0, most, "{cents}");
        }
        assert_eq!(HourlyPrice::cents(u64::MAX / 10_000).to_string(), "18446744073709.55 USD");
        let (huge, long) = (HourlyPrice::cents(u64::MAX), Duration::MAX);
        assert_eq!((huge.over(long), huge.over(Duration::from_secs(7200))), (most, most));
        assert_eq!(HourlyPrice::cents(129).over(long), most);
        assert_eq!(huge.time_for(HourlyPrice::cents(1).0), Some(Duration::ZERO));
        let least = HourlyPrice(Money { micros: 1, unit: Unit::Usd });
        assert_eq!(least.time_for(most), Some(Duration::from_millis(u64::MAX)));
        assert_eq!(sums([most, most]), [most]);
        assert_eq!(most.to_string(), "18446744073709.56 USD");
        for text in [r#"{"amount":1e300,"unit":"USD"}"#, r#"{"amount":18446744073710,"unit":"USD"}"#] {
            assert_eq!(serde_json::from_str::<Money>(text).unwrap(), most, "{text}");
        }
    }

    #[test]
    fn units_are_not_added_to_each_other() {
        let (usd, su) = (HourlyPrice::cents(100).0, HourlyPrice::service_units(2.0).unwrap().0);
        assert_eq!(describe(&sums([usd, su, usd])), "2.00 USD, 2 SU");
        assert_eq!(describe(&[]), "nothing");
    }
}
