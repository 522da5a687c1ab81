//! State changes that come with time. They are computed lazily, whenever the state is locked.

use jiff::Timestamp;

use super::clock::{after, next_tick};
use super::ids::host_id;
use super::state::{FloatingIp, Lease, LeaseStatus, Port, Reserved, State};

/// Number of floating IPs that can be reserved, besides those of the pool.
const RESERVABLE: usize = 6;

impl State {
    /// Applies everything that is due.
    pub(super) fn advance_all(&mut self) {
        let now = self.now();
        for id in self.leases.ids() {
            // After a jump of the clock a lease may pass through several states at once.
            while let Some((status, at)) = self.leases.get(&id).and_then(|lease| self.next_of_lease(lease, now)) {
                self.move_lease(&id, status, at);
            }
        }
        for id in self.servers.ids() {
            self.advance_server(&id, now);
        }
    }

    fn next_of_lease(&self, lease: &Lease, now: Timestamp) -> Option<(LeaseStatus, Timestamp)> {
        let tick = |time: Timestamp| next_tick(time, self.config.lease_tick);
        let (status, at) = match lease.status {
            LeaseStatus::Pending => (LeaseStatus::Starting, tick(lease.start.max(lease.created))),
            LeaseStatus::Starting => (LeaseStatus::Active, after(lease.since, self.config.transition)),
            LeaseStatus::Updating => (lease.before, after(lease.since, self.config.updating)),
            LeaseStatus::Active => (LeaseStatus::Terminating, tick(lease.end)),
            LeaseStatus::Terminating => (LeaseStatus::Terminated, after(lease.since, self.config.transition)),
            LeaseStatus::Terminated | LeaseStatus::Error => return None,
        };
        (at <= now).then_some((status, at))
    }

