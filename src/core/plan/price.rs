//! The hourly price of a plan.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Action, Plan, ResourceAction};
use crate::money::{HourlyPrice, Money, describe, sums};
use crate::provider::ResourceRequest;

/// The hourly price of some resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Price {
    /// The sums per hour, one for each unit.
    pub per_hour: Vec<Money>,
    /// The priced resources, such as `4 x gpu_8x_a100`.
    pub of: Vec<String>,
}

impl Price {
    /// The price of these requests, without adopted resources.
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

    /// Whether nothing has a price.
    pub fn is_none(&self) -> bool {
        self.per_hour.is_empty()
    }

    /// Whether the sum in the limit's unit exceeds the limit.
    pub fn is_above(&self, limit: Money) -> bool {
        self.per_hour.iter().any(|sum| sum.unit == limit.unit && sum.micros > limit.micros)
    }
}

/// Formats as `25.92 USD an hour (4 x gpu_8x_a100)`.
impl fmt::Display for Price {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} an hour ({})", describe(&self.per_hour), self.of.join(", "))
    }
}

impl Plan {
    /// The hourly price of all resources that the plan acquires.
    pub fn price(&self) -> Price {
        Price::of(self.operations.iter().filter_map(|operation| match &operation.action {
            Action::Resource(ResourceAction::Acquire { request }) => Some(request),
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
    fn priced_resources_are_added_up_and_named() {
        let big = |index| request(index, Some(648), Some("gpu_8x_a100"));
        let free = request(9, None, Some("key"));
        let all = [big(0), big(1), big(2), big(3), free.clone()];
        let price = Price::of(&all);
        assert_eq!(price.to_string(), "25.92 USD an hour (4 x gpu_8x_a100)");
        let usd = |cents| HourlyPrice::cents(cents).0;
        assert!(price.is_above(usd(2591)) && !price.is_above(usd(2592)));
        assert!(!price.is_above(HourlyPrice::service_units(1.0).unwrap().0), "another unit");
        let mixed = [big(0), request(1, Some(100), None), free];
        assert_eq!(Price::of(&mixed).to_string(), "7.48 USD an hour (1 x gpu_8x_a100, 1 x instance)");
        let others = ResourceRequest { adopted: Some("l-1".to_owned()), ..big(0) };
        assert!(Price::of(&[others]).is_none());
    }
}
