//! GPU instances of Lambda Cloud: by type and region, billed by the minute from launch to termination.
//!
//! A host takes an SSH key and an instance; several hosts also a firewall ruleset that lets them connect to each
//! other. Every resource is tagged by the call that creates it: key, ruleset and file system by their name, the
//! instance by its tags.

mod api;
mod choice;
mod cloud;
mod config;
mod credentials;
mod found;
mod login;
mod resolve;
mod resources;
#[cfg(test)]
mod tests;
mod used;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::Result;
use crate::host::SshTarget;
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::{
    Acquired, Capability, Context, Factory, FieldError, HostPlace, HostRequest, Login, Manifest, ObservedResource,
    Offer, Provider, ProviderKind, Recorder, Resolved, ResourceRequest, Runtime, settings,
};
use cloud::Cloud;
use config::HostSettings;
use resources::LambdaResource;

/// The provider's entry in the registry.
pub static FACTORY: LambdaFactory = LambdaFactory;

/// Opens the Lambda provider.
#[derive(Debug)]
pub struct LambdaFactory;

impl Factory for LambdaFactory {
    fn manifest(&self) -> Result<Manifest> {
        Manifest::parse(include_str!("provider.yaml"), module_path!())
    }

    fn capability(&self) -> Capability {
        capability()
    }

    fn settings_schema(&self) -> schemars::Schema {
        schemars::schema_for!(config::Settings)
    }

    fn host_schema(&self) -> schemars::Schema {
        settings::or_text(schemars::schema_for!(HostSettings), "The type alone.")
    }

    fn example_host(&self) -> Value {
        // The cheapest type with a GPU.
        serde_json::json!({ "gpus": { "count": 1 } })
    }

    fn check(&self, settings: &Value, hosts: &[Value]) -> Vec<FieldError> {
        config::check(settings, hosts)
    }

    fn file_system(&self, settings: &Value, name: &str) -> Option<String> {
        let settings = config::read_settings(settings).ok()?;
        settings.file_systems.iter().find(|one| one.name == name).map(config::FileSystemSettings::mount_point)
    }

    fn login(&self) -> Option<&dyn Login> {
        Some(&login::LambdaLogin)
    }

    fn open(&self, settings: &Value, context: &Context) -> Result<Box<dyn Provider>> {
        let settings =
            config::read_settings(settings).map_err(|errors| settings::wrong("open the provider `lambda`", &errors))?;
        Ok(Box::new(Lambda { cloud: Cloud::new(settings, context) }))
    }
}

/// The poll interval of a capacity wait: it uses less than a fifth of Lambda's limit of one call a second.
const POLL: Duration = Duration::from_secs(20);

fn capability() -> Capability {
    Capability {
        kind: ProviderKind::Host,
        costs_money: true,
        extend: false,
        reserves: false,
        hosts_vanish: true,
        is_here: false,
        host_key_in_user_data: true,
        // An instance takes 4 to 15 minutes to get an address, and some more to answer by SSH.
        boot: Duration::from_secs(30 * 60),
        several_resources: true,
        behind_first: false,
        poll: POLL,
        shared_account: true,
        consistency_delay: Duration::from_secs(5),
        runtimes: &[Runtime::Docker, Runtime::Native],
        most_hosts: None,
    }
}

struct Lambda {
    cloud: Cloud,
}

#[async_trait]
impl Provider for Lambda {
    fn capability(&self) -> Capability {
        let poll = self.cloud.account().map_or(POLL, |account| account.scaled(POLL));
        Capability { poll, ..capability() }
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        let types = self.cloud.account()?.types().await?;
        let mut offers = Vec::new();
        for item in &types {
            let kind = &item.instance_type;
            for region in &item.regions_with_capacity_available {
                offers.push(resolve::offer(kind, &region.name, "now"));
            }
            if item.regions_with_capacity_available.is_empty() {
                offers.push(resolve::offer(kind, "no region", "no capacity now"));
            }
        }
        Ok(offers)
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        resources::owned(&self.cloud, owner).await
    }

    async fn tagged(&self) -> Result<Vec<(Tag, ObservedResource)>> {
        resources::tagged(&self.cloud).await
    }

    async fn resolve(&self, scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
        resolve::resolve(&self.cloud, scope, hosts).await
    }

    async fn observe_adopted(&self, requests: &[ResourceRequest]) -> Result<Vec<ObservedResource>> {
        resources::observe_adopted(&self.cloud, requests).await
    }

    fn expand(&self, _scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        resources::expand(&self.cloud, request)
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        resources::acquire(&self.cloud, tag, request, recorder).await
    }

    async fn wait_usable(&self, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
        resources::wait_usable(&self.cloud, tag, request, id).await
    }

    async fn release(&self, _scope: &Scope, resource: &ObservedResource) -> Result<()> {
        resources::release(&self.cloud, resource).await
    }

    fn reached(&self, place: HostPlace) -> HostPlace {
        match place {
            HostPlace::Ssh { target, site } => {
                let settings = &self.cloud.settings;
                let (user, port) = (settings.user().map(str::to_owned), settings.ssh_port);
                HostPlace::Ssh { target: SshTarget { user, port, ..target }, site }
            }
            here => here,
        }
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        resources::place(&self.cloud, tag, id).await
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        let settings = serde_json::json!({ "type": "no_such_type" });
        ResourceRequest {
            is_host: true,
            ..ResourceRequest::new(key.clone(), LambdaResource::Instance.name(), settings)
        }
    }
}
