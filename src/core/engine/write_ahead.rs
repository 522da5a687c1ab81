//! The write-ahead protocol: the journal records an intention before the call is sent, and the outcome after it.
//! A crash in between leaves an item of unknown state; the next plan finds it by its tag.

use std::future::Future;

use jiff::Timestamp;

use super::Ledger;
use crate::error::{ErrorKind, LeftBehind, Result};
use crate::name::Key;
use crate::provider::ResourceRequest;
use crate::state::{ItemKind, Record};

/// Creates one resource, and returns its id, which the call must record in the ledger as soon as it is known. The cost
/// counts from then, or from `costs_from`.
pub async fn making(
    ledger: &Ledger,
    request: &ResourceRequest,
    costs_from: Option<Timestamp>,
    call: impl Future<Output = Result<String>>,
) -> Result<String> {
    let key = &request.key;
    let kind = ItemKind::Resource(request.kind.0.clone());
    ledger.write(Record::Requested { key: key.clone(), kind, digest: request.digest() })?;
    if let Some(price) = request.found.price {
        ledger.write(Record::Priced { key: key.clone(), price, from: costs_from })?;
    }
    let made = call.await;
    if let Err(error) = &made {
        // A refusal for lack of capacity is certain: nothing was created, and there is nothing to recover.
        if error.kind() == ErrorKind::Capacity && *error.left_behind() == LeftBehind::Clear && !has_id(ledger, key) {
            ledger.write(Record::Gone { key: key.clone() })?;
        }
    }
    made
}

/// Removes an item, with a record before and after the call.
pub async fn removing(ledger: &Ledger, key: &Key, call: impl Future<Output = Result<()>>) -> Result<()> {
    ledger.write(Record::Releasing { key: key.clone() })?;
    call.await?;
    ledger.write(Record::Gone { key: key.clone() })
}

/// Whether the journal has an id for this key.
pub fn has_id(ledger: &Ledger, key: &Key) -> bool {
    ledger.state().items.get(key).is_some_and(|item| item.id.is_some())
}
