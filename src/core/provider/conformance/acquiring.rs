//! The cases about calls that return: their effect, their result, and what they record.

use super::bench::{Bench, hosts_only, list};
use super::recorders::{Failing, Notebook};
use super::verdict::{Stop, Verdict, broken, ensure};
use crate::error::{LeftBehind, Status};
use crate::name::Key;
use crate::provider::HostPlace;

pub(super) async fn shows(bench: &Bench<'_>) -> Verdict {
    let scope = bench.fresh_scope()?;
    for request in bench.chain(&scope)? {
        let acquired = bench.acquire(&scope, &request, &Notebook::default()).await?;
        ensure(!acquired.was_there, || format!("acquire says that the new {} existed before", request.key))?;
        let seen = bench.until_usable(&scope, &request, &acquired.id).await?;
        ensure(seen.kind == request.kind, || {
            format!("{} was requested as {} but shows as {}", request.key, request.kind.0, seen.kind.0)
        })?;
    }
    Ok(())
}

pub(super) async fn twice(bench: &Bench<'_>) -> Verdict {
    let scope = bench.fresh_scope()?;
    for request in bench.chain(&scope)? {
        let first = bench.acquire_usable(&scope, &request).await?;
        let second = bench.acquire(&scope, &request, &Notebook::default()).await?;
        ensure(second.id == first, || format!("{} was {first} and is now {}", request.key, second.id))?;
        ensure(second.was_there, || format!("the second acquire says that {first} is new"))?;
        let seen = bench.exactly_one(&scope, &request.key).await?;
        ensure(seen.id == first, || format!("{} was acquired as {first} but shows as {}", request.key, seen.id))?;
    }
    Ok(())
}

pub(super) async fn recorded(bench: &Bench<'_>) -> Verdict {
    let scope = bench.fresh_scope()?;
    for request in bench.chain(&scope)? {
        for round in ["new", "there already"] {
            let notebook = Notebook::default();
            let id = bench.acquire(&scope, &request, &notebook).await?.id;
            let ids = notebook.ids(&request.key);
            ensure(ids.contains(&id), || {
                format!("{} was {round}: acquire returned {id}, but the recorder got {ids:?}", request.key)
            })?;
            bench.until_usable(&scope, &request, &id).await?;
        }
    }
    bench.release_all(&scope).await?;

    let scope = bench.fresh_scope()?;
    for request in bench.chain(&scope)? {
        let Err(error) = bench.try_acquire(&scope, &request, &Failing).await? else {
            return broken(format!("{} was acquired although its id could not be recorded", request.key));
        };
        let seen = bench.observe_after_delay(&scope, &request.key).await?;
        let denied = *error.left_behind() == LeftBehind::Clear && !seen.is_empty();
        ensure(!denied, || format!("the error says that nothing is left behind, but observe shows {}", list(&seen)))?;
        bench.acquire_usable(&scope, &request).await?;
        bench.exactly_one(&scope, &request.key).await?;
    }
    Ok(())
}

pub(super) async fn errors(bench: &Bench<'_>) -> Verdict {
    let scope = bench.fresh_scope()?;
    let request = bench.subject.provider.refused_request(&Key::host(0));
    let notebook = Notebook::default();
    let Err(error) = bench.try_acquire(&scope, &request, &notebook).await? else {
        return broken("the request that must be refused was granted");
    };
    ensure(error.retry_status() == Status::Permanent, || {
        format!("the refusal has status {:?}, so it would be retried: {error}", error.retry_status())
    })?;
    ensure(*error.left_behind() == LeftBehind::Clear, || {
        format!("the refusal says that it left behind {:?}: {error}", error.left_behind())
    })?;
    ensure(notebook.len() == 0, || "an id was recorded for the refused request".to_owned())?;
    let seen = bench.observe_after_delay(&scope, &request.key).await?;
    ensure(seen.is_empty(), || format!("the refused request left behind {}", list(&seen)))
}

pub(super) async fn partial(bench: &Bench<'_>) -> Verdict {
    if !bench.capability().several_resources {
        return Err(Stop::NotApplicable("several_resources"));
    }
    let scope = bench.fresh_scope()?;
    let chain = bench.chain(&scope)?;
    let half = &chain[..chain.len() - 1];
    let mut ids = Vec::new();
    for request in half {
        ids.push(bench.acquire_usable(&scope, request).await?);
    }
    let seen = bench.observe(&scope).await?;
    ensure(seen.len() == half.len(), || format!("{} were acquired, but observe shows {}", half.len(), list(&seen)))?;

    // The next run starts from the first resource.
    for (index, (request, id)) in bench.acquire_all(&scope).await?.into_iter().enumerate() {
        let before = ids.get(index).unwrap_or(&id);
        ensure(*before == id, || format!("{} was {before} and is now {id}", request.key))?;
        bench.exactly_one(&scope, &request.key).await?;
    }
    bench.release_all(&scope).await?;

    let scope = bench.fresh_scope()?;
    let chain = bench.chain(&scope)?;
    for request in &chain[..chain.len() - 1] {
        bench.acquire_usable(&scope, request).await?;
    }
    bench.release_all(&scope).await
}

pub(super) async fn place(bench: &Bench<'_>) -> Verdict {
    hosts_only(bench)?;
    let scope = bench.fresh_scope()?;
    let acquired = bench.acquire_all(&scope).await?;
    let Some((request, id)) = acquired.iter().find(|(request, _)| request.is_host) else {
        return broken("none of the resources is a host");
    };
    let tag = scope.tag(&request.key);
    let ask = || bench.limited("place", bench.subject.provider.place(&tag, id));
    let place = ask().await?.or_else(|error| broken(format!("{} has no place: {error}", request.key)))?;
    let again =
        ask().await?.or_else(|error| broken(format!("{} has no place at the second call: {error}", request.key)))?;
    ensure(place == again, || format!("two calls gave {} two places: {place:?} and {again:?}", request.key))?;
    match place {
        HostPlace::Local { folder, .. } => ensure(folder.is_absolute() && folder.is_dir(), || {
            format!(
                "the place of {} is not an existing folder with an absolute path: {}",
                request.key,
                folder.display()
            )
        })?,
        HostPlace::Ssh { target, .. } => {
            ensure(!target.node.is_empty(), || format!("the place of {} has no node name", request.key))?;
        }
    }
    bench.release_all(&scope).await?;
    ensure(ask().await?.is_err(), || format!("{} is gone but has a place", request.key))
}
