//! One row: a call that changes something, a trouble that it meets, and how it goes on from there.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpucl::name::Owner;
use serde_json::{Value, json};

use super::bugs::Bug;
use super::home::{Death, Home};
use super::services::{Services, Thing};

/// Every request that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    PostLease,
    PutLease,
    DeleteLease,
    PostKey,
    DeleteKey,
    PostAddress,
    PutAddress,
    DeleteAddress,
    PostServer,
    DeleteServer,
}

/// What it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// The connection is cut before the service has it.
    CutBefore,
    /// The service acts, and the answer is lost.
    AnswerLost,
    /// It is answered, and the process dies before it is written down.
    NotJournalled,
    /// 429 once.
    Limited,
    /// 429 until we give up.
    LimitedForLong,
    /// 500, and nothing was done.
    Failed,
    /// 500, and it was done all the same.
    FailedAndDone,
    /// 502 of what stands before the service, and nothing was done.
    BadGateway,
    /// The service acts, and what it answers cannot be read.
    Malformed,
}

/// How it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Then {
    /// The same command again, and `down` at the end.
    Again,
    /// `down` at once.
    Down,
    /// The state is lost, and `gc` cleans up.
    Gc,
}

pub(crate) const CALLS: [Call; 10] = [
    Call::PostLease,
    Call::PutLease,
    Call::DeleteLease,
    Call::PostKey,
    Call::DeleteKey,
    Call::PostAddress,
    Call::PutAddress,
    Call::DeleteAddress,
    Call::PostServer,
    Call::DeleteServer,
];
pub(crate) const TROUBLES: [Trouble; 9] = [
    Trouble::CutBefore,
    Trouble::AnswerLost,
    Trouble::NotJournalled,
    Trouble::Limited,
    Trouble::LimitedForLong,
    Trouble::Failed,
    Trouble::FailedAndDone,
    Trouble::BadGateway,
    Trouble::Malformed,
];
pub(crate) const THENS: [Then; 3] = [Then::Again, Then::Down, Then::Gc];

impl Call {
    fn rule(self) -> (&'static str, &'static str) {
        match self {
            Self::PostLease => ("POST", "^/reservation/.*/leases$"),
            Self::PutLease => ("PUT", "^/reservation/.*/leases/[^/]+$"),
            Self::DeleteLease => ("DELETE", "^/reservation/.*/leases/[^/]+$"),
            Self::PostKey => ("POST", "/os-keypairs$"),
            Self::DeleteKey => ("DELETE", "/os-keypairs/[^/]+$"),
            Self::PostAddress => ("POST", "/floatingips$"),
            Self::PutAddress => ("PUT", "/floatingips/[^/]+$"),
            Self::DeleteAddress => ("DELETE", "/floatingips/[^/]+$"),
            Self::PostServer => ("POST", "/servers$"),
            Self::DeleteServer => ("DELETE", "/servers/[^/]+$"),
        }
    }

    fn death(self) -> Death {
        match self {
            Self::PostLease => Death::Acquired("lease"),
            Self::PutLease => Death::Extended,
            Self::DeleteLease => Death::Released("lease"),
            Self::PostKey => Death::Acquired("key_pair"),
            Self::DeleteKey => Death::Released("key_pair"),
            Self::PostAddress => Death::Acquired("floating_ip"),
            Self::PutAddress => Death::Waited("server"),
            Self::DeleteAddress => Death::Released("floating_ip"),
            Self::PostServer => Death::Acquired("server"),
            Self::DeleteServer => Death::Released("server"),
        }
    }

    /// It belongs to `down`.
    pub(crate) fn is_delete(self) -> bool {
        matches!(self, Self::DeleteLease | Self::DeleteKey | Self::DeleteAddress | Self::DeleteServer)
    }

    /// What is wanted of a host: all; where that takes long, what the call needs.
    pub(crate) fn wanted(self, is_real: bool) -> &'static [&'static str] {
        match self {
            Self::PutLease => &["lease"],
            Self::PostLease | Self::DeleteLease if is_real => &["lease"],
            Self::PostKey | Self::DeleteKey if is_real => &["key_pair"],
            Self::PostAddress | Self::DeleteAddress if is_real => &["floating_ip"],
            _ => &["lease", "key_pair", "floating_ip", "server"],
        }
    }
}

impl Trouble {
    /// The fault and how often it comes; `None` when the process is what fails.
    fn fault(self) -> Option<(&'static str, u32)> {
        Some(match self {
            Self::CutBefore => ("cut-before", 1),
            Self::AnswerLost => ("cut-after", 1),
            Self::NotJournalled => return None,
            Self::Limited => ("status:429", 1),
            Self::LimitedForLong => ("status:429", 4),
            Self::Failed => ("status:500", 1),
            Self::FailedAndDone => ("after:500", 1),
            Self::BadGateway => ("status:502", 1),
            Self::Malformed => ("malformed", 1),
        })
    }
}

/// A row of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) call: Call,
    pub(crate) trouble: Trouble,
    pub(crate) then: Then,
}

