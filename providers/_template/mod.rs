//! Machines of a place that does not exist: a template for new providers, to be copied.

mod api;
mod config;
mod error;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::{LeftBehind, Result};
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::{
    Acquired, Capability, Context, Factory, FieldError, HostPlace, HostRequest, Manifest, ObservedResource, Offer,
    Provider, ProviderKind, Recorder, ResourceRequest, Runtime, settings,
};
use api::Api;
use config::{HostSettings, Settings};

/// The only kind of resource here. A real provider may have several: lease, key pair, server, address.
const MACHINE: &str = "machine";

/// This provider's entry in the registry. The build script expects the name `FACTORY`.
pub static FACTORY: TheFactory = TheFactory;

/// Opens this place as a provider.
#[derive(Debug)]
pub struct TheFactory;

impl Factory for TheFactory {
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
        schemars::schema_for!(HostSettings)
    }

    fn check(&self, settings: &Value, hosts: &[Value]) -> Vec<FieldError> {
        let mut errors = settings::read::<Settings>(settings, "").err().unwrap_or_default();
        for (index, host) in hosts.iter().enumerate() {
            errors.extend(settings::read::<HostSettings>(host, &format!("hosts[{index}]")).err().unwrap_or_default());
        }
        errors
    }

    fn open(&self, settings: &Value, context: &Context) -> Result<Box<dyn Provider>> {
        let settings: Settings = settings::read(settings, "").map_err(|errors| error::wrong_settings(&errors))?;
        // Two providers must not share a folder, so it has this module's name.
        let name = module_path!().rsplit("::").next().unwrap_or_default();
        let folder = context.data_dir.join(name).join(&settings.region);
        Ok(Box::new(Region { api: Api::new(folder), region: settings.region }))
    }
}

/// The provider's capabilities, the only thing the engine decides by.
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
        shared_account: true,
        consistency_delay: Duration::ZERO,
        runtimes: &[Runtime::Native],
        most_hosts: None,
    }
}

/// The provider, opened in one region.
struct Region {
    api: Api,
    region: String,
}

#[async_trait]
impl Provider for Region {
    fn capability(&self) -> Capability {
        capability()
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        let sizes = api::SIZES.iter();
        Ok(sizes
            .map(|(size, cpus)| Offer {
                name: (*size).to_owned(),
                place: self.region.clone(),
                cpus: *cpus,
                memory: u64::from(*cpus) << 32,
                gpus: Vec::new(),
                price_per_hour: None,
                free: "now".to_owned(),
            })
            .collect())
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        let machines = self.api.list().await.map_err(|failure| error::of("list the machines", &failure))?;
        // Tags are parsed as a whole: `a` is not `a-b`. Machines without a gpucl tag are ignored.
        let ours = machines.into_iter().filter_map(|machine| {
            let tag: Tag = machine.name.parse().ok()?;
            (tag.owner == *owner).then_some((tag, machine))
        });
        Ok(ours
            .map(|(tag, machine)| {
                let found = ObservedResource::existing(tag.key.clone(), MACHINE, machine.id);
                (tag, found)
            })
            .collect())
    }

    fn expand(&self, _scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        let host = ResourceRequest::new(request.key.clone(), MACHINE, request.settings.clone());
        Ok(vec![ResourceRequest { is_host: true, ..host }])
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        let doing = format!("create the machine {tag}");
        let wanted: HostSettings =
            settings::read(&request.settings, "").map_err(|errors| error::wrong_settings(&errors))?;
        // An earlier call may have lost its answer: its machine carries the tag.
        let machines = self.api.list().await.map_err(|failure| error::of(&doing, &failure))?;
        let before = machines.into_iter().find(|machine| machine.name == tag.to_string());
        let was_there = before.is_some();
        let machine = match before {
            Some(machine) => machine,
            // The only mutating call. It sets the tag, so that no machine ever exists without it.
            None => {
                self.api.create(&tag.to_string(), &wanted.size).await.map_err(|failure| error::of(&doing, &failure))?
            }
        };
        // Record the id before anything else happens.
        match recorder.exists(&tag.key, &machine.id).await {
            Ok(()) => Ok(Acquired { id: machine.id, was_there }),
            Err(failed) => Err(failed.while_doing(doing).left(LeftBehind::Remaining(vec![machine.id]))),
        }
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        let doing = format!("delete the machine {}", scope.tag(&resource.key));
        match self.api.delete(&resource.id).await {
            Ok(()) => Ok(()),
            Err(failure) if error::is_gone(&failure) => Ok(()),
            Err(failure) => Err(error::of(&doing, &failure).left(LeftBehind::Remaining(vec![resource.id.clone()]))),
        }
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        let doing = format!("find the machine {tag}");
        let folder = self.api.find(id).await.map_err(|failure| error::of(&doing, &failure))?;
        Ok(HostPlace::Local { folder, claim: String::new() })
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        let settings = serde_json::json!({ "size": "bigger-than-there-is" });
        ResourceRequest { is_host: true, ..ResourceRequest::new(key.clone(), MACHINE, settings) }
    }
}
