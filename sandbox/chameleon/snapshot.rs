//! A snapshot of everything that exists, for tests.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::config::{HostConfig, User};
use super::state::State;

/// All resources of all projects, including those that lists do not show yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Snapshot {
    /// Leases, including those that have ended.
    pub leases: Vec<LeaseSnapshot>,
    /// Servers that are not deleted.
    pub servers: Vec<ServerSnapshot>,
    /// Ports of servers.
    pub ports: Vec<PortSnapshot>,
    /// Floating IPs, attached or not.
    pub floating_ips: Vec<FloatingIpSnapshot>,
    /// Key pairs of all users.
    pub key_pairs: Vec<KeyPairSnapshot>,
}

/// A lease in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeaseSnapshot {
    /// Id: a UUID.
    pub id: String,
    /// Name; unique only if the site enforces it.
    pub name: String,
    /// Id of the user who created it.
    pub user_id: String,
    /// Id of the project.
    pub project_id: String,
    /// `PENDING`, `ACTIVE` and so on.
    pub status: String,
    /// Start time.
    pub start: Timestamp,
    /// End time.
    pub end: Timestamp,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Ids of the reservations.
    pub reservations: Vec<String>,
}

/// A server in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerSnapshot {
    /// Id: a UUID.
    pub id: String,
    /// Name; not unique.
    pub name: String,
    /// Id of the user who created it.
    pub user_id: String,
    /// Id of the project.
    pub project_id: String,
    /// `BUILD`, `ACTIVE`, `ERROR`.
    pub status: String,
    /// Name of the host that it runs on.
    pub host: Option<String>,
    /// Reservation id in the scheduler hint.
    pub reservation: Option<String>,
    /// Metadata, keys with string values.
    pub metadata: Map<String, Value>,
    /// Name of the key pair.
    pub key_name: Option<String>,
    /// User data in Base64.
    pub user_data: Option<String>,
}

/// A port in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortSnapshot {
    /// Id: a UUID.
    pub id: String,
    /// Id of the project.
    pub project_id: String,
    /// Id of the server.
    pub server: String,
    /// Fixed IPv4 address.
    pub address: String,
}

/// A floating IP in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FloatingIpSnapshot {
    /// Id: a UUID.
    pub id: String,
    /// Id of the user who created it; Neutron's API does not show it.
    pub user_id: String,
    /// Id of the project.
    pub project_id: String,
    /// Public IPv4 address.
    pub address: String,
    /// Description; holds gpucl's tag.
    pub description: String,
    /// Id of the port that it is attached to.
    pub port: Option<String>,
    /// `ACTIVE` or `DOWN`.
    pub status: String,
    /// Neutron's tags, such as `reservation:ID`.
    pub tags: Vec<String>,
}

/// A key pair in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyPairSnapshot {
    /// Name, unique per user.
    pub name: String,
    /// Id of the user.
    pub user_id: String,
    /// Public key in OpenSSH format.
    pub public_key: String,
}

impl Snapshot {
    pub(super) fn of(state: &State) -> Self {
        let host_name = |is_meant: &dyn Fn(&HostConfig) -> bool| {
            state.config.hosts.iter().find(|host| is_meant(host)).map(|host| host.name.clone())
        };
        Self {
            leases: state
                .leases
                .all()
                .map(|lease| LeaseSnapshot {
                    id: lease.id.clone(),
                    name: lease.name.clone(),
                    user_id: lease.user_id.clone(),
                    project_id: lease.project_id.clone(),
                    status: lease.status.name().to_owned(),
                    start: lease.start,
                    end: lease.end,
                    hosts: lease.hosts().filter_map(|id| host_name(&|host| &host.id == id)).collect(),
                    reservations: lease.reservations.iter().map(|part| part.id.clone()).collect(),
                })
                .collect(),
            servers: state
                .servers
                .all()
                .map(|server| ServerSnapshot {
                    id: server.id.clone(),
                    name: server.name.clone(),
                    user_id: server.user_id.clone(),
                    project_id: server.project_id.clone(),
                    status: server.status.to_owned(),
                    host: server.host.as_ref().and_then(|id| host_name(&|host| &host.hypervisor == id)),
                    reservation: server.reservation.clone(),
                    metadata: server.metadata.clone(),
                    key_name: server.key_name.clone(),
                    user_data: server.user_data.clone(),
                })
                .collect(),
            ports: state
                .ports
                .all()
                .map(|port| PortSnapshot {
                    id: port.id.clone(),
                    project_id: port.project_id.clone(),
                    server: port.server.clone(),
                    address: port.address.clone(),
                })
                .collect(),
            floating_ips: state
                .floating_ips
                .all()
                .map(|address| FloatingIpSnapshot {
                    id: address.id.clone(),
                    user_id: address.user_id.clone(),
                    project_id: address.project_id.clone(),
                    address: address.address.clone(),
                    description: address.description.clone(),
                    port: address.port.clone(),
                    status: address.status.to_owned(),
                    tags: address.tags.clone(),
                })
                .collect(),
            key_pairs: state
                .keys
                .all()
                .map(|key| KeyPairSnapshot {
                    name: key.name.clone(),
                    user_id: key.user_id.clone(),
                    public_key: key.public_key.clone(),
                })
                .collect(),
        }
    }

    /// The resources that a user created; ports belong to their servers.
    pub fn of_user(&self, user: User) -> Self {
        let id = State::user_id(user.name());
        let mut mine = self.clone();
        mine.leases.retain(|lease| lease.user_id == id);
        mine.servers.retain(|server| server.user_id == id);
        mine.ports.retain(|port| mine.servers.iter().any(|server| server.id == port.server));
        mine.floating_ips.retain(|address| address.user_id == id);
        mine.key_pairs.retain(|key| key.user_id == id);
        mine
    }

    /// Number of resources of all kinds.
    pub fn count(&self) -> usize {
        self.leases.len() + self.servers.len() + self.ports.len() + self.floating_ips.len() + self.key_pairs.len()
    }

    /// Whether nothing exists; expired leases hold nothing, and do not count.
    pub fn is_empty(&self) -> bool {
        self.count() == self.leases.iter().filter(|lease| lease.status == "TERMINATED").count()
    }
}
