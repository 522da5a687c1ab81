//! What exists, for tests to look at.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::blazar::hosts_of;
use super::config::User;
use super::state::State;

/// Everything that the services hold, of all projects; what lists do not show yet too.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Snapshot {
    /// Leases, also those that have ended.
    pub leases: Vec<LeaseSeen>,
    /// Servers.
    pub servers: Vec<ServerSeen>,
    /// Ports of servers.
    pub ports: Vec<PortSeen>,
    /// Floating IPs.
    pub floating_ips: Vec<FloatingIpSeen>,
    /// Key pairs.
    pub key_pairs: Vec<KeyPairSeen>,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeaseSeen {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub user_id: String,
    /// The project.
    pub project_id: String,
    /// `PENDING`, `ACTIVE` and so on.
    pub status: String,
    /// When it begins.
    pub start: Timestamp,
    /// When it ends.
    pub end: Timestamp,
    /// The hosts, by name.
    pub hosts: Vec<String>,
    /// The ids of its reservations.
    pub reservations: Vec<String>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerSeen {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub user_id: String,
    /// The project.
    pub project_id: String,
    /// `BUILD`, `ACTIVE`, `ERROR`.
    pub status: String,
    /// The host that it is on, by name.
    pub host: Option<String>,
    /// The reservation in its hint.
    pub reservation: Option<String>,
    /// Its metadata.
    pub metadata: Map<String, Value>,
    /// The key pair's name.
    pub key_name: Option<String>,
    /// The user data in Base64.
    pub user_data: Option<String>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortSeen {
    /// Its id.
    pub id: String,
    /// The project.
    pub project_id: String,
    /// The server's id.
    pub server: String,
    /// The fixed address.
    pub address: String,
}

/// A floating IP.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FloatingIpSeen {
    /// Its id.
    pub id: String,
    /// Who made it; Neutron itself does not tell.
    pub user_id: String,
    /// The project.
    pub project_id: String,
    /// The address.
    pub address: String,
    /// Its description.
    pub description: String,
    /// The port that it leads to.
    pub port: Option<String>,
    /// `ACTIVE` or `DOWN`.
    pub status: String,
    /// Its tags.
    pub tags: Vec<String>,
}

/// A key pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyPairSeen {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub user_id: String,
    /// The public key.
    pub public_key: String,
}

impl Snapshot {
    pub(super) fn of(state: &State) -> Self {
        let host_name = |is_meant: &dyn Fn(&super::config::HostConfig) -> bool| {
            state.config.hosts.iter().find(|host| is_meant(host)).map(|host| host.name.clone())
        };
        Self {
            leases: state
                .leases
                .all()
                .map(|lease| LeaseSeen {
                    id: lease.id.clone(),
                    name: lease.name.clone(),
                    user_id: lease.user_id.clone(),
                    project_id: lease.project_id.clone(),
                    status: lease.status.name().to_owned(),
                    start: lease.start,
                    end: lease.end,
                    hosts: hosts_of(lease).filter_map(|id| host_name(&|host| &host.id == id)).collect(),
                    reservations: lease.reservations.iter().map(|part| part.id.clone()).collect(),
                })
                .collect(),
            servers: state
                .servers
                .all()
                .map(|server| ServerSeen {
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
                .map(|port| PortSeen {
                    id: port.id.clone(),
                    project_id: port.project_id.clone(),
                    server: port.server.clone(),
                    address: port.address.clone(),
                })
                .collect(),
            floating_ips: state
                .floating_ips
                .all()
                .map(|address| FloatingIpSeen {
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
                .map(|key| KeyPairSeen {
                    name: key.name.clone(),
                    user_id: key.user_id.clone(),
                    public_key: key.public_key.clone(),
                })
                .collect(),
        }
    }

    /// What this user made; ports are counted with their servers.
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

    /// How many things there are.
    pub fn count(&self) -> usize {
        self.leases.len() + self.servers.len() + self.ports.len() + self.floating_ips.len() + self.key_pairs.len()
    }

    /// Whether nothing is there; a lease that has ended by itself holds nothing, and does not count.
    pub fn is_empty(&self) -> bool {
        self.count() == self.leases.iter().filter(|lease| lease.status == "TERMINATED").count()
    }
}
