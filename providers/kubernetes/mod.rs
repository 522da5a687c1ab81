//! A RayCluster on a Kubernetes cluster that has KubeRay's operator.
//!
//! A cluster is a few objects: a Secret with the token, a NetworkPolicy, a PodMonitor and a ConfigMap where the spec asks
//! for them, and the RayCluster, from which the operator makes pods. `docs/design/0017-kubernetes.md` says how they are found, changed and removed.

mod access;
mod client;
mod config;
mod container;
mod difference;
mod grafana;
mod isolation;
mod kubeconfig;
mod labels;
mod monitoring;
mod names;
mod objects;
mod offers;
mod pods;
mod refusal;
mod resources;
mod site;
mod status;
#[cfg(test)]
mod tests;
mod wait;

use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind, Result};
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::platform::{
    ClusterRequest, Consequences, Duplex, LogOptions, Member, NodeGroup, Part, Platform, Running,
};
use crate::provider::{
    Acquired, Capability, Context, Factory, FieldError, HostPlace, HostRequest, LoginFile, Manifest, ObservedResource,
    Offer, Provider, ProviderKind, Recorder, ResourceRequest, Runtime, SiteFinding, USUAL_POLL, platform, settings,
};
use crate::render::Library;
use crate::spec::DEFAULT_RAY_VERSION;
use client::{Connector, KubeContext};
use config::HostSettings;
use names::{ObjectKind, object_name};
use objects::Renderer;

/// This provider's entry in the registry.
pub static FACTORY: KubernetesFactory = KubernetesFactory;

/// Opens a namespace of a Kubernetes cluster as a provider.
#[derive(Debug)]
pub struct KubernetesFactory;

impl Factory for KubernetesFactory {
    fn manifest(&self) -> Result<Manifest> {
        Manifest::parse(include_str!("provider.yaml"), module_path!())
    }

    fn capability(&self) -> Capability {
        capability()
    }

    fn login_file(&self, file: &std::path::Path) -> Result<LoginFile> {
        kubeconfig::described(file)
    }

    fn settings_schema(&self) -> schemars::Schema {
        schemars::schema_for!(config::Settings)
    }

    fn host_schema(&self) -> schemars::Schema {
        schemars::schema_for!(HostSettings)
    }

    fn check(&self, settings: &Value, hosts: &[Value]) -> Vec<FieldError> {
        config::check(settings, hosts)
    }

    fn open(&self, value: &Value, context: &Context) -> Result<Box<dyn Provider>> {
        let wrong =
            |errors: Vec<FieldError>| settings::wrong("read the settings of the provider `kubernetes`", &errors);
        let settings = config::read(value).map_err(wrong)?;
        let library = Library::new(vec![context.user_environment.config_dir.clone()]);
        let connector = Connector::new(settings.clone(), context.user_environment.clone());
        Ok(Box::new(Kubernetes { renderer: Renderer { settings, library }, connector, context: context.clone() }))
    }
}

fn capability() -> Capability {
    Capability {
        kind: ProviderKind::Platform,
        costs_money: false,
        extend: false,
        reserves: false,
        hosts_vanish: true,
        is_here: false,
        host_key_in_user_data: false,
        boot: Duration::from_secs(15 * 60),
        several_resources: true,
        shared_account: true,
        behind_first: false,
        poll: USUAL_POLL,
        // An API server reads what it wrote.
        consistency_delay: Duration::ZERO,
        runtimes: &[Runtime::Native],
        most_hosts: Some(1),
    }
}

struct Kubernetes {
    renderer: Renderer,
    connector: Connector,
    context: Context,
}

impl Kubernetes {
    async fn place(&self) -> Result<&KubeContext> {
        self.connector.place().await
    }
}

#[async_trait]
impl Provider for Kubernetes {
    fn capability(&self) -> Capability {
        capability()
    }

    fn platform(&self) -> Option<&dyn Platform> {
        Some(self)
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        self.machines().await
    }

    async fn inspect_site(&self) -> Result<Vec<SiteFinding>> {
        self.look().await
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        self.labelled(Some(owner)).await
    }

