//! The one site of a cluster: where it is, or else where it can begin first.

use jiff::Timestamp;
use serde_json::Value;

use super::{SiteOffer, Sites, best, of_all, why};
use crate::cluster::settings::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::plan::Price;
use crate::provider::{HostRequest, Provider, Resolved, ResourceRequest};
use crate::providers;
use crate::spec::{Loaded, ProviderChoice, Spec};
use crate::state::{ClusterState, LeaseSource};
use crate::util::when;

/// The key of the provider's settings that names a site.
const SITE: &str = "site";

/// The spec with its site, and notes on why it is that one. A cluster stays where it is; a new one goes where it begins
/// first, and then where it is cheapest.
///
/// # Errors
/// If the spec names another site than the one where the cluster is, or no site has what it asks for.
pub(in crate::cluster) async fn at_its_site(
    settings: &Settings,
    loaded: &Loaded,
    known: Option<&ClusterState>,
) -> Result<(Loaded, Vec<String>)> {
    let spec = &loaded.spec;
    let recorded = known.filter(|known| !known.items.is_empty()).and_then(|known| known.spec.as_ref());
    let recorded = recorded.filter(|before| before.provider.name() == spec.provider.name()).and_then(site_of);
    match (recorded, site_of(spec)) {
        (Some(there), Some(asked)) if !is_same(spec, &asked, &there)? => Err(moved(spec, &there, &asked)),
        (Some(there), _) => Ok((with_site(loaded, there), Vec::new())),
        (None, Some(_)) => Ok((loaded.clone(), Vec::new())),
        (None, None) => chosen(settings, loaded).await,
    }
}

/// The spec at the site that holds resources of its cluster; `None` if no site does.
///
/// # Errors
/// If no site holds any, and one could not be asked.
pub(in crate::cluster) async fn holder(settings: &Settings, spec: &Spec) -> Result<Option<Spec>> {
    let sites = Sites::of(&source_of(spec), &settings.context())?;
    let scope = settings.scope(&spec.name);
    let asked = sites.ask(async |site| site.provider.observe(&scope).await).await;
    let holding = asked.found.iter().find(|(_, found)| !found.is_empty());
    match (holding, asked.failed.is_empty()) {
        (Some((site, _)), _) => Ok(Some(Spec { provider: choice_of(&site.source), ..spec.clone() })),
        (None, true) => Ok(None),
        (None, false) => Err(of_all(&asked.failed, &format!("find the resources of {}", spec.name))),
    }
}

/// The spec at its site, if it names none and the login reaches several: the state of an earlier gpucl may name none.
///
/// # Errors
/// If no site holds any of it, and one could not be asked.
pub(in crate::cluster) async fn if_several(settings: &Settings, spec: Spec) -> Result<Spec> {
    match Sites::of(&source_of(&spec), &settings.context()) {
        Ok(sites) if sites.len() > 1 => Ok(holder(settings, &spec).await?.unwrap_or(spec)),
        _ => Ok(spec),
    }
}

