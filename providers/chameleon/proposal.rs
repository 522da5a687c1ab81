//! Notes shown before a lease is made: time, hosts and price; or the free slots instead.

use super::cloud::Cloud;
use super::slots::{NoSlot, Slot};
use crate::error::Error;
use crate::provider::{CalendarRow, LeaseAsk};
use crate::util::when;

/// The error for a request that has no slot, with the free slots as hints.
pub(super) fn no_slot(cloud: &Cloud, none: &NoSlot, ask: &LeaseAsk) -> Error {
    none.error("reserve hosts", ask, &cloud.policy(), &cloud.zone())
}

/// The plan's notes on a lease to be made: hosts, time and price.
pub(super) fn proposal_notes(cloud: &Cloud, rows: &[CalendarRow], slot: &Slot) -> Vec<String> {
    let price = price(rows, slot);
    let cost = if price.is_empty() { String::new() } else { format!(", {price}") };
    let span = when::span(slot.start, slot.end, &cloud.zone());
    let mut notes = vec![format!("it asks for a lease on {}: {span}{cost}", slot.hosts.join(", "))];
    notes.extend(slot.notes.iter().cloned());
    notes
}

/// The total price of a slot in service units (SU); empty if the service does not report the price of a host.
pub(super) fn price(rows: &[CalendarRow], slot: &Slot) -> String {
    let hours = when::between(slot.start, slot.end).as_secs_f64() / 3600.0;
    let per_hour =
        |name: &String| Some(rows.iter().find(|row| row.name == *name)?.price_per_hour?.0.micros as f64 / 1e6);
    match slot.hosts.iter().map(per_hour).sum::<Option<f64>>() {
        Some(sum) => format!("{:.1} SU", sum * hours).replace(".0 ", " "),
        None => String::new(),
    }
}
