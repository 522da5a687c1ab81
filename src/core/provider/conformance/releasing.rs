//! The cases about releases: what must go, and what must stay.

use super::bench::{Bench, list};
use super::verdict::{Stop, Verdict, broken, ensure};
use crate::name::Scope;
use crate::provider::{ObservedResource, ResourceRequest};

pub(super) async fn twice(bench: &Bench<'_>) -> Verdict {
    let scope = bench.fresh_scope()?;
    bench.acquire_all(&scope).await?;
    let seen = bench.observe(&scope).await?;
    for resource in bench.last_first(&scope, seen) {
        bench.release(&scope, &resource).await?;
        bench.until_gone(&scope, &resource.key).await?;
        bench.release(&scope, &resource).await.map_err(|stop| match stop {
            Stop::Broken(what) => Stop::Broken(format!("at the second release: {what}")),
            other => other,
        })?;
    }
    bench.until_empty(&scope).await
}

pub(super) async fn never_was(bench: &Bench<'_>) -> Verdict {
    let scope = bench.fresh_scope()?;
    let before = bench.acquire_all(&scope).await?;
    for (request, id) in &before {
        // Never an id derived from a real one: where ids are numbers, the next one is somebody's.
        let never = as_observed(request, &format!("never-was-{}", bench.subject.stranger));
        bench.release(&scope, &never).await?;
        let one = bench.exactly_one(&scope, &request.key).await?;
        ensure(one.id == *id, || format!("a release of {} changed {}", never.id, request.key))?;
    }

    bench.release_all(&scope).await?;
    let after = bench.acquire_all(&scope).await?;
    for ((request, old), (_, new)) in before.iter().zip(&after) {
        // If ids are names, the new one equals the old one.
        if old != new {
            bench.release(&scope, &as_observed(request, old)).await?;
            let one = bench.exactly_one(&scope, &request.key).await;
            let one = one.or_else(|_| {
                broken(format!("a release of {old}, already gone, released {new}, which has its key now"))
            })?;
            ensure(one.id == *new, || format!("a release of {old} changed {new}"))?;
        }
    }
    Ok(())
}

pub(super) async fn foreign(bench: &Bench<'_>) -> Verdict {
    if !bench.capability().shared_account {
        return Err(Stop::NotApplicable("shared_account"));
    }
    let ours = bench.scope(&bench.subject.owner, "a")?;
    let others = [bench.scope(&bench.subject.owner, "a-b")?, bench.scope(&bench.subject.stranger, "a")?];
    let mut made = Vec::new();
    for scope in others.iter().chain([&ours]) {
        made.push((scope, ids(bench.acquire_all(scope).await?)));
    }
    for (scope, ids) in &made {
        shows_exactly(bench, scope, ids).await?;
    }
    bench.release_all(&ours).await?;
    for (scope, ids) in made.iter().filter(|(scope, _)| **scope != ours) {
        shows_exactly(bench, scope, ids).await?;
    }
    Ok(())
}

/// The ids of the acquired resources, sorted.
fn ids(acquired: Vec<(ResourceRequest, String)>) -> Vec<String> {
    let mut ids: Vec<String> = acquired.into_iter().map(|(_, id)| id).collect();
    ids.sort();
    ids
}

async fn shows_exactly(bench: &Bench<'_>, scope: &Scope, ids: &[String]) -> Verdict {
    let seen = bench.observe(scope).await?;
    let mut shown: Vec<&str> = seen.iter().map(|resource| resource.id.as_str()).collect();
    shown.sort_unstable();
    ensure(shown == ids, || {
        let whose = if *scope.owner.as_str() == *bench.subject.owner.as_str() { "our" } else { "the other owner's" };
        format!("{whose} cluster `{}` has {}, but observe shows {}", scope.cluster, ids.join(", "), list(&seen))
    })
}

pub(super) async fn everything(bench: &Bench<'_>) -> Verdict {
    let mut left = Vec::new();
    for scope in bench.scopes() {
        let seen = bench.observe(&scope).await?;
        if !seen.is_empty() {
            left.push(format!("in gpucl-{}-{}: {}", scope.owner, scope.cluster, list(&seen)));
        }
    }
    ensure(left.is_empty(), || format!("left behind: {}", left.join("; ")))
}

fn as_observed(request: &ResourceRequest, id: &str) -> ObservedResource {
    ObservedResource::existing(request.key.clone(), &request.kind.0, id)
}
