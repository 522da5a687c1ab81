//! A lease, and the states that it passes through as time goes by.

use std::time::Duration;

use jiff::Timestamp;

use super::super::clock::after;
use super::records::{FloatingIp, Lease, LeaseStatus, Reservation, Reserved};
use super::state::{Item, State};

/// Number of floating IPs that can be reserved, besides those of the pool.
const RESERVABLE: usize = 6;

impl LeaseStatus {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Starting => "STARTING",
            Self::Active => "ACTIVE",
            Self::Updating => "UPDATING",
            Self::Terminating => "TERMINATING",
            Self::Terminated => "TERMINATED",
            Self::Error => "ERROR",
        }
    }

    /// Whether a lease in this status may be changed or deleted.
    pub(super) fn is_stable(self) -> bool {
        matches!(self, Self::Pending | Self::Active | Self::Terminated | Self::Error)
    }
}

impl Lease {
    /// Blazar's ids of its hosts.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &String> {
        self.reservations.iter().flat_map(Reservation::hosts)
    }
}

impl Item for Lease {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Reservation {
    /// Blazar's ids of its hosts.
    pub(super) fn hosts(&self) -> &[String] {
        match &self.what {
            Reserved::Hosts { hosts, .. } => hosts,
            Reserved::Addresses { .. } => &[],
        }
    }
}

impl State {
    pub(super) fn advance_leases(&mut self, now: Timestamp) {
        for id in self.leases.ids() {
            // After a jump of the clock a lease may pass through several states at once.
            while let Some((status, at)) = self.leases.get(&id).and_then(|lease| self.next_of_lease(lease, now)) {
                self.move_lease(&id, status, at);
            }
        }
    }

    pub(super) fn on_lease(&mut self, id: &str, change: impl FnOnce(&mut Lease)) -> bool {
        self.leases.get_mut(id).map(change).is_some()
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
}

/// The next time, at or after `time`, at which Blazar's manager checks for due events.
fn next_tick(time: Timestamp, tick: Duration) -> Timestamp {
    let (at, tick) = (time.as_nanosecond(), i128::try_from(tick.as_nanos()).unwrap_or(1).max(1));
    Timestamp::from_nanosecond((at + tick - 1).div_euclid(tick) * tick).unwrap_or(time)
}
