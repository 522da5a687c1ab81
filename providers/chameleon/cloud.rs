//! Shared context of this provider: the site, authenticated on first use, and its calendar of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::api::{Allocation, Host, Lease, Server, Site, Who};
use super::auth::{self, Candidate, Choice};
use super::config::Settings;
use super::leases::title;
use super::nodes;
use super::policy::Policy;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{ClusterName, Tag};
use crate::provider::{Booking, CalendarRow, Context, Offer};
use crate::secret::Vault;
use crate::util::when;

/// The server metadata key that holds our tag.
pub(super) const TAG: &str = "gpucl";

/// A site and the spec's settings for it.
pub(super) struct Cloud {
    pub(super) settings: Settings,
    pub(super) context: Context,
    site: OnceCell<Site>,
    warned: Mutex<BTreeSet<String>>,
}

/// A snapshot of a site's hosts and their bookings.
pub(super) struct Calendar {
    pub(super) rows: Vec<CalendarRow>,
    pub(super) hosts: Vec<Host>,
    pub(super) allocations: Vec<Allocation>,
    pub(super) leases: Vec<Lease>,
}

impl Cloud {
    pub(super) fn new(settings: Settings, context: &Context) -> Self {
        Self { settings, context: context.clone(), site: OnceCell::new(), warned: Mutex::default() }
    }

    /// The time zone for display, from `TZ`.
    pub(super) fn zone(&self) -> TimeZone {
        when::zone(self.context.user_environment.variable("TZ"))
    }

    /// The site's reservation rules.
    pub(super) fn policy(&self) -> Policy {
        Policy::default()
    }

    pub(super) fn folder(&self, cluster: &ClusterName) -> PathBuf {
        self.context.clusters_dir.join(cluster.as_str())
    }

    /// Warns, at most once per text.
    pub(super) fn warn_once(&self, text: String) {
        if self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
            self.context.events.warn(text);
        }
    }

    /// The selected site, when no host name narrows it.
    pub(super) async fn site(&self) -> Result<&Site> {
        self.site_with(&[]).await
    }

    /// The selected site, or the only one with credentials that has these hosts.
    pub(super) async fn site_with(&self, nodes: &[String]) -> Result<&Site> {
        self.site.get_or_try_init(|| self.find_site(nodes)).await
    }

    async fn find_site(&self, nodes: &[String]) -> Result<Site> {
        let user_environment = &self.context.user_environment;
        let vault = Vault::open(&user_environment.config_dir, user_environment.keyring_bus());
        let choice = Choice {
            cloud: self.settings.cloud.clone(),
            site: self.settings.site.clone(),
            project: self.settings.project.clone(),
        };
        let mut candidates = auth::find(user_environment, &vault, &choice)?;
        if candidates.len() > 1 {
            candidates = self.with_nodes(candidates, nodes).await?;
        }
        let mut sites = candidates.into_iter();
        match (sites.next(), sites.next()) {
            (Some(one), None) => Site::new(one.credentials, self.context.events.clone()),
            (Some(first), Some(second)) => {
                let names: Vec<String> = [first, second]
                    .into_iter()
                    .chain(sites)
                    .map(|one| format!("{} ({})", one.site, one.source))
                    .collect();
                Err(Error::new(ErrorKind::Usage, "choose the site")
                    .because(format!("there are credentials for several sites: {}", names.join(", ")))
                    .hint("name one with `--site`, or `provider: {name: chameleon, site: …}` in the spec"))
            }
            (None, _) => {
                Err(Error::new(ErrorKind::Usage, "choose the site").because("none of your sites has these hosts"))
            }
        }
    }

    /// The candidates whose site has all of these hosts: by the built-in table, else by querying each site.
    async fn with_nodes(&self, candidates: Vec<Candidate>, nodes: &[String]) -> Result<Vec<Candidate>> {
        if nodes.is_empty() {
            return Ok(candidates);
        }
        let known = |site: &str| {
            nodes.iter().all(|node| nodes::sites_of(node).iter().any(|other| other.eq_ignore_ascii_case(site)))
        };
        if candidates.iter().any(|one| known(&one.site)) {
            return Ok(candidates.into_iter().filter(|one| known(&one.site)).collect());
        }
        let mut having = Vec::new();
        for candidate in candidates {
            let site = Site::new(candidate.credentials.clone(), self.context.events.clone())?;
            let hosts = site.hosts().await?;
            if nodes.iter().all(|node| hosts.iter().any(|host| host.name() == node)) {
                having.push(candidate);
            }
        }
        Ok(having)
    }

    /// Fetches the hosts and their bookings.
    pub(super) async fn calendar_now(&self, nodes: &[String]) -> Result<Calendar> {
        let site = self.site_with(nodes).await?;
        let (who, hosts, allocations, leases) =
            tokio::try_join!(site.who(), site.hosts(), site.allocations(), site.leases())?;
        Ok(Calendar::of(site.region(), &who, hosts, allocations, leases))
    }

    /// Every host that can be reserved, as an offer.
    pub(super) async fn offers(&self) -> Result<Vec<Offer>> {
        let calendar = self.calendar_now(&[]).await?;
        let now = Timestamp::now();
        let zone = self.zone();
        let open = calendar.rows.iter().filter(|row| row.closed.is_none());
        Ok(open.map(|row| offer(row, now, &zone)).collect())
    }
}

