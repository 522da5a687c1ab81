//! What a person is told before a lease is made: when, on what, for how much; or what is free instead.

use super::cloud::Cloud;
use super::slots::{NoSlot, Slot};
use crate::error::Error;
use crate::provider::{CalendarRow, LeaseAsk};
use crate::util::when;

/// The error of an ask that cannot be had, with the free slots.
pub(super) fn no_slot(cloud: &Cloud, none: &NoSlot, ask: &LeaseAsk) -> Error {
    none.error("reserve hosts", ask, &cloud.policy(), &cloud.zone())
}

/// What a person should know before a lease is made: when, on what, and for how much.
pub(super) fn proposal_notes(cloud: &Cloud, rows: &[CalendarRow], slot: &Slot) -> Vec<String> {
    let price = price(rows, slot);
    let cost = if price.is_empty() { String::new() } else { format!(", {price}") };
    let told = when::span(slot.start, slot.end, &cloud.zone());
    let mut notes = vec![format!("it asks for a lease on {}: {told}{cost}", slot.hosts.join(", "))];
    notes.extend(slot.notes.iter().cloned());
    notes
}

/// What a slot costs in all, where the service tells what its hosts cost.
pub(super) fn price(rows: &[CalendarRow], slot: &Slot) -> String {
    let hours = when::between(slot.start, slot.end).as_secs_f64() / 3600.0;
    let per_hour =
        |name: &String| Some(rows.iter().find(|row| row.name == *name)?.price_per_hour?.0.micros as f64 / 1e6);
    match slot.hosts.iter().map(per_hour).sum::<Option<f64>>() {
        Some(sum) => format!("{:.1} SU", sum * hours).replace(".0 ", " "),
        None => String::new(),
    }
}
