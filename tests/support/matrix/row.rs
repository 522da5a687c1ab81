//! One row: a changing call, a fault that it meets, and how the run continues.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpucl::name::{Key, Owner};

use super::bug::Bug;
use super::cloud::{Cloud, Thing as _};
use super::home::{Death, Home};
use super::table::Ended;
use super::trouble::{Then, Trouble};

/// A request that changes something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    name: &'static str,
    pub(crate) method: &'static str,
    /// An expression that its path matches.
    pub(crate) path: &'static str,
    /// Where the process dies after the answer; this determines the command as well.
    pub(crate) death: Death<'static>,
}

impl Call {
    pub(crate) const fn new(
        name: &'static str,
        method: &'static str,
        path: &'static str,
        death: Death<'static>,
    ) -> Self {
        Self { name, method, path, death }
    }

    /// The one of this name.
    pub(crate) fn named(name: &str, calls: &[Self]) -> Self {
        *calls.iter().find(|call| call.name == name).unwrap_or_else(|| panic!("no call {name}"))
    }
}

/// Shows the name, which identifies rows.
impl std::fmt::Debug for Call {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(self.name)
    }
}

/// A row of the matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) call: Call,
    pub(crate) trouble: Trouble,
    pub(crate) then: Then,
}

/// Runs a row; describes what was left behind, created twice, touched, or not finished.
pub(crate) async fn run<C: Cloud>(cloud: &Arc<C>, owner: &Owner, row: Row, bug: Bug) -> Ended {
    let Row { call, trouble, then } = row;
    let home = Home::new(cloud.clone(), owner, &cloud.wanted(call), bug);
    cloud.fail_no_more().await;
    cloud.count_anew().await;
    let before = cloud.not_ours().await;
    if matches!(call.death, Death::Released(_) | Death::Extended) {
        home.up(None).await.map_err(|error| format!("`up` without trouble failed: {error}"))?;
        cloud.count_anew().await;
    }
    let extended = match call.death {
        Death::Extended => cloud.lease(&home.scope).await,
        _ => None,
    };
    let target = extended.map(|(id, end)| (id, end + jiff::SignedDuration::from_mins(30)));
    let death = match trouble.fault(C::LIMITED) {
        Some((fault, count)) => {
            cloud.fail(call, fault, count).await;
            None
        }
        None => Some(call.death),
    };
    let step = async |death| match (call.death, &target) {
        (Death::Extended, Some((id, end))) => home.extend(id, *end, death).await,
        (Death::Released(_), _) => home.down(death).await,
        _ => home.up(death).await.map(|_| ()),
    };
    let first = step(death).await;
    cloud.fail_no_more().await;
    match (death, &first) {
        (None, _) if !cloud.has_failed().await => return Err("no request met the trouble".to_owned()),
        (Some(_), Err(error)) if error.to_string().contains("the process died") => {}
        (Some(_), other) => return Err(format!("the process did not die: {other:?}")),
        _ => {}
    }
    let at = |what: &str, error: gpucl::error::Error| match &first {
        Err(before) => format!("{what} failed: {error} (before: {before})"),
        Ok(()) => format!("{what} failed: {error}"),
    };
    if then == Then::Again {
        match call.death {
            Death::Acquired(_) | Death::Waited(_) => {
                converges(&home).await.map_err(|why| format!("{why} (before: {first:?})"))?;
            }
            Death::Released(_) | Death::Extended => {
                step(None).await.map_err(|error| at("the same again", error))?;
            }
        }
        if let Some((_, target)) = &target {
            let end = cloud.lease(&home.scope).await.map(|(_, end)| end);
            if end != Some(*target) {
                return Err(format!("the lease ends at {end:?}, and not at {:?}", Some(target)));
            }
        }
    }
    made_once(&**cloud, row).await?;
    match then {
        Then::Again | Then::Down => home.down(None).await.map_err(|error| at("`down`", error))?,
        Then::Gc => {
            home.lose_state();
            home.gc().await.map_err(|error| at("`gc`", error))?;
        }
    }
    let left = cloud.of(&home.scope).await;
    if !left.is_empty() {
        return Err(format!("LEAK: {left:?} (before: {first:?})"));
    }
    made_once(&**cloud, row).await?;
    let after = cloud.not_ours().await;
    let touched: Vec<&C::Thing> = before.symmetric_difference(&after).collect();
    if touched.is_empty() { Ok(()) } else { Err(format!("TOUCHED what is not ours: {touched:?}")) }
}

/// Nothing was made more than once, however it was answered.
async fn made_once(cloud: &impl Cloud, row: Row) -> Ended {
    match cloud.doubled().await {
        Some(what) => Err(format!("DOUBLE: {what} in {row:?}")),
        None => Ok(()),
    }
}

/// Continues; then all wanted resources exist once, the journal has them, and the plan is empty.
async fn converges<C: Cloud>(home: &Home<C>) -> Ended {
    home.up(None).await.map_err(|error| format!("`up` again failed: {error}"))?;
    let again = home.up(None).await.map_err(|error| format!("`up` a third time failed: {error}"))?;
    if again > 0 {
        return Err(format!("`up` had {again} more things to do"));
    }
    let there = home.cloud.of(&home.scope).await;
    let mut kinds: Vec<&str> = there.iter().map(|thing| thing.kind()).collect();
    kinds.sort_unstable();
    let known = home.ledger().state();
    let is_own = |key: &Key| !home.is_adopted(key);
    let ids: BTreeSet<String> =
        known.items.iter().filter(|(key, _)| is_own(key)).filter_map(|(_, item)| item.id.clone()).collect();
    let seen: BTreeSet<String> = there.iter().map(|thing| thing.id().to_owned()).collect();
    if kinds != home.kinds() || ids != seen {
        return Err(format!("there is {there:?}, wanted {:?}; the journal knows {ids:?}", home.kinds()));
    }
    Ok(())
}