    async fn tagged(&self) -> Result<Vec<(Tag, ObservedResource)>> {
        self.labelled(None).await
    }

    async fn wait_usable(&self, _tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
        match resources::named(request)? {
            (ObjectKind::RayCluster, name) => self.wait_as_wanted(&name, id).await,
            _ => Ok(()),
        }
    }

    fn expand(&self, scope: &Scope, _request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        self.renderer.requests(scope, &smallest())
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        self.make(tag, request, recorder).await
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        self.delete(scope, resource).await
    }

    async fn place(&self, tag: &Tag, _id: &str) -> Result<HostPlace> {
        Err(Error::new(ErrorKind::Unsupported, format!("connect to {tag}")).because("a RayCluster is not a host"))
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        // The name of an object has no capitals.
        let object = json!({ "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": { "name": "Refused" } });
        ResourceRequest::new(key.clone(), ObjectKind::RayCluster.name(), object)
    }
}

/// The smallest cluster: a head without workers.
fn smallest() -> ClusterRequest {
    let head =
        NodeGroup { name: config::HEAD.to_owned(), cpus: Some(0), count: 1, min: 1, max: 1, ..NodeGroup::default() };
    ClusterRequest { ray_version: DEFAULT_RAY_VERSION.to_owned(), head, ..ClusterRequest::default() }
}

#[async_trait]
impl Platform for Kubernetes {
    async fn site(&self) -> Result<platform::Site> {
        self.where_and_whom().await
    }

    async fn prometheus(&self) -> Result<platform::Prometheus> {
        self.find_prometheus().await
    }

    async fn check(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<Vec<String>> {
        self.check_cluster(scope, cluster).await
    }

    fn objects(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<Vec<ResourceRequest>> {
        self.renderer.requests(scope, cluster)
    }

    fn manifest(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<String> {
        self.renderer.manifest(scope, cluster)
    }

    async fn update(&self, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
        self.change(tag, request, id).await
    }

    async fn consequences(&self, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<Consequences> {
        let mut consequences = Consequences { lines: self.difference(tag, request, id).await?, restarts_head: false };
        if let (ObjectKind::RayCluster, name) = resources::named(request)? {
            let place = self.place().await?;
            let pods = self.pods(place, &name).await?;
            let of_pods = pods::consequences(&request.settings, &pods);
            consequences.lines.extend(of_pods.lines);
            consequences.restarts_head = of_pods.restarts_head;
        }
        Ok(consequences)
    }

    async fn members(&self, scope: &Scope) -> Result<Vec<Member>> {
        let place = self.place().await?;
        let pods = self.pods(place, &object_name(scope)).await?;
        Ok(pods.iter().map(pods::Pod::member).collect())
    }

    async fn isolation(&self, scope: &Scope, head: &Member, port: u16) -> Result<platform::Isolation> {
        self.try_isolation(scope, head, port).await
    }

    async fn start(&self, member: &str, part: Part, command: &[&str], terminal: Option<(u16, u16)>) -> Result<Running> {
        self.run(member, part, command, terminal).await
    }

    async fn connect(&self, member: &str, port: u16) -> Result<Box<dyn Duplex>> {
        self.forward(member, port).await
    }

    async fn logs(
        &self,
        member: &str,
        options: &LogOptions,
        on_line: &mut (dyn for<'line> FnMut(&'line str) + Send),
    ) -> Result<()> {
        self.read_logs(member, options, on_line).await
    }

    async fn show_dashboards(&self, scope: &Scope, version: Option<&str>) -> Result<()> {
        self.publish_dashboards(scope, version).await
    }

    async fn keep_secrets(&self, scope: &Scope, id: &str, text: Option<&SecretString>) -> Result<()> {
        self.keep_in_secret(scope, id, text).await
    }

    async fn kill(&self, scope: &Scope, member: &str) -> Result<()> {
        let place = self.place().await?;
        let pods = self.pods(place, &object_name(scope)).await?;
        let pod = pods.iter().find(|pod| pod.name() == member);
        let pod = pod.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("kill the pod {member}"))
                .because("the cluster has none of that name")
        })?;
        wait::delete_pod(place, pod, Some(0)).await
    }
}
