//! The estimated cost of a cluster, from the journal. No provider reports what was billed, so amounts are "about".

use jiff::Timestamp;
use serde::Serialize;

use super::cluster::{ClusterState, Item};
use super::item::ItemKind;
use super::notes::Notes;
use crate::money::{HourlyPrice, Money, describe, sums};
use crate::name::Key;
use crate::util::when::between;

/// The cost of a cluster, one amount per unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Spending {
    /// The price per hour of existing items.
    pub per_hour: Vec<Money>,
    /// The cost so far, including items that are gone.
    pub so_far: Vec<Money>,
}

impl Spending {
    /// Whether nothing costs or has cost anything.
    pub fn is_none(&self) -> bool {
        self.per_hour.is_empty() && self.so_far.is_empty()
    }

    /// Formats as `3.29 USD an hour, about 1.20 USD so far`.
    pub fn describe(&self) -> String {
        match self.per_hour.as_slice() {
            [] => format!("nothing now, about {} so far", describe(&self.so_far)),
            per_hour => format!("{} an hour, about {} so far", describe(per_hour), describe(&self.so_far)),
        }
    }
}

impl Item {
    /// The cost so far, and the current price per hour.
    fn cost(&self, at: Timestamp, since: Timestamp) -> Option<(Money, Option<HourlyPrice>)> {
        let priced = self.priced.as_ref()?;
        let time = between(priced.from.unwrap_or(since), at);
        // An item that begins later costs nothing yet.
        match std::time::Duration::try_from(time) {
            Ok(time) => Some((priced.price.over(time), Some(priced.price))),
            Err(_) => Some((priced.price.over(std::time::Duration::ZERO), None)),
        }
    }
}

impl ClusterState {
    /// The known cost at this time.
    pub fn spending(&self, at: Timestamp) -> Spending {
        self.spending_of(at, |item| item.exists_since)
    }

    /// The upper bound of the cost at this time: requests without a response count as if the item existed.
    pub fn spending_at_most(&self, at: Timestamp) -> Spending {
        self.spending_of(at, |item| Some(item.exists_since.unwrap_or(item.since)))
    }

    fn spending_of(&self, at: Timestamp, since: impl Fn(&Item) -> Option<Timestamp>) -> Spending {
        let costs: Vec<_> = self.items.values().filter_map(|item| item.cost(at, since(item)?)).collect();
        let so_far = self.spent.iter().copied().chain(costs.iter().map(|(cost, _)| *cost));
        Spending {
            per_hour: sums(costs.iter().filter_map(|(_, price)| price.map(|price| price.0))),
            so_far: sums(so_far),
        }
    }

    /// Adds the cost of an item that is gone.
    pub(super) fn spend(&mut self, item: &Item, at: Timestamp) {
        if let Some((cost, _)) = item.exists_since.and_then(|since| item.cost(at, since)) {
            self.spent = sums(self.spent.iter().copied().chain([cost]));
        }
    }

    /// When its deadline begins to count, also if the acquiring command died before it recorded an id.
    pub fn begun_at_most(&self) -> Option<Timestamp> {
        let asked = self.items.iter().filter(|(key, item)| counts(key, item));
        self.begun.or_else(|| asked.filter_map(|(_, item)| began(item, Some(item.since))).min())
    }

    /// Starts the deadline at the first host, at what runs the nodes on a platform, or at the first item with a price.
    pub(super) fn begin(&mut self, key: &Key) {
        let Some(item) = self.items.get(key).filter(|item| counts(key, item)) else { return };
        if let Some(begun) = began(item, item.exists_since) {
            self.begun = Some(self.begun.map_or(begun, |before| before.min(begun)));
        }
    }
}

/// Whether an item starts the deadline.
fn counts(key: &Key, item: &Item) -> bool {
    let runs_nodes = key.is_host() || matches!(item.notes, Notes::Platform(_));
    matches!(item.kind, ItemKind::Resource(_)) && (runs_nodes || item.priced.is_some())
}

