//! `keep`: moves the end of a cluster, whatever ends it, as far as that is allowed; then its hosts are given the new one.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use super::errors::unknown;
use super::guards::tell;
use super::lease::moved;
use super::settings::Settings;
use super::which_machine::refuse_other_machine;
use crate::agent::end::{Cause, End};
use crate::agent::limits::Limits;
use crate::agent::seen::GuardsReport;
use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::provider::{EndAsk, Lease};
use crate::state::{ClusterState, Lock, Store};
use crate::util::human;
use crate::util::when::later;

/// What came of it.
#[derive(Debug)]
pub struct Kept {
    /// The end before, if one was known.
    pub before: Option<End>,
    /// The end now; `None` if only idleness ends it.
    pub end: Option<End>,
    /// It is not taken down before this for want of use.
    pub until: Timestamp,
    /// What the guards say, if there are any.
    pub seen: Option<GuardsReport>,
}

/// Keeps a cluster for so much longer than its end, or than now if it has none.
///
/// # Errors
/// If the policy, the calendar, `max_cost` or a job's time limit does not allow it: then nothing was changed.
pub async fn keep(settings: &Settings, name: &ClusterName, by: SignedDuration) -> Result<Kept> {
    let doing = || format!("keep {name} for {} more", human::duration(by.unsigned_abs()));
    let folder = settings.paths.cluster(name);
    let known = known(settings, name)?;
    let limits = Limits::of(&folder)?;
    let now = Timestamp::now();
    let all = End::all(limits.as_ref(), &known, now);
    let before = all.first().copied();
    if before.is_none() && limits.is_none() {
        return Err(Error::new(ErrorKind::Usage, doing()).because("nothing ends it: it has no lease and no limit"));
    }
    let until = later(before.map_or(now, |end| end.at.max(now)), by);
    refuse(&all, until, limits.as_ref()).map_err(|(why, hint)| {
        Error::new(ErrorKind::Usage, doing()).because(why).because("nothing was changed").hint(hint)
    })?;
    if all.iter().any(|end| end.why == Cause::Lease && end.at < until) {
        let lease = extend_lease(settings, &known, until).await?;
        moved(settings, &lease.id, lease.end).await?;
    }
    if let Some(limits) = limits {
        keep_until(settings, name, &folder, limits, until)?;
    }
    let known = self::known(settings, name)?;
    // The new end holds whether or not the hosts answer: they are given it again at the next look.
    let seen = match tell(settings, &known, &folder).await {
        Ok(seen) => seen,
        Err(error) => {
            settings.events.warn(format!("the hosts do not know of it yet: {error}"));
            None
        }
    };
    Ok(Kept { before, end: End::of(&folder, &known), until, seen })
}

/// Extends the lease of a cluster by so much, for `then: extend`.
///
/// # Errors
/// If that is not allowed, or would cost more than `max_cost`.
pub async fn extend(settings: &Settings, name: &ClusterName, by: SignedDuration) -> Result<Kept> {
    let known = known(settings, name)?;
    let limits = Limits::of(&settings.paths.cluster(name))?;
    let first = End::all(limits.as_ref(), &known, Timestamp::now()).into_iter().next();
    match first {
        Some(End { why: Cause::Lease, .. }) => keep(settings, name, by).await,
        _ => Err(Error::new(ErrorKind::Usage, format!("extend the lease of {name}"))
            .because("it is not what ends the cluster")),
    }
}

fn known(settings: &Settings, name: &ClusterName) -> Result<ClusterState> {
    let store = Store::open(&settings.paths, name)?.ok_or_else(|| unknown(&settings.paths, name))?;
    refuse_other_machine(&settings.paths, store.state(), "keep")?;
    Ok(store.state().clone())
}

/// Why it cannot be kept until then, and what to do; before anything is changed.
fn refuse(all: &[End], until: Timestamp, limits: Option<&Limits>) -> Result<(), (String, String)> {
    for end in all.iter().filter(|end| end.at < until) {
        let at = human::local(end.at);
        match end.why {
            Cause::WallClock => {
                return Err((
                    format!("the job of its hosts ends at {at}, and only an administrator can give it more time"),
                    "a longer `time:` of the provider takes effect with the next cluster".to_owned(),
                ));
            }
            Cause::Cost => {
                let limit = limits.and_then(|limits| limits.max_cost).map(|cost| cost.to_string()).unwrap_or_default();
                return Err((
                    format!("its cost reaches `max_cost`, {limit}, at about {at}"),
                    "a higher `max_cost:` takes effect with `gpucl up`".to_owned(),
                ));
            }
            Cause::Lease | Cause::Deadline | Cause::Idle => {}
        }
    }
    Ok(())
}

/// Extends the lease that the cluster's hosts belong to.
async fn extend_lease(settings: &Settings, known: &ClusterState, until: Timestamp) -> Result<Lease> {
    let doing = || format!("extend the lease of {}", known.name);
    let spec = known.spec.as_ref().ok_or_else(|| Error::new(ErrorKind::State, doing()))?;
    let provider = settings.provider(spec)?;
    let reservations = provider.reservations().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, doing()).because("its provider cannot extend a reservation")
    })?;
    let is_its = |lease: &Lease| known.items.values().any(|item| item.id.as_deref() == Some(&lease.id));
    let lease = reservations.leases().await?.into_iter().find(is_its).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, doing())
            .because("its provider has no such lease any more")
            .hint("gpucl lease list")
    })?;
    if !lease.ours {
        return Err(Error::new(ErrorKind::Usage, doing())
            .because("another user of the project made it; only your own leases can be changed")
            .hint("whoever made it can extend it"));
    }
    reservations.extend(&lease.id, EndAsk::At(until), false).await
}

/// Notes that neither deadline nor idleness ends the cluster before this.
fn keep_until(settings: &Settings, name: &ClusterName, folder: &Path, limits: Limits, until: Timestamp) -> Result<()> {
    let _lock = Lock::take(&settings.paths, name, "keep")?;
    limits.kept_until(until).write(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_moved_is_refused_with_the_reason_before_anything_is_changed() {
        let at = |text: &str| format!("2026-11-21T{text}:00Z").parse::<Timestamp>().unwrap();
        let end = |why| End { at: at("16:50"), why };
        let refused = |why, until| refuse(&[end(why)], at(until), None);
        let (why, _) = refused(Cause::WallClock, "17:00").unwrap_err();
        assert!(why.contains("only an administrator"), "{why}");
        let (why, hint) = refused(Cause::Cost, "17:00").unwrap_err();
        assert!(why.contains("`max_cost`") && hint.contains("gpucl up"), "{why}: {hint}");
        for why in [Cause::Lease, Cause::Deadline] {
            assert_eq!(refused(why, "17:00"), Ok(()));
        }
        assert_eq!(refused(Cause::Cost, "16:00"), Ok(()), "it is kept until before that");
    }
}
