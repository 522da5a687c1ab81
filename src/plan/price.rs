//! What an hour of what is asked for costs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Action, Plan};
use crate::money::{HourlyPrice, Money, describe, sums};
use crate::provider::ResourceRequest;

/// What an hour of some things costs, and what they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Price {
    /// The sums, one for each unit.
    pub per_hour: Vec<Money>,
    /// What they are the sums of: `4 x gpu_8x_a100`.
    pub of: Vec<String>,
}

impl Price {
    /// What these cost; what was made by somebody else is not paid for by this.
    pub fn of<'a>(requests: impl IntoIterator<Item = &'a ResourceRequest>) -> Self {
        let mut counts = BTreeMap::<&str, usize>::new();
        let mut prices = Vec::new();
        for request in requests.into_iter().filter(|request| request.adopted.is_none()) {
            let Some(HourlyPrice(price)) = request.found.price else { continue };
            *counts.entry(request.label()).or_default() += 1;
            prices.push(price);
        }
        let of = counts.into_iter().map(|(label, count)| format!("{count} x {label}"));
        Self { per_hour: sums(prices), of: of.collect() }
    }

    /// Nothing of it has a price.
    pub fn is_none(&self) -> bool {
        self.per_hour.is_empty()
    }

    /// It is more than this, in this unit.
    pub fn is_above(&self, limit: Money) -> bool {
        self.per_hour.iter().any(|sum| sum.unit == limit.unit && sum.micros > limit.micros)
    }
}

/// `25.92 USD an hour (4 x gpu_8x_a100)`.
impl fmt::Display for Price {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} an hour ({})", describe(&self.per_hour), self.of.join(", "))
    }
}

impl Plan {
    /// What an hour costs of all that this acquires.
    pub fn price(&self) -> Price {
        Price::of(self.operations.iter().filter_map(|operation| match &operation.action {
            Action::Acquire { request } => Some(request),
            _ => None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::name::Key;
    use crate::provider::{Finding, ResourceKind};

    fn request(index: usize, cents: Option<u64>, label: Option<&str>) -> ResourceRequest {
        ResourceRequest {
            key: Key::host(index),
            kind: ResourceKind("instance".to_owned()),
            settings: json!({}),
            found: Finding {
                label: label.map(str::to_owned),
                price: cents.map(HourlyPrice::cents),
                ..Finding::default()
            },
            adopted: None,
            needs: Vec::new(),
            is_host: true,
        }
    }

    #[test]
    fn what_is_paid_for_is_added_up_and_named() {
        let big = |index| request(index, Some(648), Some("gpu_8x_a100"));
        let free = request(9, None, Some("key"));
        let all = [big(0), big(1), big(2), big(3), free.clone()];
        let price = Price::of(&all);
        assert_eq!(price.to_string(), "25.92 USD an hour (4 x gpu_8x_a100)");
        let usd = |cents| HourlyPrice::cents(cents).0;
        assert!(price.is_above(usd(2591)) && !price.is_above(usd(2592)));
        assert!(!price.is_above(HourlyPrice::service_units(1.0).unwrap().0), "of another unit");
        let mixed = [big(0), request(1, Some(100), None), free];
        assert_eq!(Price::of(&mixed).to_string(), "7.48 USD an hour (1 x gpu_8x_a100, 1 x instance)");
        let others = ResourceRequest { adopted: Some("l-1".to_owned()), ..big(0) };
        assert!(Price::of(&[others]).is_none());
    }
}
