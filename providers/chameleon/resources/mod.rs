//! The resources of a host: lease, key pair, floating IP, server. One module each acquires, waits for and releases it.

mod address;
mod key;
pub(super) mod lease;
mod server;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use address::Whose;

use super::api::FloatingIp;
use super::cloud::Cloud;
use super::config;
use super::found::{HostFound, LeaseFound, SharedFound, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Key, Owner, Tag};
use crate::provider::kit::ConsistencyDelay;
use crate::provider::{
    Acquired, Finding, HostPlace, HostRequest, ObservedResource, Recorder, ResourceKind, ResourceRequest, settings,
};
use crate::secret::Marks;

/// How long the services' lists may omit a new resource.
const LISTS: ConsistencyDelay = ConsistencyDelay { limit: Duration::from_secs(5), pause: Duration::from_millis(500) };

/// The kinds of resource, in the order of acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChameleonResource {
    Lease,
    KeyPair,
    FloatingIp,
    Server,
}

impl ChameleonResource {
    const ALL: [Self; 4] = [Self::Lease, Self::KeyPair, Self::FloatingIp, Self::Server];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::KeyPair => "key_pair",
            Self::FloatingIp => "floating_ip",
            Self::Server => "server",
        }
    }

    fn of(kind: &ResourceKind) -> Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == kind.0).ok_or_else(|| {
            Error::new(ErrorKind::Provider, format!("acquire a {}", kind.0))
                .because(format!("Chameleon has no resource of kind `{}`", kind.0))
        })
    }
}

/// The key of a resource that the hosts of a cluster share.
fn shared(kind: &str) -> Key {
    Key::numbered(kind, 0)
}

pub(super) fn lease_key() -> Key {
    shared("lease")
}

/// The key of the head's floating IP.
fn address_key() -> Key {
    shared("address")
}

/// The resources of one host.
pub(super) fn expand(cloud: &Cloud, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
    let doing = || format!("read the entry of {}", request.key.display_name());
    let entry = config::read_host(&request.settings, "").map_err(|errors| settings::wrong(doing(), &errors))?;
    let found: Option<HostFound> = request.found.read()?;
    // Without a finding, the host is requested as if it were the only one.
    let wanted = found.as_ref().map_or_else(|| Wanted::of(std::slice::from_ref(&entry)), |found| found.wanted.clone());
    let adopted_lease = match found.as_ref().map(|found| &found.lease) {
        Some(LeaseFound::Adopted { id }) => Some(id.clone()),
        _ => None,
    };
    let request_of = |key: Key, kind: ChameleonResource, settings: Value, adopted: Option<String>, needs: Vec<Key>| {
        ResourceRequest {
            adopted,
            needs,
            is_host: kind == ChameleonResource::Server,
            ..ResourceRequest::new(key, kind.name(), settings)
        }
    };
    let is_head = request.key == Key::host(0);
    let (lease, key, address) = (lease_key(), shared("key"), address_key());
    let hosts = json!({ "hosts": wanted });
    let mut requests = vec![
        request_of(lease.clone(), ChameleonResource::Lease, hosts, adopted_lease, Vec::new()),
        request_of(key.clone(), ChameleonResource::KeyPair, json!({}), None, Vec::new()),
    ];
    let mut needs = vec![lease.clone(), key];
    if is_head {
        let adopted = found.as_ref().and_then(|found| found.address.clone());
        let settings = json!({ "network": cloud.settings.public_network() });
        // Floating IPs are scarce: allocated once the lease is active, not while waiting for it.
        requests.push(request_of(address.clone(), ChameleonResource::FloatingIp, settings, adopted, vec![lease]));
        needs.push(address);
    }
    let settings = json!({
        "entry": entry, "image": cloud.settings.image, "network": cloud.settings.network(), "flavor": cloud.settings.flavor(),
    });
    // Shared requests must be equal for all hosts: host-specific data goes into the server's request only.
    if let Some(HostFound { lease, public, .. }) = &found {
        let shared = SharedFound { lease: lease.clone(), title: None, public: Some(public.clone()) };
        let shared = Finding::of(&shared)?;
        requests.iter_mut().for_each(|request| request.found = shared.clone());
        // The lease is what costs, whether anything runs on its hosts or not.
        let Finding { label, price, .. } = request.found.clone();
        requests[0].found = Finding { label, price, ..shared };
    }
    let found = Finding { data: request.found.data.clone(), ..Finding::default() };
    let server = request_of(request.key.clone(), ChameleonResource::Server, settings, None, needs);
    requests.push(ResourceRequest { found, ..server });
    Ok(requests)
}

/// The owner's existing resources, in the order of acquisition. Warns about tagged floating IPs of unproven ownership.
pub(super) async fn owned(cloud: &Cloud, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
    let mut tagged = all_tagged(cloud).await?;
    tagged.ours.retain(|(tag, _)| tag.owner == *owner);
    for (address, tag, whose) in tagged.addresses.iter().filter(|(_, tag, _)| tag.owner == *owner) {
        address::warn_about(cloud, address, tag, *whose);
    }
    Ok(tagged.ours)
}

