//! The write-ahead protocol: what a call makes or removes stands in the journal before the call is sent, and what came of it after.
//! A crash in between leaves an item that only `observe` can tell of; the next plan looks for it by its tag.

use std::future::Future;

use jiff::Timestamp;

use super::Ledger;
use crate::error::{ErrorKind, LeftBehind, Result};
use crate::name::Key;
use crate::provider::ResourceRequest;
use crate::state::{ItemKind, Record};

/// Makes one resource. The call gives its id to the ledger as soon as it knows it; what it costs counts from then on, or from `costs_from`.
pub async fn making(
    ledger: &Ledger,
    request: &ResourceRequest,
    costs_from: Option<Timestamp>,
    call: impl Future<Output = Result<()>>,
) -> Result<()> {
    let key = &request.key;
    let kind = ItemKind::Resource(request.kind.0.clone());
    ledger.write(Record::Requested { key: key.clone(), kind, digest: request.digest() })?;
    if let Some(price) = request.found.price {
        ledger.write(Record::Priced { key: key.clone(), price, from: costs_from })?;
    }
    match call.await {
        Ok(()) => ledger.write(Record::Ready { key: key.clone() }),
        Err(error) => {
            // A refusal for want of capacity is sure: nothing came of it, and nothing is to be looked for.
            if error.kind() == ErrorKind::Capacity && *error.left_behind() == LeftBehind::Clear && !has_id(ledger, key)
            {
                ledger.write(Record::Gone { key: key.clone() })?;
            }
            Err(error)
        }
    }
}

/// Removes an item.
pub async fn removing(ledger: &Ledger, key: &Key, call: impl Future<Output = Result<()>>) -> Result<()> {
    ledger.write(Record::Releasing { key: key.clone() })?;
    call.await?;
    ledger.write(Record::Gone { key: key.clone() })
}

/// Something of this key is there, as far as the journal tells.
pub fn has_id(ledger: &Ledger, key: &Key) -> bool {
    ledger.state().items.get(key).is_some_and(|item| item.id.is_some())
}
