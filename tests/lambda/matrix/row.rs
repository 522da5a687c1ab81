//! One row: a call that changes something, a trouble that it meets, and how it goes on from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpucl::name::{Owner, Scope, Tag};
use gpucl::sandbox::lambda::{Rule, Sandbox};
use serde_json::{Value, json};

use super::bugs::Bug;
use super::home::{Death, Home};

/// Every request that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    PostKey,
    DeleteKey,
    PostRuleset,
    PatchRuleset,
    DeleteRuleset,
    PostFileSystem,
    DeleteFileSystem,
    Launch,
    Terminate,
}

/// What it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// The connection is cut before Lambda has it.
    CutBefore,
    /// Lambda acts, and the answer is lost.
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
    /// A page of what stands before Lambda, and nothing was done.
    Page,
    /// A page of what stands before Lambda, and it was done all the same.
    PageAndDone,
    /// Lambda acts, and what it answers cannot be read.
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

pub(crate) const CALLS: [Call; 9] = [
    Call::PostKey,
    Call::DeleteKey,
    Call::PostRuleset,
    Call::PatchRuleset,
    Call::DeleteRuleset,
    Call::PostFileSystem,
    Call::DeleteFileSystem,
    Call::Launch,
    Call::Terminate,
];
pub(crate) const TROUBLES: [Trouble; 10] = [
    Trouble::CutBefore,
    Trouble::AnswerLost,
    Trouble::NotJournalled,
    Trouble::Limited,
    Trouble::LimitedForLong,
    Trouble::Failed,
    Trouble::FailedAndDone,
    Trouble::Page,
    Trouble::PageAndDone,
    Trouble::Malformed,
];
pub(crate) const THENS: [Then; 3] = [Then::Again, Then::Down, Then::Gc];

impl Call {
    fn rule(self) -> (&'static str, &'static str) {
        match self {
            Self::PostKey => ("POST", "/ssh-keys$"),
            Self::DeleteKey => ("DELETE", "/ssh-keys/[^/]+$"),
            Self::PostRuleset => ("POST", "/firewall-rulesets$"),
            Self::PatchRuleset => ("PATCH", "/firewall-rulesets/[^/]+$"),
            Self::DeleteRuleset => ("DELETE", "/firewall-rulesets/[^/]+$"),
            Self::PostFileSystem => ("POST", "/filesystems$"),
            Self::DeleteFileSystem => ("DELETE", "/filesystems/[^/]+$"),
            Self::Launch => ("POST", "/instance-operations/launch$"),
            Self::Terminate => ("POST", "/instance-operations/terminate$"),
        }
    }

    fn death(self) -> Death {
        match self {
            Self::PostKey => Death::Acquired("ssh_key"),
            Self::DeleteKey => Death::Released("ssh_key"),
            Self::PostRuleset => Death::Acquired("firewall_ruleset"),
            Self::PatchRuleset => Death::Waited("instance"),
            Self::DeleteRuleset => Death::Released("firewall_ruleset"),
            Self::PostFileSystem => Death::Acquired("file_system"),
            Self::DeleteFileSystem => Death::Released("file_system"),
            Self::Launch => Death::Acquired("instance"),
            Self::Terminate => Death::Released("instance"),
        }
    }