/// All tagged resources not known to be another user's, in the order of acquisition.
pub(super) async fn tagged(cloud: &Cloud) -> Result<Vec<(Tag, ObservedResource)>> {
    let AllTagged { ours: mut found, addresses, others } = all_tagged(cloud).await?;
    // A floating IP does not show who made it; the user of its owner's leases and servers does.
    let unproven = addresses.iter().filter(|(_, tag, whose)| *whose == Whose::Unproven && !others.contains(&tag.owner));
    let at = found.iter().take_while(|(_, resource)| resource.kind.0 != ChameleonResource::Server.name()).count();
    found.splice(at..at, unproven.map(|(one, tag, _)| (tag.clone(), address::as_resource(one, &tag.key))));
    Ok(found)
}

/// The tagged resources of the project.
struct AllTagged {
    /// Made by our user.
    ours: Vec<(Tag, ObservedResource)>,
    /// Floating IPs not known to be ours.
    addresses: Vec<(FloatingIp, Tag, Whose)>,
    /// Owners with leases or servers of another user.
    others: BTreeSet<Owner>,
}

async fn all_tagged(cloud: &Cloud) -> Result<AllTagged> {
    let site = cloud.site().await?;
    let (who, leases, keys, addresses, servers) =
        tokio::try_join!(site.who(), site.leases(), site.key_pairs(), site.floating_ips(), site.servers())?;
    let marks = Marks::known(&cloud.context.user_environment.config_dir)?;
    let is_ours = |user: &str| user == who.user_id;
    let observed = leases.iter().filter_map(|one| Some((is_ours(&one.user_id), lease::observed(one)?)));
    // The service lists only the user's own key pairs.
    let observed = observed.chain(keys.iter().filter_map(|one| Some((true, key::observed(one)?))));
    let hosts = servers.iter().filter_map(|one| Some((is_ours(&one.user_id), server::observed(one, &addresses)?)));
    let (mut ours, mut own_hosts, mut others) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (is_ours, (tag, resource)) in observed {
        match is_ours {
            true => ours.push((tag, resource)),
            false => drop(others.insert(tag.owner)),
        }
    }
    for (is_ours, (tag, resource)) in hosts {
        match is_ours {
            true => own_hosts.push((tag, resource)),
            false => drop(others.insert(tag.owner)),
        }
    }
    let mut unknown = Vec::new();
    for one in &addresses {
        let Some(tag) = address::tag_of(one) else { continue };
        match address::whose(one, &tag, &who, &servers, marks.as_ref()) {
            Whose::Ours => ours.push((tag.clone(), address::as_resource(one, &tag.key))),
            whose => unknown.push((one.clone(), tag, whose)),
        }
    }
    ours.extend(own_hosts);
    Ok(AllTagged { ours, addresses: unknown, others })
}

/// Observes adopted resources: those that the cluster uses but did not make.
pub(super) async fn observe_adopted(cloud: &Cloud, requests: &[ResourceRequest]) -> Result<Vec<ObservedResource>> {
    let site = cloud.site().await?;
    let mut observed = Vec::new();
    for request in requests {
        let Some(id) = &request.adopted else { continue };
        let found = match ChameleonResource::of(&request.kind)? {
            ChameleonResource::Lease => site.lease(id).await?.map(|found| lease::as_resource(&found, &request.key)),
            ChameleonResource::FloatingIp => {
                let addresses = site.floating_ips().await?;
                addresses.iter().find(|found| found.id == *id).map(|found| address::as_resource(found, &request.key))
            }
            ChameleonResource::KeyPair | ChameleonResource::Server => None,
        };
        observed.extend(found.map(|found| ObservedResource { adopted: true, ..found }));
    }
    Ok(observed)
}

pub(super) async fn acquire(
    cloud: &Cloud,
    tag: &Tag,
    request: &ResourceRequest,
    recorder: &dyn Recorder,
) -> Result<Acquired> {
    let acquired = match ChameleonResource::of(&request.kind)? {
        ChameleonResource::Lease => lease::acquire(cloud, tag, request).await,
        ChameleonResource::KeyPair => key::acquire(cloud, tag).await,
        ChameleonResource::FloatingIp => address::acquire(cloud, tag, request).await,
        ChameleonResource::Server => server::acquire(cloud, tag, request).await,
    }?;
    let is_address = request.kind.0 == ChameleonResource::FloatingIp.name();
    let acquired = acquired.recorded(recorder, tag, &tag.to_string()).await?;
    if is_address {
        address::seal(cloud, tag, &acquired.id).await?;
    }
    Ok(acquired)
}

pub(super) async fn wait_usable(cloud: &Cloud, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
    match ChameleonResource::of(&request.kind)? {
        ChameleonResource::Lease => lease::wait_active(cloud, id).await.map(|_| ()),
        ChameleonResource::Server => server::wait_usable(cloud, tag, request, id).await,
        ChameleonResource::KeyPair | ChameleonResource::FloatingIp => Ok(()),
    }
}

/// Releases a resource by its id, and waits until it is gone. Idempotent.
pub(super) async fn release(cloud: &Cloud, resource: &ObservedResource) -> Result<()> {
    match ChameleonResource::of(&resource.kind)? {
        ChameleonResource::Lease => lease::delete(cloud, &resource.id).await,
        ChameleonResource::KeyPair => key::release(cloud, &resource.id).await,
        ChameleonResource::FloatingIp => address::release(cloud, &resource.id).await,
        ChameleonResource::Server => server::release(cloud, &resource.id).await,
    }
}

/// How to log in to a server.
pub(super) async fn place(cloud: &Cloud, tag: &Tag, id: &str) -> Result<HostPlace> {
    server::place(cloud, tag, id).await
}
