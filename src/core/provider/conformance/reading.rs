//! The cases that change nothing.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::bench::{Bench, list, verdict};
use super::verdict::{Stop, Verdict, broken, ensure};
use crate::name::Key;
use crate::provider::{EndAsk, LeaseState, ProviderKind, ResourceRequest};

pub(super) async fn offers(bench: &Bench<'_>) -> Verdict {
    let costs_money = bench.capability().costs_money;
    let offers = bench.limited("offers", bench.subject.provider.offers()).await?;
    let offers = offers.or_else(|error| broken(format!("offers failed: {error}")))?;
    for offer in &offers {
        let named = !offer.name.is_empty() && !offer.place.is_empty() && !offer.free.is_empty();
        ensure(named, || format!("an offer lacks its name, its place or when it is available: {offer:?}"))?;
        ensure(offer.cpus > 0, || format!("the offer {} has no processors", offer.name))?;
        ensure(offer.gpus.iter().all(|gpu| gpu.count != Some(0) && !gpu.model.is_empty()), || {
            format!("the offer {} has GPUs without a count or a model", offer.name)
        })?;
        ensure(offer.price_per_hour.is_some() == costs_money, || {
            let price = offer.price_per_hour.map_or_else(|| "none".to_owned(), |price| price.to_string());
            format!("the price of the offer {} is {price}, but costs_money is {costs_money}", offer.name)
        })?;
    }
    Ok(())
}

pub(super) async fn nothing(bench: &Bench<'_>) -> Verdict {
    let seen = bench.observe(&bench.fresh_scope()?).await?;
    ensure(seen.is_empty(), || format!("observe shows {}", list(&seen)))
}

pub(super) async fn expand(bench: &Bench<'_>) -> Verdict {
    let capability = bench.capability();
    let scope = bench.fresh_scope()?;
    let chain = bench.chain(&scope)?;
    ensure(chain == bench.chain(&scope)?, || "two calls returned different resources".to_owned())?;
    let other = bench.chain(&bench.fresh_scope()?)?;
    ensure(keys(&chain) == keys(&other), || "the keys depend on the cluster".to_owned())?;

    ensure(!chain.is_empty(), || "a host has no resources".to_owned())?;
    let mut earlier: Vec<&Key> = Vec::new();
    for request in &chain {
        ensure(!earlier.contains(&&request.key), || format!("two resources have the key {}", request.key))?;
        for need in &request.needs {
            ensure(earlier.contains(&need), || format!("{} needs {need}, which is not before it", request.key))?;
        }
        earlier.push(&request.key);
    }
    let hosts = chain.iter().filter(|request| request.is_host).count();
    let wanted = usize::from(capability.kind == ProviderKind::Host);
    ensure(hosts == wanted, || format!("{hosts} of the resources are hosts, expected {wanted}"))?;
    ensure((chain.len() > 1) == capability.several_resources, || {
        format!("a host has {} resources, but several_resources is {}", chain.len(), capability.several_resources)
    })?;

    if capability.most_hosts != Some(1) {
        let first: BTreeMap<&Key, &ResourceRequest> = chain.iter().map(|request| (&request.key, request)).collect();
        let second = bench.expand(&scope, 1)?;
        for request in &second {
            let same = first.get(&request.key).is_none_or(|other| *other == request);
            ensure(same, || format!("two hosts request {} differently", request.key))?;
            let shared_host = request.is_host && first.contains_key(&request.key);
            ensure(!shared_host, || format!("two hosts have the same host resource {}", request.key))?;
        }
    }
    let seen = bench.observe(&scope).await?;
    ensure(seen.is_empty(), || format!("expand made {}", list(&seen)))
}

fn keys(chain: &[ResourceRequest]) -> Vec<&Key> {
    chain.iter().map(|request| &request.key).collect()
}

pub(super) async fn extend(bench: &Bench<'_>) -> Verdict {
    if !bench.capability().extend {
        return Err(Stop::NotApplicable("extend"));
    }
    let Some(reservations) = bench.subject.provider.reservations() else {
        return broken("the capability says `extend`, but the provider has no reservations");
    };
    let scope = bench.fresh_scope()?;
    // The reservation is what all other resources need, so it comes first.
    let Some(request) = bench.chain(&scope)?.into_iter().next() else { return broken("a host has no resources") };
    let id = bench.acquire_usable(&scope, &request).await?;
    let read = || async { verdict("read the reservation", bench.limited("lease", reservations.lease(&id)).await?) };
    let before = read().await?;
    let longer = EndAsk::After(SignedDuration::from_mins(10));
    let moved = verdict("extend", bench.limited("extend", reservations.extend(&id, longer, false)).await?)?;
    ensure(moved.end > before.end, || format!("{id} was extended from {} to {}", before.end, moved.end))?;
    let after = read().await?;
    ensure(after.end == moved.end && after.state == LeaseState::Active, || {
        format!("{id} was extended to {}, but is {} until {}", moved.end, after.status, after.end)
    })?;
    let seen = bench.exactly_one(&scope, &request.key).await?;
    ensure(seen.id == id && seen.until.is_none_or(|until| until == moved.end), || {
        format!("{id} was extended to {}, but observe shows {} until {:?}", moved.end, seen.id, seen.until)
    })?;
    bench.release_all(&scope).await
}
