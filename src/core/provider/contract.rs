//! The provider traits and their types.

use async_trait::async_trait;

use super::{
    Acquired, Capability, Context, HostPlace, HostRequest, Login, Manifest, ObservedResource, Offer, Platform,
    Recorder, Reservations, Resolved, ResourceRequest, Site, SiteFinding,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Key, Owner, Scope, Tag};

/// An invalid value in a provider's settings; the spec reader adds the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The path below the settings' root, such as `ssh_port`, empty for the settings as a whole; for an entry of
    /// `hosts:` it begins with the entry's index, such as `hosts[0].node`.
    pub path: String,
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// The valid names there, if a name is unknown.
    pub known: Vec<String>,
}

/// Finds a provider by its name.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Result<&'static dyn Factory>;

/// Creates a provider from its settings. One `static FACTORY` per provider folder.
pub trait Factory: Sync {
    /// The provider's manifest: name, summary, guide.
    fn manifest(&self) -> Result<Manifest>;
    /// The provider's capabilities.
    fn capability(&self) -> Capability;
    /// The JSON Schema of its settings (the keys under `provider:` other than `name`).
    fn settings_schema(&self) -> schemars::Schema;
    /// The JSON Schema of one entry of `hosts:`.
    fn host_schema(&self) -> schemars::Schema;
    /// The default entry of `hosts:` for the conformance suite.
    fn example_host(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }
    /// Validates settings and host entries strictly; no side effects.
    fn check(&self, settings: &serde_json::Value, hosts: &[serde_json::Value]) -> Vec<FieldError>;
    /// The folder on every host where a file system of these settings is mounted, by its name; `None` if the settings
    /// attach none of that name.
    fn file_system(&self, settings: &serde_json::Value, name: &str) -> Option<String> {
        let _ = (settings, name);
        None
    }
    /// What a file of logins that the settings name leads to, as [`Factory::open`] would read it: a spec's reader is
    /// shown it. Runs nothing, and contacts nobody.
    ///
    /// # Errors
    /// If it cannot be read.
    fn login_file(&self, file: &std::path::Path) -> Result<LoginFile> {
        Err(Error::new(ErrorKind::Internal, format!("read {}", file.display())).because("no login is read from files"))
    }
    /// How users log in; `None` for providers without accounts.
    fn login(&self) -> Option<&dyn Login> {
        None
    }
    /// The settings of each site that these settings leave open, as far as credentials are known for it, each with its
    /// `site`. Sends nothing.
    ///
    /// # Errors
    /// If the credentials cannot be read, or it is unclear which are meant.
    fn each_site(&self, settings: &serde_json::Value, context: &Context) -> Result<Vec<serde_json::Value>> {
        let _ = context;
        Ok(vec![settings.clone()])
    }
    /// Opens the provider. The settings have passed `check`.
    fn open(&self, settings: &serde_json::Value, context: &Context) -> Result<Box<dyn Provider>>;
}

/// What a file of logins leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginFile {
    /// Servers, programs with their arguments, and files that are sent, in words: `it runs az`.
    pub says: Vec<String>,
    /// Programs and scripts by their paths: their content is part of what is accepted.
    pub programs: Vec<std::path::PathBuf>,
}