/// Goes through a row; says what was left, made twice, touched, or did not come to its end.
pub(crate) async fn run(services: &Arc<Services>, owner: &Owner, row: Row, bug: Bug) -> Result<(), String> {
    let Row { call, trouble, then } = row;
    let home = Home::new(services.clone(), owner, call.wanted(services.is_real()), bug);
    services.rules(&[]).await;
    services.forget_log().await;
    let before: BTreeSet<Thing> = services.not_ours().await;
    if call.is_delete() || call == Call::PutLease {
        home.up(None).await.map_err(|error| format!("`up` without trouble failed: {error}"))?;
        services.forget_log().await;
    }
    let lease = services.of(&home.scope).await.into_iter().find(|thing| thing.kind == "lease");
    let death = trouble.fault().is_none().then(|| call.death());
    if let Some((fault, count)) = trouble.fault() {
        let (method, path) = call.rule();
        let rule = json!({ "method": method, "path": path, "skip": 0, "count": count, "fault": fault });
        services.rules(&[rule]).await;
    }
    let target = lease.as_ref().map(|lease| later(&lease.end));
    let id = lease.as_ref().map(|lease| lease.id.clone()).unwrap_or_default();
    let step = async |death| match (call, target) {
        (Call::PutLease, Some(target)) => home.extend(&id, target, death).await,
        _ if call.is_delete() => home.down(death).await,
        _ => home.up(death).await.map(|_| ()),
    };
    let first = step(death).await;
    services.rules(&[]).await;
    match (death, &first) {
        (None, _) if services.troubled().await == 0 => return Err("no request met the trouble".to_owned()),
        (Some(_), Err(error)) if error.to_string().contains("the process died") => {}
        (Some(_), other) => return Err(format!("the process did not die: {other:?}")),
        _ => {}
    }
    let told = |what: &str, error: gpucl::error::Error| match &first {
        Err(before) => format!("{what} failed: {error} (before: {before})"),
        Ok(()) => format!("{what} failed: {error}"),
    };
    if then == Then::Again {
        if call == Call::PutLease || call.is_delete() {
            step(None).await.map_err(|error| told("the same again", error))?;
        }
        if call == Call::PutLease {
            let now = services.of(&home.scope).await.into_iter().find(|thing| thing.kind == "lease");
            let end = now.map(|lease| end_of(&lease.end));
            if end != target {
                return Err(format!("the lease ends at {end:?}, and not at {target:?}"));
            }
        } else if !call.is_delete() {
            converges(&home).await.map_err(|why| format!("{why} (before: {first:?})"))?;
        }
    }
    made_once(services, row).await?;
    match then {
        Then::Again | Then::Down => home.down(None).await.map_err(|error| told("`down`", error))?,
        Then::Gc => {
            home.lose_state();
            home.gc().await.map_err(|error| told("`gc`", error))?;
        }
    }
    let left = services.of(&home.scope).await;
    if !left.is_empty() {
        return Err(format!("LEAK: {left:?} (before: {first:?})"));
    }
    made_once(services, row).await?;
    let after: BTreeSet<Thing> = services.not_ours().await;
    let touched: Vec<&Thing> = before.symmetric_difference(&after).collect();
    if touched.is_empty() { Ok(()) } else { Err(format!("TOUCHED what is not ours: {touched:?}")) }
}

/// Nothing was made more than once, however it was answered.
async fn made_once(services: &Services, row: Row) -> Result<(), String> {
    for kind in ["lease", "key_pair", "floating_ip", "server"] {
        let made = services.made(kind).await;
        if made > 1 {
            return Err(format!("DOUBLE: {kind} was made {made} times in {row:?}"));
        }
    }
    Ok(())
}

/// Goes on; then all that is wanted exists once, the journal knows it, and nothing more is to do.
async fn converges(home: &Home) -> Result<(), String> {
    home.up(None).await.map_err(|error| format!("`up` again failed: {error}"))?;
    let again = home.up(None).await.map_err(|error| format!("`up` a third time failed: {error}"))?;
    if again > 0 {
        return Err(format!("`up` had {again} more things to do"));
    }
    let there = home.services.of(&home.scope).await;
    let mut kinds: Vec<&str> = there.iter().map(|thing| thing.kind).collect();
    kinds.sort_unstable();
    let known = home.ledger().state();
    let is_own = |key: &gpucl::name::Key| !home.is_adopted(key);
    let ids: BTreeSet<String> =
        known.items.iter().filter(|(key, _)| is_own(key)).filter_map(|(_, item)| item.id.clone()).collect();
    let seen: BTreeSet<String> = there.iter().map(|thing| thing.id.clone()).collect();
    if kinds != home.kinds() || ids != seen {
        return Err(format!("there is {there:?}, wanted {:?}; the journal knows {ids:?}", home.kinds()));
    }
    Ok(())
}

fn end_of(text: &str) -> jiff::Timestamp {
    let text = text.replace(' ', "T");
    let text = text.split('.').next().unwrap_or_default();
    format!("{text}Z").parse().unwrap()
}

/// Half an hour later.
fn later(end: &str) -> jiff::Timestamp {
    end_of(end) + jiff::SignedDuration::from_mins(30)
}

/// For a table: what became of each call.
pub(crate) fn figures(rows: &[(Row, Result<(), String>)]) -> Value {
    let mut figures = serde_json::Map::new();
    for call in CALLS {
        let of_call: Vec<_> = rows.iter().filter(|(row, _)| row.call == call).collect();
        if !of_call.is_empty() {
            let failed = of_call.iter().filter(|(_, result)| result.is_err()).count();
            figures.insert(format!("{call:?}"), json!({ "rows": of_call.len(), "failed": failed }));
        }
    }
    Value::Object(figures)
}