async fn chosen(settings: &Settings, loaded: &Loaded) -> Result<(Loaded, Vec<String>)> {
    let spec = &loaded.spec;
    let sites = Sites::of(&source_of(spec), &settings.context())?;
    if sites.len() == 1 {
        let only = sites.iter().next().and_then(|site| text_of(&site.source.settings));
        return Ok((only.map_or_else(|| loaded.clone(), |only| with_site(loaded, only)), Vec::new()));
    }
    let scope = settings.scope(&spec.name);
    let hosts = || {
        let entries = spec.hosts.iter().enumerate();
        entries.map(|(index, entry)| HostRequest::new(Key::host(index), entry.clone())).collect::<Vec<_>>()
    };
    let asked = sites.ask(async |site| {
        let held = site.provider.observe(&scope).await?;
        Ok((!held.is_empty(), site.provider.resolve(&scope, hosts()).await))
    });
    let asked = asked.await;
    // What an earlier command made is gone on with, even if its record is lost.
    if let Some((site, _)) = asked.found.iter().find(|(_, (holds, _))| *holds) {
        let note = format!("it stays at {}, where it has resources", site.name());
        return Ok((with_site(loaded, site.name().to_owned()), vec![note]));
    }
    let (mut offers, mut refused) = (Vec::new(), asked.failed);
    for (site, (_, resolved)) in asked.found {
        match resolved.and_then(|resolved| offer_of(settings, spec, site.provider.as_ref(), &resolved)) {
            Ok((start, price)) => offers.push(SiteOffer { site: site.name().to_owned(), start, price }),
            Err(error) => refused.push(super::SiteFailure { source: site.source.clone(), error }),
        }
    }
    let Some(index) = best(&offers) else {
        return Err(of_all(&refused, &format!("find a site for {}", spec.name)));
    };
    let zone = when::zone(settings.user_environment.variable("TZ"));
    let note = why(&offers, index, &refused, &zone);
    Ok((with_site(loaded, offers[index].site.clone()), vec![note]))
}

/// When the hosts begin, if not now, and what an hour costs.
fn offer_of(
    settings: &Settings,
    spec: &Spec,
    provider: &dyn Provider,
    resolved: &Resolved,
) -> Result<(Option<Timestamp>, Option<crate::money::HourlyPrice>)> {
    let scope = settings.scope(&spec.name);
    let mut requests: Vec<ResourceRequest> = Vec::new();
    for host in &resolved.hosts {
        for request in provider.expand(&scope, host)? {
            if requests.iter().all(|known| known.key != request.key) {
                requests.push(request);
            }
        }
    }
    let price = Price::of(&requests).per_hour.first().copied().map(crate::money::HourlyPrice);
    Ok((resolved.start.as_ref().map(|start| start.at), price))
}

fn moved(spec: &Spec, there: &str, asked: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("bring up the cluster {}", spec.name))
        .because(format!("it is at {there}, and the spec says {asked}; nothing was changed"))
        .hint(format!("gpucl down -c {}   # then up again; or give the new one another `name:`", spec.name))
}

/// Whether a spec's cluster is at this site; `true` if it names none.
///
/// # Errors
/// When the provider is unknown.
pub(in crate::cluster) fn is_at(spec: &Spec, site: &str) -> Result<bool> {
    site_of(spec).map_or(Ok(true), |there| is_same(spec, &there, site))
}

/// Whether both words name one site.
fn is_same(spec: &Spec, one: &str, other: &str) -> Result<bool> {
    let factory = providers::find(spec.provider.name())?;
    let means = |word: &str, place: &str| factory.login().is_some_and(|login| login.means(word, place));
    Ok(one == other || means(one, other) || means(other, one))
}

fn source_of(spec: &Spec) -> LeaseSource {
    LeaseSource { provider: spec.provider.name().to_owned(), settings: spec.provider.settings(), place: String::new() }
}

fn choice_of(source: &LeaseSource) -> ProviderChoice {
    match source.settings.as_object() {
        Some(settings) if !settings.is_empty() => {
            ProviderChoice::Full { name: source.provider.clone(), settings: settings.clone() }
        }
        _ => ProviderChoice::Name(source.provider.clone()),
    }
}

fn site_of(spec: &Spec) -> Option<String> {
    text_of(&spec.provider.settings())
}

fn text_of(settings: &Value) -> Option<String> {
    settings.get(SITE).and_then(Value::as_str).map(str::to_owned)
}

fn with_site(loaded: &Loaded, site: String) -> Loaded {
    let mut loaded = loaded.clone();
    let mut source = source_of(&loaded.spec);
    if let Some(map) = source.settings.as_object_mut() {
        map.insert(SITE.to_owned(), Value::String(site));
    }
    loaded.spec.provider = choice_of(&source);
    loaded
}
