//! The part of the matrix that differs between providers.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use gpucl::name::{Scope, Tag};
use jiff::Timestamp;
use serde_json::Value;

use super::row::Call;

/// Something that a cloud holds.
pub(crate) trait Thing: Debug + Ord + Send {
    fn kind(&self) -> &'static str;
    fn id(&self) -> &str;
    fn tag(&self) -> Option<Tag>;
}

/// The resource on which a deliberate bug is tried.
pub(crate) struct Victim {
    pub(crate) kind: &'static str,
    /// JSON pointer to its id in the answer to its creation.
    pub(crate) id: &'static str,
    /// The kinds that are forgotten with it.
    pub(crate) forgotten: &'static [&'static str],
}

/// A provider's services: how the program comes to them, what they hold, and how their requests are made to fail.
#[async_trait]
pub(crate) trait Cloud: Send + Sync + 'static {
    type Thing: Thing;

    /// The provider's name.
    const PROVIDER: &'static str;
    /// Number of 429 answers after which the program gives up.
    const LIMITED: u32;
    /// The consistency delay, where it differs from the provider's.
    const CONSISTENCY_DELAY: Option<Duration> = None;
    /// The resource that a provider with a deliberate bug treats wrongly.
    const VICTIM: Victim;

    /// Environment variables with which the provider is opened.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// The provider's settings in a spec that needs these kinds.
    fn settings(&self, wanted: &[&str]) -> Value;

    /// The host entries of the spec.
    fn hosts(&self) -> Vec<Value>;

    /// The kinds of the wanted resources in a row of this call.
    fn wanted(&self, call: Call) -> Vec<&'static str>;

    /// Injects a fault into the next `count` requests of this call, and removes all other faults.
    async fn fail(&self, call: Call, fault: &str, count: u32);

    async fn fail_no_more(&self);

    /// Whether a request met a fault.
    async fn has_failed(&self) -> bool;

    /// Excludes earlier resources from [`Cloud::doubled`]; unnecessary where there is only one row.
    async fn count_anew(&self);

    /// A resource that was created more often than wanted, whatever the answers were.
    async fn doubled(&self) -> Option<String>;

    /// All resources, with or without a tag.
    async fn held(&self) -> Vec<Self::Thing>;

    /// The resources with a tag of this scope.
    async fn of(&self, scope: &Scope) -> Vec<Self::Thing> {
        let mut held = self.held().await;
        held.retain(|thing| thing.tag().is_some_and(|tag| scope.holds(&tag)));
        held
    }

    /// Resources that no row may touch: all that exist before it.
    async fn not_ours(&self) -> BTreeSet<Self::Thing> {
        self.held().await.into_iter().collect()
    }

    /// The lease of this scope and its end, where there are leases.
    async fn lease(&self, _scope: &Scope) -> Option<(String, Timestamp)> {
        None
    }

    /// Makes a victim without looking, through the troubles; status and answer, and nothing when the connection was
    /// cut.
    async fn make_blindly(&self, tag: &Tag) -> Option<(u16, Value)>;

    /// Removes every victim whose tag begins so.
    async fn remove_by_prefix(&self, prefix: &str);
}
