//! A batch job on a Slurm cluster: the job is the allocation, and its nodes are the hosts.
//!
//! Everything goes through the login machine, by SSH or on that machine itself. `docs/design/0015-slurm.md` says why a
//! job is a resource like a lease, and what runs in it.

mod config;
mod found;
mod job;
mod login;
mod names;
mod offers;
mod options;
mod place;
mod queue;
mod refusal;
mod resolve;
mod resources;
mod site;
#[cfg(test)]
mod tests;
mod wait;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::host::SshTarget;
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::{
    Acquired, Capability, Context, Factory, FieldError, HostPlace, HostRequest, Manifest, ObservedResource, Offer,
    Provider, ProviderKind, Recorder, Resolved, ResourceRequest, Runtime, Site, SiteFinding, settings,
};
use crate::render::Library;
use crate::util::digest;
use config::{HostSettings, Settings};
use login::LoginMachine;
use names::{HOST, JOB};

/// This provider's entry in the registry.
pub static FACTORY: SlurmFactory = SlurmFactory;

/// Opens a Slurm cluster as a provider.
#[derive(Debug)]
pub struct SlurmFactory;

impl Factory for SlurmFactory {
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
        config::check(settings, hosts)
    }

    fn open(&self, value: &Value, context: &Context) -> Result<Box<dyn Provider>> {
        let wrong = |errors: Vec<FieldError>| settings::wrong("read the settings of the provider `slurm`", &errors);
        let settings = config::read(value).map_err(wrong)?;
        let library = Library::new(vec![context.user_environment.config_dir.clone()]);
        // The parts of the settings that are in the batch script, for one node: other nodes add only their number.
        let scope = Scope { owner: "00000000".parse().map_err(internal)?, cluster: "x".parse().map_err(internal)? };
        let directives = job::directives(&settings, &scope, 1, "")?;
        let digest = digest::of_json(&directives);
        let login = LoginMachine::new(settings.login().map(SshTarget::without_key_comment), context.clone());
        Ok(Box::new(Slurm { login, settings, library, digest, context: context.clone() }))
    }
}

fn internal(error: crate::name::NameError) -> Error {
    Error::new(ErrorKind::Internal, "open the provider `slurm`").caused_by(&error)
}

fn capability() -> Capability {
    Capability {
        kind: ProviderKind::Host,
        // An allocation is charged, but no price is known.
        costs_money: false,
        extend: false,
        reserves: false,
        hosts_vanish: true,
        is_here: false,
        host_key_in_user_data: false,
        boot: Duration::from_secs(60),
        several_resources: true,
        behind_first: false,
        poll: crate::provider::USUAL_POLL,
        shared_account: true,
        consistency_delay: Duration::ZERO,
        runtimes: &[Runtime::Native],
        most_hosts: None,
    }
}

/// A Slurm cluster, as one user sees it.
struct Slurm {
    login: LoginMachine,
    settings: Settings,
    library: Library,
    /// Of what the settings put into the batch script.
    digest: String,
    context: Context,
}

#[async_trait]
impl Provider for Slurm {
    fn capability(&self) -> Capability {
        capability()
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        self.list_offers().await
    }

    async fn inspect_site(&self) -> Result<Vec<SiteFinding>> {
        self.look().await
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        self.found(|other| other == owner).await
    }

    async fn tagged(&self) -> Result<Vec<(Tag, ObservedResource)>> {
        self.found(|_| true).await
    }

    async fn resolve(&self, scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
        self.resolve_hosts(scope, hosts).await
    }

    async fn wait_usable(&self, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
        match request.kind.0.as_str() {
            JOB => self.wait_for_job(tag, id).await,
            _ => Ok(()),
        }
    }

    fn expand(&self, _scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        self.chain(request)
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        match request.kind.0.as_str() {
            JOB => self.submit(tag, request, recorder).await,
            HOST => self.claim(tag, recorder).await,
            other => Err(Error::new(ErrorKind::Provider, format!("acquire {tag}"))
                .because(format!("the provider `slurm` has no resource of kind `{other}`"))),
        }
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        self.give_back(scope, resource).await
    }

    fn reached(&self, place: HostPlace) -> HostPlace {
        match place {
            HostPlace::Ssh { target, site } => {
                let relay = target.relay.map(|relay| Box::new(self.login.corrected(*relay)));
                HostPlace::Ssh { target: SshTarget { relay, ..target }, site }
            }
            here => here,
        }
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        self.node_place(tag, id).await
    }

    fn site(&self) -> Site {
        self.site_settings()
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        let settings = serde_json::json!({ "nodes": 0 });
        ResourceRequest::new(key.clone(), JOB, settings)
    }
}
