//! This machine as a provider: the default, and the reference for providers of hosts.
//!
//! A host is an *allotment*: its own folder under the data folder, claimed by a file in it. The engine manages the
//! processes and the Ray environment in it.

mod allotment;
mod config;
mod machine;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::{
    Acquired, Capability, Context, Factory, FieldError, HostPlace, HostRequest, Manifest, ObservedResource, Offer,
    Provider, ProviderKind, Recorder, ResourceRequest, ResourceState, Runtime, settings,
};
use allotment::{Allotments, Condition};
use config::{HostSettings, Settings};

/// The only kind of resource of this provider.
const HOST: &str = "host";

/// This provider's entry in the registry.
pub static FACTORY: LocalFactory = LocalFactory;

/// Opens this machine as a provider.
#[derive(Debug)]
pub struct LocalFactory;

impl Factory for LocalFactory {
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

    fn open(&self, _settings: &Value, context: &Context) -> Result<Box<dyn Provider>> {
        Ok(Box::new(Local::new(context.data_dir.join("hosts"), PathBuf::from("/"))))
    }
}

fn capability() -> Capability {
    Capability {
        kind: ProviderKind::Host,
        costs_money: false,
        extend: false,
        reserves: false,
        hosts_vanish: false,
        is_here: true,
        host_key_in_user_data: false,
        boot: Duration::ZERO,
        several_resources: false,
        behind_first: false,
        poll: crate::provider::USUAL_POLL,
        // Several owners may share one home, and an owner may have other clusters.
        shared_account: true,
        consistency_delay: Duration::ZERO,
        runtimes: &[Runtime::Native],
        most_hosts: Some(1),
    }
}

/// This machine.
struct Local {
    allotments: Allotments,
    /// `/`, or its substitute in a test.
    root: PathBuf,
}

impl Local {
    fn new(hosts: PathBuf, root: PathBuf) -> Self {
        Self { allotments: Allotments::new(hosts), root }
    }
}

#[async_trait]
impl Provider for Local {
    fn capability(&self) -> Capability {
        capability()
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        Ok(vec![machine::offer(&self.root)?])
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        let found = self.allotments.list()?.into_iter().filter(|allotment| allotment.tag.owner == *owner);
        Ok(found
            .map(|allotment| {
                let found = ObservedResource {
                    state: match allotment.condition {
                        Condition::Whole => ResourceState::Usable,
                        _ => ResourceState::Unusable,
                    },
                    detail: allotment.condition.to_string(),
                    ..ObservedResource::existing(allotment.tag.key.clone(), HOST, allotment.id)
                };
                (allotment.tag, found)
            })
            .collect())
    }

    fn expand(&self, _scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        let host = ResourceRequest::new(request.key.clone(), HOST, request.settings.clone());
        Ok(vec![ResourceRequest { is_host: true, ..host }])
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        check_host_request(tag, request)?;
        let (id, was_there) = self.allotments.claim(tag, &crate::util::digest::of_json(request)).await?;
        Acquired { id, was_there }.recorded(recorder, tag, &format!("the folder of {tag}")).await
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        self.allotments.release(&scope.tag(&resource.key), &resource.id).await
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        Ok(place(self.allotments.folder_of(tag, id)?))
    }

    fn standing(&self, scope: &Scope, request: &HostRequest) -> Option<HostPlace> {
        Some(place(self.allotments.folder(&scope.tag(&request.key))))
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        let settings = serde_json::json!({ "gpus_from_thin_air": 8 });
        ResourceRequest { is_host: true, ..ResourceRequest::new(key.clone(), HOST, settings) }
    }
}

/// A place on this machine, with all of a host's files in this folder.
fn place(folder: PathBuf) -> HostPlace {
    HostPlace::Local { folder, claim: allotment::CLAIM.to_owned() }
}

/// Validates the request before anything is changed.
fn check_host_request(tag: &Tag, request: &ResourceRequest) -> Result<()> {
    let refused = |cause: String| {
        Err(Error::new(ErrorKind::Provider, format!("allocate a folder on this machine for {tag}"))
            .because(cause)
            .hint("the provider `local` takes no settings for a host: write `hosts: [{}]`, or leave `hosts` out"))
    };
    if request.kind.0 != HOST {
        return refused(format!("this machine has no resource of kind `{}`", request.kind.0));
    }
    match settings::read::<HostSettings>(&request.settings, "") {
        Ok(_) => Ok(()),
        Err(errors) => refused(
            errors.iter().map(|error| format!("`{}`: {}", error.path, error.message)).collect::<Vec<_>>().join(", "),
        ),
    }
}