    /// It belongs to `down`.
    pub(crate) fn is_delete(self) -> bool {
        matches!(self, Self::DeleteKey | Self::DeleteRuleset | Self::DeleteFileSystem | Self::Terminate)
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
            Self::LimitedForLong => ("status:429", 6),
            Self::Failed => ("status:500", 1),
            Self::FailedAndDone => ("after:500", 1),
            Self::Page => ("html:502", 1),
            Self::PageAndDone => ("after-html:502", 1),
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

/// Something that the account holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thing {
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    pub(crate) name: String,
    /// How it stands: for what is others', also this stays.
    pub(crate) state: String,
}

/// All that the account holds; instances that are terminated are gone.
pub(crate) fn held(sandbox: &Sandbox) -> Vec<Thing> {
    let seen = sandbox.snapshot();
    let thing =
        |kind, id: &str, name: &str, state: String| Thing { kind, id: id.to_owned(), name: name.to_owned(), state };
    let mut all: Vec<Thing> =
        seen.alive().map(|one| thing("instance", &one.id, &one.name, one.status.clone())).collect();
    all.extend(seen.ssh_keys.iter().map(|one| thing("ssh_key", &one.id, &one.name, one.public_key.clone())));
    all.extend(seen.file_systems.iter().map(|one| thing("file_system", &one.id, &one.name, one.region.clone())));
    all.extend(
        seen.rulesets.iter().map(|one| thing("firewall_ruleset", &one.id, &one.name, json!(one.rules).to_string())),
    );
    all.push(thing("rules", "", "of the account", json!(seen.global_rules).to_string()));
    all
}

/// What of it is ours.
pub(crate) fn of(sandbox: &Sandbox, scope: &Scope) -> Vec<Thing> {
    let is_ours = |thing: &Thing| thing.name.parse::<Tag>().is_ok_and(|tag| scope.holds(&tag));
    held(sandbox).into_iter().filter(is_ours).collect()
}

fn not_ours(sandbox: &Sandbox, scope: &Scope) -> BTreeSet<Thing> {
    let ours = of(sandbox, scope);
    held(sandbox).into_iter().filter(|thing| !ours.contains(thing)).collect()
}

/// Goes through a row; says what was left, made twice, touched, or did not come to its end.
pub(crate) async fn run(sandbox: &Arc<Sandbox>, owner: &Owner, row: Row, bug: Bug) -> Result<(), String> {
    let Row { call, trouble, then } = row;
    let home = Home::new(sandbox.clone(), owner, bug);
    sandbox.forget_log();
    let before = not_ours(sandbox, &home.scope);
    let mut earlier = BTreeMap::new();
    if call.is_delete() {
        home.up(None).await.map_err(|error| format!("`up` without trouble failed: {error}"))?;
        earlier = posted(sandbox);
        sandbox.forget_log();
    }
    let death = trouble.fault().is_none().then(|| call.death());
    if let Some((fault, count)) = trouble.fault() {
        let (method, path) = call.rule();
        sandbox.faults(vec![Rule::new(method, path, fault).times(count)]).unwrap();
    }
    let step = async |death| if call.is_delete() { home.down(death).await } else { home.up(death).await.map(|_| ()) };
    let first = step(death).await;
    sandbox.faults(Vec::new()).unwrap();
    match (death, &first) {
        (None, _) if sandbox.log().iter().all(|entry| entry.fault.is_none()) => {
            return Err("no request met the trouble".to_owned());
        }
        (Some(_), Err(error)) if error.to_string().contains("the process died") => {}
        (Some(_), other) => return Err(format!("the process did not die: {other:?}")),
        _ => {}
    }
    let told = |what: &str, error: gpucl::error::Error| match &first {
        Err(before) => format!("{what} failed: {error} (before: {before})"),
        Ok(()) => format!("{what} failed: {error}"),
    };
    if then == Then::Again {
        if call.is_delete() {
            step(None).await.map_err(|error| told("the same again", error))?;
        } else {
            converges(&home).await.map_err(|why| format!("{why} (before: {first:?})"))?;
        }
    }
    made_once(sandbox, &earlier, row)?;
    match then {
        Then::Again | Then::Down => home.down(None).await.map_err(|error| told("`down`", error))?,
        Then::Gc => {
            home.lose_state();
            home.gc().await.map_err(|error| told("`gc`", error))?;
        }
    }
    let left = of(sandbox, &home.scope);
    if !left.is_empty() {
        return Err(format!("LEAK: {left:?} (before: {first:?})"));
    }
    made_once(sandbox, &earlier, row)?;
    let after = not_ours(sandbox, &home.scope);
    let touched: Vec<&Thing> = before.symmetric_difference(&after).collect();
    if touched.is_empty() { Ok(()) } else { Err(format!("TOUCHED what is not ours: {touched:?}")) }
}

/// How many POSTs of each path were carried out, however they were answered.
fn posted(sandbox: &Sandbox) -> BTreeMap<String, usize> {
    let acts = |fault: &str| fault.starts_with("cut-after") || fault.starts_with("after") || fault == "malformed";
    let mut posted = BTreeMap::new();
    for entry in sandbox.log() {
        let is_done = entry.fault.as_deref().map_or(entry.status == 200, acts);
        if entry.method == "POST" && is_done {
            *posted.entry(entry.path).or_default() += 1;
        }
    }
    posted
}

/// Nothing was made more than once, however it was answered.
fn made_once(sandbox: &Sandbox, earlier: &BTreeMap<String, usize>, row: Row) -> Result<(), String> {
    let now = posted(sandbox);
    for (path, most) in
        [("/ssh-keys", 1), ("/firewall-rulesets", 1), ("/filesystems", 1), ("/instance-operations/launch", 2)]
    {
        let path = format!("/api/v1{path}");
        let made = now.get(&path).copied().unwrap_or_default() + earlier.get(&path).copied().unwrap_or_default();
        if made > most {
            return Err(format!("DOUBLE: {path} was carried out {made} times in {row:?}"));
        }
    }
    // Terminated ones linger: all that were ever launched are seen.
    let mut names = BTreeMap::new();
    for one in sandbox.snapshot().ours().instances {
        let count: &mut usize = names.entry(one.name).or_default();
        *count += 1;
    }
    match names.into_iter().find(|(_, count)| *count > 1) {
        Some((name, count)) => Err(format!("DOUBLE: {name} was launched {count} times in {row:?}")),
        None => Ok(()),
    }
}

/// Goes on; then all that is wanted exists once, the journal knows it, and nothing more is to do.
async fn converges(home: &Home) -> Result<(), String> {
    home.up(None).await.map_err(|error| format!("`up` again failed: {error}"))?;
    let again = home.up(None).await.map_err(|error| format!("`up` a third time failed: {error}"))?;
    if again > 0 {
        return Err(format!("`up` had {again} more things to do"));
    }
    let there = of(&home.sandbox, &home.scope);
    let mut kinds: Vec<&str> = there.iter().map(|thing| thing.kind).collect();
    kinds.sort_unstable();
    let ids: BTreeSet<String> = home.ledger().state().items.values().filter_map(|item| item.id.clone()).collect();
    let seen: BTreeSet<String> = there.iter().map(|thing| thing.id.clone()).collect();
    let wanted = ["file_system", "firewall_ruleset", "instance", "instance", "ssh_key"];
    if kinds != wanted || ids != seen {
        return Err(format!("there is {there:?}, wanted {wanted:?}; the journal knows {ids:?}"));
    }
    Ok(())
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