/// Turns a calendar row into an offer.
pub(super) fn offer(row: &CalendarRow, now: Timestamp, zone: &TimeZone) -> Offer {
    let busy =
        row.bookings.iter().filter(|booking| booking.start <= now && booking.end > now).map(|booking| booking.end);
    Offer {
        name: row.name.clone(),
        place: row.place.clone(),
        cpus: row.cpus,
        memory: row.memory,
        gpus: row.gpus.clone(),
        price_per_hour: row.price_per_hour,
        free: busy.max().map_or_else(|| "now".to_owned(), |end| format!("from {}", when::local(end, zone))),
    }
}

fn row(host: &Host, site: &str, project: &str) -> CalendarRow {
    let map: Map<String, Value> =
        host.extra.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect();
    nodes::row_of(&map, site, Some(project))
}

/// The holder of a reservation, if the service reports it: the user, else the project.
fn holder(extras: &Value) -> Option<String> {
    ["user_name", "user", "project_name", "project"]
        .iter()
        .find_map(|key| extras.get(key)?.as_str().map(str::to_owned))
        .filter(|name| !name.is_empty())
}

impl Calendar {
    /// Joins hosts, allocations and leases into one calendar.
    pub(super) fn of(
        region: &str,
        who: &Who,
        hosts: Vec<Host>,
        allocations: Vec<Allocation>,
        leases: Vec<Lease>,
    ) -> Self {
        let mut rows: Vec<CalendarRow> = hosts.iter().map(|host| row(host, region, &who.project_name)).collect();
        let by_id: BTreeMap<&str, &Lease> = leases.iter().map(|lease| (lease.id.as_str(), lease)).collect();
        for allocation in &allocations {
            let Some(row) = rows.iter_mut().find(|row| row.id == allocation.resource_id) else { continue };
            for booked in &allocation.reservations {
                let (Some(start), Some(end)) = (booked.start, booked.end) else { continue };
                let lease = by_id.get(booked.lease_id.as_str());
                row.bookings.push(Booking {
                    start,
                    end,
                    lease: Some(booked.lease_id.clone()).filter(|id| !id.is_empty()),
                    holder: lease.map(|lease| title(lease).to_owned()).or_else(|| holder(&booked.extras)),
                    ours: lease.is_some_and(|lease| lease.user_id == who.user_id),
                });
            }
        }
        for row in &mut rows {
            row.bookings.sort_by_key(|booking| (booking.start, booking.end));
        }
        Calendar { rows, hosts, allocations, leases }
    }

    /// The names of the hosts that a lease holds, as far as known.
    pub(super) fn hosts_of(&self, lease: &Lease) -> Vec<String> {
        let mut names: Vec<String> = self
            .rows
            .iter()
            .filter(|row| row.bookings.iter().any(|booking| booking.lease.as_deref() == Some(lease.id.as_str())))
            .map(|row| row.name.clone())
            .collect();
        // An ended lease has no allocations; hosts requested by name are still in the lease itself.
        names.extend(lease.reservations.iter().filter_map(|reservation| reservation.asked("node_name")));
        names.sort();
        names.dedup();
        names
    }

    /// The id of the lease's reservation that holds this host.
    pub(super) fn reservation_of(&self, lease: &Lease, node: &str) -> Option<String> {
        let hosts = || lease.reservations.iter().filter(|reservation| reservation.is_host());
        let named = hosts().find(|reservation| reservation.asked("node_name").as_deref() == Some(node));
        let id = self.rows.iter().find(|row| row.name == node).map(|row| row.id.as_str());
        let booked = || {
            let allocation = self.allocations.iter().find(|allocation| Some(allocation.resource_id.as_str()) == id)?;
            let of_lease = allocation.reservations.iter().find(|booked| booked.lease_id == lease.id)?;
            hosts().find(|reservation| reservation.id == of_lease.id)
        };
        let only = || hosts().next().filter(|_| hosts().count() == 1);
        named.or_else(booked).or_else(only).map(|reservation| reservation.id.clone())
    }

    /// The property and value that select a host: its name, or its hypervisor name if it has none.
    pub(super) fn selector(&self, node: &str) -> (&'static str, String) {
        match self.hosts.iter().find(|host| host.name() == node) {
            Some(host) if host.property("node_name").is_none() => {
                ("hypervisor_hostname", host.hypervisor_hostname.clone())
            }
            _ => ("node_name", node.to_owned()),
        }
    }
}

pub(super) fn tag_of_server(server: &Server) -> Option<Tag> {
    server.metadata.get(TAG).map_or(server.name.as_str(), String::as_str).parse().ok()
}

/// The error for a restricted credential; with one, the service answers a lease request with "Internal Server Error".
pub(super) fn restricted(site: &Site) -> Error {
    Error::new(ErrorKind::Provider, format!("reserve hosts at {}", site.region()))
        .because("the application credential is restricted, and a lease needs an unrestricted one")
        .hint(site.unrestricted_hint())
}

/// What to know of a login that may end before a lease does: nothing is extended or deleted without one.
pub(super) fn login_note(site: &Site, end: Option<Timestamp>, until: Timestamp, zone: &TimeZone) -> Option<String> {
    match end {
        Some(end) if end < until => Some(auth::ends(end, zone)),
        _ if site.is_page_login() => Some(
            "the login of `ccauth` may end before the lease does, which nobody could then extend or delete; one that \
             lasts: gpucl login chameleon"
                .to_owned(),
        ),
        _ => None,
    }
}