    fn move_lease(&mut self, id: &str, status: LeaseStatus, at: Timestamp) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let from = std::mem::replace(&mut lease.status, status);
        lease.since = at;
        lease.updated = at;
        if from == LeaseStatus::Updating {
            return;
        }
        let mut event = |kind: &str, status: &'static str| {
            for event in lease.events.iter_mut().filter(|event| event.kind == kind) {
                event.status = status;
                event.updated = Some(at);
            }
        };
        match status {
            LeaseStatus::Starting => event("start_lease", "IN_PROGRESS"),
            LeaseStatus::Active => event("start_lease", "DONE"),
            LeaseStatus::Terminating => {
                event("before_end_lease", "DONE");
                event("end_lease", "IN_PROGRESS");
            }
            LeaseStatus::Terminated => event("end_lease", "DONE"),
            _ => {}
        }
        match status {
            LeaseStatus::Active => self.begin_reservations(id, at),
            LeaseStatus::Terminated => self.end_reservations(id, at),
            _ => {}
        }
    }

    fn begin_reservations(&mut self, id: &str, at: Timestamp) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let mut wanted = Vec::new();
        for reservation in &mut lease.reservations {
            reservation.status = "active";
            reservation.updated = at;
            if let Reserved::Addresses { network_id, amount, .. } = &reservation.what {
                wanted.push((network_id.clone(), *amount, reservation.id.clone()));
            }
        }
        let (user_id, project_id) = (lease.user_id.clone(), lease.project_id.clone());
        for (network, amount, reservation) in wanted {
            for _ in 0..amount {
                let Some(address) = self.free_address(200, RESERVABLE) else { break };
                let made = FloatingIp {
                    id: self.ids.uuid(),
                    user_id: user_id.clone(),
                    project_id: project_id.clone(),
                    address,
                    network: network.clone(),
                    description: String::new(),
                    port: None,
                    status: "DOWN",
                    tags: vec!["blazar".to_owned(), format!("reservation:{reservation}")],
                    created: at,
                    updated: at,
                    revision: 1,
                };
                let shown = self.shown();
                self.floating_ips.add(made, shown);
            }
        }
    }

    /// Deletes the servers on the reserved hosts, and the reserved addresses, as Blazar does.
    pub(super) fn end_reservations(&mut self, id: &str, at: Timestamp) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let mut ended = Vec::new();
        for reservation in &mut lease.reservations {
            reservation.status = "deleted";
            reservation.updated = at;
            ended.push(reservation.id.clone());
        }
        let on_it = |reservation: &Option<String>| reservation.as_ref().is_some_and(|id| ended.contains(id));
        let servers: Vec<String> = self
            .servers
            .all()
            .filter(|server| server.host.is_some() && on_it(&server.reservation))
            .map(|server| server.id.clone())
            .collect();
        for server in servers {
            self.remove_server(&server);
        }
        let tags: Vec<String> = ended.iter().map(|id| format!("reservation:{id}")).collect();
        let addresses: Vec<String> = self
            .floating_ips
            .all()
            .filter(|address| address.tags.iter().any(|tag| tags.contains(tag)))
            .map(|address| address.id.clone())
            .collect();
        let until = self.hidden();
        for address in addresses {
            self.floating_ips.remove(&address, until);
        }
    }

    fn advance_server(&mut self, id: &str, now: Timestamp) {
        let Some(server) = self.servers.get(id) else { return };
        if server.gone.is_some_and(|gone| gone <= now) {
            self.remove_server(id);
            return;
        }
        if server.status != "BUILD" || now < server.ready {
            return;
        }
        let (ready, has_host) = (server.ready, server.host.is_some());
        let failure = if has_host {
            self.failures.pop_front()
        } else {
            Some("No valid host was found. There are not enough hosts available.".to_owned())
        };
        let mut port = None;
        if failure.is_none()
            && let Some(server) = self.servers.get(id).cloned()
        {
            port = Some(Port {
                id: self.ids.uuid(),
                project_id: server.project_id.clone(),
                network: server.network.clone(),
                server: server.id.clone(),
                zone: server.zone(),
                mac: self.ids.mac(),
                address: self.fixed_address(),
                status: "ACTIVE",
                created: ready,
            });
        }
        if let Some(server) = self.servers.get_mut(id) {
            server.updated = ready;
            match failure {
                Some(text) => {
                    server.status = "ERROR";
                    server.fault = Some((text, ready));
                }
                None => {
                    server.status = "ACTIVE";
                    server.launched = Some(ready);
                }
            }
        }
        if let Some(port) = port {
            let shown = self.shown();
            self.ports.add(port, shown);
        }
    }

    /// Removes a server with its ports, and detaches its floating IPs.
    pub(super) fn remove_server(&mut self, id: &str) {
        let until = self.hidden();
        self.servers.remove(id, until);
        let ports: Vec<String> =
            self.ports.all().filter(|port| port.server == id).map(|port| port.id.clone()).collect();
        for port in &ports {
            self.ports.remove(port, until);
        }
        for address in self.floating_ips.all_mut() {
            if address.port.as_ref().is_some_and(|port| ports.contains(port)) {
                address.port = None;
                address.status = "DOWN";
                address.revision += 2;
            }
        }
    }

    fn fixed_address(&self) -> String {
        let address = |number: u32| format!("10.140.{}.{}", 80 + number / 256, number % 256);
        let is_free = |address: &String| !self.ports.all().any(|port| &port.address == address);
        (10..1000).map(address).find(is_free).unwrap_or_else(|| address(1000))
    }

    /// A free address of the public network.
    pub(super) fn free_address(&self, from: usize, amount: usize) -> Option<String> {
        (from..from + amount)
            .map(|last| format!("192.0.{}.{}", 2 + last / 256, last % 256))
            .find(|address| !self.floating_ips.all().any(|other| &other.address == address))
    }
}

impl super::state::Server {
    /// The availability zone: the only hint for a user at where a server runs.
    pub(super) fn zone(&self) -> String {
        match (&self.host, &self.reservation) {
            (None, _) => String::new(),
            (Some(_), Some(reservation)) => format!("blazar_{reservation}"),
            (Some(_), None) => "nova".to_owned(),
        }
    }

    /// Nova's `hostId` of the server; empty without a host.
    pub(super) fn host_id(&self) -> String {
        self.host.as_ref().map(|host| host_id(&self.project_id, host)).unwrap_or_default()
    }
}