/// When an item began to exist, or will begin to cost.
fn began(item: &Item, since: Option<Timestamp>) -> Option<Timestamp> {
    let since = since?;
    Some(item.priced.as_ref().and_then(|priced| priced.from).unwrap_or(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Unit;
    use crate::name::Scope;
    use crate::state::Record;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-21T{text}:00Z").parse().unwrap()
    }

    fn known() -> ClusterState {
        let scope = Scope { owner: "abcdefgh".parse().unwrap(), cluster: "demo".parse().unwrap() };
        ClusterState::new(&scope, at("10:00"))
    }

    fn launch(known: &mut ClusterState, key: &Key, price: Option<u64>, from: Option<Timestamp>, when: &str) {
        let kind = ItemKind::Resource("instance".to_owned());
        known.apply(Record::Requested { key: key.clone(), kind, digest: String::new() }, at(when));
        if let Some(cents) = price {
            known.apply(Record::Priced { key: key.clone(), price: HourlyPrice::cents(cents), from }, at(when));
        }
    }

    fn exists(known: &mut ClusterState, key: &Key, id: &str, when: &str) {
        known.apply(Record::Exists { key: key.clone(), id: id.to_owned() }, at(when));
    }

    #[test]
    fn the_cost_counts_from_launch_to_release_and_includes_gone_items() {
        let (mut known, host) = (known(), Key::host(0));
        launch(&mut known, &host, Some(120), None, "10:00");
        // Without an id it may not exist.
        assert!(known.spending(at("10:30")).so_far.is_empty());
        assert_eq!(describe(&known.spending_at_most(at("10:30")).so_far), "0.60 USD");
        exists(&mut known, &host, "i-1", "10:05");
        // Reported again by `observe`, it is as old as before.
        exists(&mut known, &host, "i-1", "10:20");
        assert_eq!(known.spending(at("11:05")).describe(), "1.20 USD an hour, about 1.20 USD so far");
        // A clock that was set back makes no cost negative.
        assert_eq!(describe(&known.spending(at("09:00")).so_far), "0.00 USD");
        // It is replaced: the predecessor was paid for as well.
        launch(&mut known, &host, Some(240), None, "11:05");
        exists(&mut known, &host, "i-2", "11:05");
        assert_eq!(known.spending(at("12:05")).describe(), "2.40 USD an hour, about 3.60 USD so far");
        known.apply(Record::Gone { key: host }, at("12:05"));
        assert_eq!(known.spending(at("15:00")).describe(), "nothing now, about 3.60 USD so far");
        assert_eq!(known.begun, Some(at("10:05")));
        let again: ClusterState = serde_json::from_value(serde_json::to_value(&known).unwrap()).unwrap();
        assert_eq!(again, known);
    }

    #[test]
    fn a_lease_costs_from_its_start_and_the_deadline_counts_from_there() {
        let (mut known, lease) = (known(), Key::numbered("lease", 0));
        launch(&mut known, &lease, Some(400), Some(at("14:00")), "10:00");
        exists(&mut known, &lease, "l-1", "10:00");
        assert_eq!(known.begun, Some(at("14:00")));
        assert_eq!(known.spending(at("12:00")).describe(), "nothing now, about 0.00 USD so far");
        assert_eq!(known.spending(at("15:00")).describe(), "4.00 USD an hour, about 4.00 USD so far");
        launch(&mut known, &Key::host(0), None, None, "14:01");
        exists(&mut known, &Key::host(0), "s-1", "14:01");
        assert_eq!(known.begun, Some(at("14:00")));
    }

    #[test]
    fn the_deadline_counts_from_the_first_host_even_without_a_price() {
        let mut known = known();
        launch(&mut known, &Key::numbered("key", 0), None, None, "10:00");
        exists(&mut known, &Key::numbered("key", 0), "k", "10:00");
        assert_eq!((known.begun, known.begun_at_most()), (None, None));
        launch(&mut known, &Key::host(0), None, None, "10:10");
        // The requesting command died: the host may exist.
        assert_eq!((known.begun, known.begun_at_most()), (None, Some(at("10:10"))));
        exists(&mut known, &Key::host(0), "h", "10:20");
        launch(&mut known, &Key::host(1), None, None, "11:00");
        exists(&mut known, &Key::host(1), "h2", "11:00");
        assert_eq!(known.begun, Some(at("10:20")));
    }

    #[test]
    fn the_deadline_of_a_cluster_on_a_platform_counts_from_what_runs_its_nodes() {
        let mut known = known();
        let (token, cluster) = (Key::numbered("token", 0), Key::numbered("raycluster", 0));
        for (key, when) in [(&token, "10:00"), (&cluster, "10:01")] {
            launch(&mut known, key, None, None, when);
            exists(&mut known, key, "uid", when);
        }
        assert_eq!(known.begun, None);
        known.apply(Record::Noted { key: cluster, notes: Notes::Platform(Box::default()) }, at("10:02"));
        assert_eq!(known.begun, Some(at("10:01")));
    }

    #[test]
    fn each_unit_has_its_own_sum() {
        let mut known = known();
        known.spent = vec![Money { micros: 2_000_000, unit: Unit::ServiceUnit }];
        launch(&mut known, &Key::host(0), Some(100), None, "10:00");
        exists(&mut known, &Key::host(0), "h", "10:00");
        assert_eq!(known.spending(at("11:00")).describe(), "1.00 USD an hour, about 1.00 USD, 2 SU so far");
    }
}
