//! What an item of a cluster is, how far it has come, and what it costs an hour.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::money::HourlyPrice;

/// The kind of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "of")]
pub enum ItemKind {
    /// A resource, with the provider's name for its kind.
    Resource(String),
    /// A project: what runs on a host.
    Project,
}

/// The progress of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// The call that creates it may have been sent; only `observe` shows whether it exists.
    Requested,
    /// It exists and its id is known.
    Exists,
    /// It is usable.
    Ready,
    /// The call that removes it may have been sent.
    Releasing,
}

/// The price of an item while it exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priced {
    /// The price per hour.
    pub price: HourlyPrice,
    /// When the cost begins, if not when the id is recorded: a lease costs from its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
}
