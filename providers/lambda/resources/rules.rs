//! The firewall ruleset of a cluster with several hosts: SSH from everywhere, everything from each other.
//!
//! It is created before the first launch, since an instance gets its rulesets at launch; the hosts' addresses are added
//! as they become known. The account's own rules are never changed: that call replaces them for all its machines.

use super::{Named, find, made, rules_key};
use crate::error::{Error, ErrorKind, Result};
use crate::lambda::api::{Effect, FailureKind, Instance, Rule};
use crate::lambda::cloud::{Age, Cloud, tag_of};
use crate::name::{Scope, Tag};
use crate::provider::{Acquired, ResourceRequest};

/// The maximum number of attempts to change rules. A change replaces all rules, so it is idempotent.
const AGAIN: usize = 3;

/// The rule that is there before any address is known.
fn ssh() -> Rule {
    Rule {
        protocol: "tcp".to_owned(),
        port_range: Some([22, 22]),
        source_network: "0.0.0.0/0".to_owned(),
        description: "gpucl: SSH".to_owned(),
    }
}

/// Creates the ruleset of this tag, or finds it.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<Acquired> {
    let account = cloud.account()?;
    let name = tag.to_string();
    let region = request.settings["region"].as_str().unwrap_or_default();
    let named = Named::Ruleset(&name, region);
    if let Some(id) = find(cloud, &named).await? {
        return Ok(Acquired { id, was_there: true });
    }
    let answer = account.create_ruleset(&name, region, &[ssh()]).await;
    cloud.changed();
    match answer {
        Err(failure) if failure.kind == FailureKind::InvalidParameters => Err(Error::from(failure)
            .because(format!("several hosts need firewall rules to reach each other, but {region} accepts none"))
            .hint("choose another region (`regions:` in the spec), or use one host")),
        answer => made(cloud, &named, answer.map(|ruleset| ruleset.id)).await,
    }
}

/// The rules for a cluster with these instances.
fn rules_of(scope: &Scope, instances: &[Instance]) -> Vec<Rule> {
    let mut rules = vec![ssh()];
    for instance in instances {
        let Some(tag) = tag_of(instance).filter(|tag| scope.holds(tag)) else { continue };
        for address in [instance.address(), instance.private_address()].into_iter().flatten() {
            let source_network = format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 });
            if rules.iter().all(|rule| rule.source_network != source_network) {
                rules.push(Rule {
                    protocol: "all".to_owned(),
                    port_range: Some([1, 65535]),
                    source_network,
                    description: format!("gpucl: {}", tag.key.display_name()),
                });
            }
        }
    }
    rules
}

/// Updates the ruleset so that hosts with an address can reach each other.
pub(super) async fn let_peers_in(cloud: &Cloud, scope: &Scope) -> Result<()> {
    let account = cloud.account()?;
    let name = scope.tag(&rules_key()).to_string();
    let _alone = cloud.changing_rules.lock().await;
    let mut last = None;
    for _ in 0..AGAIN {
        let (rulesets, instances) = tokio::try_join!(cloud.rulesets(Age::New), cloud.instances(Age::Fresh))?;
        let Some(ruleset) = rulesets.iter().find(|one| one.name == name) else {
            return Err(Error::new(
                ErrorKind::Provider,
                format!("let the hosts of {} reach each other", scope.cluster),
            )
            .because("their firewall ruleset no longer exists: somebody deleted it")
            .hint(format!("gpucl down -c {}   # then up again: a host gets its rules at launch", scope.cluster)));
        };
        let wanted = rules_of(scope, &instances);
        let is_in = |rule: &Rule| {
            ruleset.rules.iter().any(|there| there.protocol == rule.protocol && network(there) == network(rule))
        };
        if wanted.iter().all(is_in) && ruleset.rules.len() == wanted.len() {
            return Ok(());
        }
        let changed = account.replace_rules(&ruleset.id, &wanted).await;
        cloud.changed();
        match changed {
            Ok(_) => return Ok(()),
            Err(failure) if failure.effect == Effect::Unknown || failure.kind == FailureKind::Conflict => {
                last = Some(failure);
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    last.map_or(Ok(()), |failure| Err(failure.into()))
}

/// The network of a rule, without `/32`: a bare address means the same.
fn network(rule: &Rule) -> &str {
    rule.source_network.trim_end_matches("/32")
}

/// The ids of the rulesets for an instance of this tag.
pub(super) async fn ids_for(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<Vec<String>> {
    if !request.needs.contains(&rules_key()) {
        return Ok(Vec::new());
    }
    let name = super::scope_of(tag).tag(&rules_key()).to_string();
    let found = cloud.rulesets(Age::Fresh).await?.iter().find(|one| one.name == name).map(|one| one.id.clone());
    // Without its ruleset the host would be open to whatever the account's rules allow.
    found.map(|id| vec![id]).ok_or_else(|| {
        Error::new(ErrorKind::Provider, format!("launch {}", tag.key.display_name()))
            .because("the firewall ruleset of its cluster no longer exists: somebody deleted it")
            .hint("run the same command again: it creates a new one")
    })
}
