//! Bare-metal hosts of the Chameleon testbed: OpenStack plus Blazar, which reserves hosts by name and time.
//!
//! Each host takes a lease, a key pair and a server; the head also a floating IP. The hosts of a cluster share the
//! lease and the key pair. Every resource is tagged by the call that creates it: the lease at the end of its name, the
//! key pair as its name, the server in its metadata, the floating IP in its description. A tagged resource of another
//! user is not ours. The API does not report who made a floating IP, so it carries a signed mark as well.

mod api;
mod auth;
mod cloud;
mod config;
mod credentials;
mod found;
#[cfg(test)]
mod fuzz;
mod inspect;
mod leases;
mod nodes;
mod policy;
mod proposal;
mod refresh;
mod reservations;
mod resolve;
mod resources;
mod slots;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::Result;
use crate::host::SshTarget;
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::{
    Acquired, Capability, Context, Factory, FieldError, HostPlace, HostRequest, Login, Manifest, ObservedResource,
    Offer, Provider, ProviderKind, Recorder, Reservations, Resolved, ResourceRequest, Runtime, SiteFinding, settings,
};
use cloud::Cloud;
use config::HostSettings;
use resources::ChameleonResource;

/// The provider's entry in the registry.
pub static FACTORY: ChameleonFactory = ChameleonFactory;

/// Opens the Chameleon provider.
#[derive(Debug)]
pub struct ChameleonFactory;

impl Factory for ChameleonFactory {
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
        settings::or_text(schemars::schema_for!(HostSettings), "The host's name alone.")
    }

    fn example_host(&self) -> Value {
        // Any host: the conformance suite requests three at once.
        serde_json::json!({ "gpus": 1 })
    }

    fn check(&self, settings: &Value, hosts: &[Value]) -> Vec<FieldError> {
        config::check(settings, hosts)
    }

    fn login(&self) -> Option<&dyn Login> {
        Some(&auth::ChameleonLogin)
    }

    fn each_site(&self, settings: &Value, context: &Context) -> Result<Vec<Value>> {
        auth::each_site(settings, context)
    }

    fn open(&self, settings: &Value, context: &Context) -> Result<Box<dyn Provider>> {
        let settings = config::read_settings(settings)
            .map_err(|errors| settings::wrong("open the provider `chameleon`", &errors))?;
        Ok(Box::new(Chameleon { cloud: Cloud::new(settings, context) }))
    }
}

fn capability() -> Capability {
    Capability {
        kind: ProviderKind::Host,
        costs_money: true,
        extend: true,
        reserves: true,
        hosts_vanish: true,
        is_here: false,
        host_key_in_user_data: true,
        // A bare-metal host takes 10 to 20 minutes to become active, and up to 10 more to answer by SSH.
        boot: Duration::from_secs(30 * 60),
        several_resources: true,
        behind_first: true,
        poll: crate::provider::USUAL_POLL,
        shared_account: true,
        consistency_delay: Duration::from_secs(5),
        runtimes: &[Runtime::Docker],
        most_hosts: None,
    }
}

struct Chameleon {
    cloud: Cloud,
}

#[async_trait]
impl Provider for Chameleon {
    fn capability(&self) -> Capability {
        capability()
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        self.cloud.offers().await
    }

    async fn inspect_site(&self) -> Result<Vec<SiteFinding>> {
        inspect::inspect(&self.cloud).await
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
                let user = Some(self.cloud.settings.user().to_owned());
                HostPlace::Ssh { target: SshTarget { user, ..target }, site }
            }
            here => here,
        }
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        resources::place(&self.cloud, tag, id).await
    }

    fn reservations(&self) -> Option<&dyn Reservations> {
        Some(&self.cloud)
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        let settings = serde_json::json!({ "hosts": { "nodes": ["no-such-host"] } });
        ResourceRequest::new(key.clone(), ChameleonResource::Lease.name(), settings)
    }
}
