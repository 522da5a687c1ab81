//! What differs from provider to provider.

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

/// What a deliberate mistake is made with.
pub(crate) struct Victim {
    pub(crate) kind: &'static str,
    /// Where its id is in the answer to who makes it: a JSON pointer.
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
    /// How often it may answer 429 until we have given up.
    const LIMITED: u32;
    /// How late its answers may be, where that is not what the provider says.
    const CONSISTENCY_DELAY: Option<Duration> = None;
    /// What a provider with a deliberate mistake treats wrongly.
    const VICTIM: Victim;

    /// What of the environment the provider is opened with.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// What the spec says of the provider, when these kinds are wanted.
    fn settings(&self, wanted: &[&str]) -> Value;

    /// What it says of each host.
    fn hosts(&self) -> Vec<Value>;

    /// The kinds of all that is wanted, for a row of this call.
    fn wanted(&self, call: Call) -> Vec<&'static str>;

    /// From now on this call meets this fault, so many times, and no other.
    async fn fail(&self, call: Call, fault: &str, count: u32);

    async fn fail_no_more(&self);

    /// Whether a request met a fault.
    async fn has_failed(&self) -> bool;

    /// What was made until now counts no more in [`Cloud::doubled`]; where there is only one row, all may count.
    async fn count_anew(&self);

    /// What was made more often than it is wanted, however it was answered.
    async fn doubled(&self) -> Option<String>;

    /// All that is there, with a tag or without.
    async fn held(&self) -> Vec<Self::Thing>;

    /// What carries a tag of this scope.
    async fn of(&self, scope: &Scope) -> Vec<Self::Thing> {
        let mut held = self.held().await;
        held.retain(|thing| thing.tag().is_some_and(|tag| scope.holds(&tag)));
        held
    }

    /// What no row may touch: all that is there before it.
    async fn not_ours(&self) -> BTreeSet<Self::Thing> {
        self.held().await.into_iter().collect()
    }

    /// The lease of this scope and its end, where there are leases.
    async fn lease(&self, _scope: &Scope) -> Option<(String, Timestamp)> {
        None
    }

    /// Makes a victim without looking, through the troubles; status and answer, and nothing when the connection was cut.
    async fn make_blindly(&self, tag: &Tag) -> Option<(u16, Value)>;

    /// Removes every victim whose tag begins so.
    async fn remove_by_prefix(&self, prefix: &str);
}
