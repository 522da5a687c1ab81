//! Existing machines, reached over SSH.
//!
//! Such a machine exists before it is acquired and stays when it is released. To acquire one is to create a *claim*: a
//! local file that records which host of which cluster it is. The first program that runs on the machine creates its
//! folder there: a separate call would cost another session and prove nothing more.

mod claim;
mod config;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::host::SshTarget;
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::{
    Acquired, Capability, Context, Factory, FieldError, HostPlace, HostRequest, Manifest, ObservedResource, Offer,
    Provider, ProviderKind, Recorder, ResourceRequest, ResourceState, Runtime, settings,
};
use claim::Claims;
use config::Settings;

/// The only kind of resource of this provider.
const HOST: &str = "host";

/// This provider's entry in the registry.
pub static FACTORY: SshFactory = SshFactory;

/// Opens machines over SSH as a provider.
#[derive(Debug)]
pub struct SshFactory;

impl Factory for SshFactory {
    fn manifest(&self) -> Result<Manifest> {
        Manifest::parse(include_str!("provider.yaml"), module_path!())
    }

    fn capability(&self) -> Capability {
        capability()
    }

    fn settings_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Settings)
    }

    fn host_schema(&self) -> schemars::Schema {
        config::host_schema()
    }

    fn example_host(&self) -> Value {
        // Nothing connects to it: claiming a host is a local operation.
        serde_json::json!({ "node": "gpu1" })
    }

    fn check(&self, settings: &Value, hosts: &[Value]) -> Vec<FieldError> {
        let mut errors = settings::read::<Settings>(settings, "").err().unwrap_or_default();
        let shared = settings::read::<Settings>(settings, "").unwrap_or_default();
        errors.extend(config::check_shared(&shared));
        let mut seen: Vec<(SshTarget, usize)> = Vec::new();
        for (index, host) in hosts.iter().enumerate() {
            let path = format!("hosts[{index}]");
            let target = match config::target(&shared, host, &path) {
                Ok(target) => target,
                Err(wrong) => {
                    // Errors in the defaults are reported once.
                    errors.extend(wrong.into_iter().filter(|error| error.path.starts_with("hosts[")));
                    continue;
                }
            };
            let is_same = |other: &SshTarget| {
                other.node.eq_ignore_ascii_case(&target.node) && other.port.unwrap_or(22) == target.port.unwrap_or(22)
            };
            match seen.iter().find(|(other, _)| is_same(other)) {
                Some((_, first)) => errors.push(FieldError {
                    path: if host.is_string() { path } else { format!("{path}.node") },
                    message: format!("is the same machine as hosts[{first}]"),
                    known: Vec::new(),
                }),
                None => seen.push((target, index)),
            }
        }
        errors
    }

    fn open(&self, settings: &Value, context: &Context) -> Result<Box<dyn Provider>> {
        let settings =
            settings::read::<Settings>(settings, "").map_err(|errors| describe("open the provider `ssh`", &errors))?;
        Ok(Box::new(Ssh { claims: Claims::new(context.data_dir.join("ssh")), settings }))
    }
}

fn capability() -> Capability {
    Capability {
        kind: ProviderKind::Host,
        costs_money: false,
        extend: false,
        reserves: false,
        hosts_vanish: false,
        is_here: false,
        host_key_in_user_data: false,
        boot: Duration::ZERO,
        several_resources: false,
        behind_first: false,
        poll: crate::provider::USUAL_POLL,
        // Several owners may share one home, and an owner may have other clusters.
        shared_account: true,
        consistency_delay: Duration::ZERO,
        runtimes: &[Runtime::Docker, Runtime::Native],
        most_hosts: None,
    }
}

/// Machines over SSH.
struct Ssh {
    claims: Claims,
    settings: Settings,
}

#[async_trait]
impl Provider for Ssh {
    fn capability(&self) -> Capability {
        capability()
    }

    /// None: only machines named in a spec can be used.
    async fn offers(&self) -> Result<Vec<Offer>> {
        Ok(Vec::new())
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        let found = self.claims.list()?.into_iter().filter(|found| found.tag.owner == *owner);
        Ok(found
            .map(|found| {
                let (state, detail) = match found.claim {
                    Ok(claim) => (ResourceState::Usable, claim.target.node),
                    Err(why) => (ResourceState::Unusable, format!("its claim is damaged: {why}")),
                };
                let seen = ObservedResource {
                    state,
                    detail,
                    ..ObservedResource::existing(found.tag.key.clone(), HOST, found.id)
                };
                (found.tag, seen)
            })
            .collect())
    }

    fn expand(&self, _scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        let doing = || format!("read the entry of {}", request.key.display_name());
        let target =
            config::target(&self.settings, &request.settings, "").map_err(|errors| describe(&doing(), &errors))?;
        let settings =
            serde_json::to_value(target).map_err(|error| Error::new(ErrorKind::Internal, doing()).caused_by(&error))?;
        Ok(vec![ResourceRequest { is_host: true, ..ResourceRequest::new(request.key.clone(), HOST, settings) }])
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        let doing = format!("claim a host for {tag}");
        if request.kind.0 != HOST {
            return Err(Error::new(ErrorKind::Provider, doing)
                .because(format!("the provider `ssh` has no resource of kind `{}`", request.kind.0)));
        }
        // The request is complete: `expand` has filled in the defaults.
        let target =
            config::target(&Settings::default(), &request.settings, "").map_err(|errors| describe(&doing, &errors))?;
        let (id, was_there) = self.claims.claim(tag, target).await?;
        Acquired { id, was_there }.recorded(recorder, tag, &format!("the claim of {tag}")).await
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        self.claims.release(&scope.tag(&resource.key), &resource.id).await
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        let cause = match self.claims.find(tag).filter(|found| found.id == id).map(|found| found.claim) {
            Some(Ok(claim)) => return Ok(HostPlace::Ssh { target: claim.target, site: Box::default() }),
            Some(Err(why)) => format!("its claim is damaged: {why}"),
            None => format!("no claim has this tag and the id {id}"),
        };
        Err(Error::new(ErrorKind::Provider, format!("find the host of {tag}"))
            .because(cause)
            .hint(format!("gpucl status -c {}", tag.cluster)))
    }

    fn standing(&self, _scope: &Scope, request: &HostRequest) -> Option<HostPlace> {
        let target = config::target(&self.settings, &request.settings, "").ok()?;
        Some(HostPlace::Ssh { target, site: Box::default() })
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        let settings = serde_json::json!({ "node": "-oProxyCommand=sh" });
        ResourceRequest { is_host: true, ..ResourceRequest::new(key.clone(), HOST, settings) }
    }
}

/// Invalid settings as one error.
fn describe(doing: &str, errors: &[FieldError]) -> Error {
    settings::wrong(doing, errors)
        .hint("name the host under `hosts:`, such as `hosts: [{node: gpu1}]`; providers/ssh/README.md has the rest")
}
