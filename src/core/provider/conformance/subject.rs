//! What the suite is run on.

use std::time::Duration;

use serde_json::Value;

use crate::error::Result;
use crate::name::Owner;
use crate::provider::Provider;
use crate::util::random;

/// What is tested.
pub struct Subject<'a> {
    /// The provider under test.
    pub provider: &'a dyn Provider,
    /// The entry of `hosts:` to request.
    pub host: Value,
    /// The owner of the resources.
    pub owner: Owner,
    /// Another owner in the same account.
    pub stranger: Owner,
    /// How long a resource may take to become usable, or to disappear.
    pub patience: Duration,
    /// How long the effect of a call may be missing from `observe`: the capability's value, or less if known to be.
    pub consistency_delay: Duration,
    /// The numbers of polls after which a call is dropped: one try each, in this order.
    pub cuts: Vec<usize>,
}

/// The highest number of polls after which a call is dropped.
const MOST_POLLS: usize = 64;
/// The cuts for providers where each try takes minutes and costs money.
const FEW_CUTS: [usize; 5] = [1, 3, 9, 27, MOST_POLLS];

impl<'a> Subject<'a> {
    /// Creates one that requests a host without settings, under new random owners.
    pub fn new(provider: &'a dyn Provider) -> Result<Self> {
        let owner = || random::letters(8)?.parse().map_err(internal);
        let host = Value::Object(serde_json::Map::new());
        let capability = provider.capability();
        let (minutes, cuts) =
            if capability.costs_money { (40, FEW_CUTS.to_vec()) } else { (1, (1..=MOST_POLLS).collect()) };
        let patience = Duration::from_secs(minutes * 60);
        Ok(Self {
            provider,
            host,
            owner: owner()?,
            stranger: owner()?,
            patience,
            consistency_delay: capability.consistency_delay,
            cuts,
        })
    }
}

fn internal(error: crate::name::NameError) -> crate::error::Error {
    crate::error::Error::new(crate::error::ErrorKind::Internal, "create an owner").caused_by(&error)
}