/// A source of hosts or clusters.
///
/// Every method may be called again after a crash, possibly by another process; none may rely on state kept in
/// memory.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The provider's capabilities.
    fn capability(&self) -> Capability;

    /// What is available, when, and at what price. Read-only.
    async fn offers(&self) -> Result<Vec<Offer>>;

    /// Inspects the site: what clusters there depend on. Read-only.
    async fn inspect_site(&self) -> Result<Vec<SiteFinding>> {
        Ok(Vec::new())
    }

    /// The existing resources of this scope, duplicates included. Read-only.
    ///
    /// # Behavior
    /// - Returns only resources whose tag has exactly this owner and cluster.
    /// - Returns every such resource, including broken, half-created and half-released ones.
    /// - The result may lag by at most [`Capability::consistency_delay`].
    async fn observe(&self, scope: &Scope) -> Result<Vec<ObservedResource>> {
        let owned = self.owned(&scope.owner).await?;
        Ok(owned.into_iter().filter(|(tag, _)| scope.holds(tag)).map(|(_, found)| found).collect())
    }

    /// The existing resources of this owner in all clusters, each with its tag. Read-only.
    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>>;

    /// The logged-in user's resources with a tag of any owner, for users who have lost their owner. Read-only.
    ///
    /// # Behavior
    /// - Omits resources known to be another user's.
    async fn tagged(&self) -> Result<Vec<(Tag, ObservedResource)>> {
        Ok(Vec::new())
    }

    /// Resolves what the spec leaves open, and refuses what cannot be had before anything is requested. Read-only.
    ///
    /// # Behavior
    /// - Returns the same hosts with the same settings, and its results in `found`.
    /// - Returns the same result again for hosts that already exist.
    async fn resolve(&self, _scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
        Ok(Resolved { hosts, ..Resolved::default() })
    }

    /// The current state of these adopted resources; those that are gone are omitted. Read-only.
    async fn observe_adopted(&self, _requests: &[ResourceRequest]) -> Result<Vec<ObservedResource>> {
        Ok(Vec::new())
    }

    /// Waits until an acquired or adopted resource is usable; reports progress, and fails at a timeout.
    ///
    /// # Behavior
    /// - May be called again, and for a resource that is usable already.
    /// - An error with status `Temporary` means that releasing and acquiring it once more may succeed.
    async fn wait_usable(&self, _tag: &Tag, _request: &ResourceRequest, _id: &str) -> Result<()> {
        Ok(())
    }

    /// Reservations by time; `None` if the provider has none.
    fn reservations(&self) -> Option<&dyn Reservations> {
        None
    }

    /// What it does as a platform; `None` for a provider of hosts.
    fn platform(&self) -> Option<&dyn Platform> {
        None
    }

    /// The resources that a host needs, in an order in which they can be acquired. Pure.
    ///
    /// # Behavior
    /// - Keys are unique within a host; `needs` refers to earlier ones only.
    /// - Exactly one of them is the host; none for a platform, whose cluster is not a host.
    /// - A resource shared by two hosts has the same key and the same request in both.
    fn expand(&self, scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>>;

    /// Acquires one resource by one mutating call.
    ///
    /// # Behavior
    /// - Is idempotent by tag: with the same tag it returns the existing resource and creates no second one.
    /// - Passes the id to the recorder before it goes on and before it returns, also for a resource that existed;
    ///   fails if the recorder fails.
    /// - Returns once the call is accepted; `observe` shows when the resource is usable.
    /// - Finds the resources that the request `needs` by their tags, since `needs` has only keys.
    /// - On failure, the error says what is left behind, and `observe` shows it.
    /// - May be dropped at any await point; `observe` then shows what it had begun.
    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired>;

    /// Releases one resource, as returned by `observe`.
    ///
    /// # Behavior
    /// - Succeeds if the resource is already gone.
    /// - Affects only this id, not a newer resource with the same key.
    /// - May be dropped at any await point; `observe` still shows what is unfinished, and the next call finishes it.
    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()>;

    /// A recorded place with what the settings say of the way to it: user, port, key. They may have been corrected since.
    /// Pure.
    fn reached(&self, place: HostPlace) -> HostPlace {
        place
    }

    /// How to run commands on an acquired, usable host; fails if it does not exist.
    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace>;

    /// What is particular about every host that its settings ask for; what depends on the host itself is empty. Pure.
    fn site(&self) -> Site {
        Site::default()
    }

    /// The place of a host that exists before it is acquired, so that it can be inspected for the plan. Pure.
    ///
    /// # Behavior
    /// - If `Some`, it equals the result of [`Provider::place`] once the host is acquired.
    fn standing(&self, _scope: &Scope, _request: &HostRequest) -> Option<HostPlace> {
        None
    }

    /// A request that this provider must refuse as `Permanent`, leaving nothing behind; for the conformance suite.
    fn refused_request(&self, key: &Key) -> ResourceRequest;
}
