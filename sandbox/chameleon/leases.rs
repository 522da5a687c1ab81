//! Leases: created, changed and deleted as Blazar's manager does it, within the limits that the site enforces.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::super::answer::Answer;
use super::blazar::{internal_error, not_found};
use super::config::Bug;
use super::format::read_time;
use super::records::{Caller, Event, Lease, LeaseStatus, Reservation, Reserved};
use super::select;
use super::state::State;

/// Time before the end of a lease at which its reminder is due.
const REMINDER: SignedDuration = SignedDuration::from_hours(1);

impl State {
    pub(super) fn create_lease(&mut self, body: &Value, caller: &Caller) -> Answer {
        // Blazar creates a trust first, which a restricted credential is not allowed to do.
        if caller.restricted {
            return internal_error();
        }
        match self.new_lease(body, caller) {
            Err(answer) => answer,
            Ok(lease) => {
                let answer = Answer::json(201, json!({"lease": self.render_lease(&lease)}));
                let shown = self.shown();
                for copy in 0..self.copies() {
                    let mut lease = lease.clone();
                    if copy > 0 {
                        lease.id = self.ids.uuid();
                        lease.reservations.iter_mut().for_each(|part| part.id = self.ids.uuid());
                    }
                    self.leases.add(lease, shown);
                }
                answer
            }
        }
    }

    fn new_lease(&mut self, body: &Value, caller: &Caller) -> Result<Lease, Answer> {
        let now = self.now();
        let missing: Vec<&str> =
            ["end_date", "name", "start_date"].into_iter().filter(|key| body.get(key).is_none()).collect();
        if !missing.is_empty() {
            return Err(Answer::blazar(400, format!("Missing parameter {}", missing.join(", "))));
        }
        let text = |key: &str| body[key].as_str().unwrap_or_default();
        let name = text("name").to_owned();
        let time = |text: &str| if text == "now" { Ok(minute(now)) } else { date(text) };
        let (start, end) = (time(text("start_date"))?, time(text("end_date"))?);
        if start < minute(now) {
            return Err(Answer::blazar(400, "Start date must be later than current date"));
        }
        if end <= start {
            return Err(Answer::blazar(400, "End date must be later than start date."));
        }
        let reminder = match text("before_end_date") {
            "" => (end - REMINDER).max(start),
            given => date(given)?,
        };
        if reminder < start || end < reminder {
            return Err(Answer::blazar(403, "Datetime is out of lease limits"));
        }
        let mut reservations = Vec::new();
        for asked in body["reservations"].as_array().into_iter().flatten() {
            let what = self.reserve(asked, start, end, &reservations)?;
            reservations.push(Reservation {
                id: self.ids.uuid(),
                resource_id: self.ids.uuid(),
                status: "pending",
                missing: false,
                created: now,
                updated: now,
                what,
            });
        }
        let longest = self.config.longest_lease.as_secs();
        self.enforce_length(end.duration_since(start), longest)?;
        self.enforce_units(&reservations, end.duration_since(start), caller)?;
        let same_name = |lease: &Lease| lease.name == name && lease.project_id == caller.project_id;
        if self.config.unique_lease_names && self.leases.all().any(same_name) {
            return Err(Answer::blazar(409, format!("The lease with name: {name} already exists")));
        }
        let events =
            [("start_lease", start), ("end_lease", end), ("before_end_lease", reminder)].map(|(kind, time)| Event {
                id: self.ids.uuid(),
                kind,
                time,
                status: "UNDONE",
                created: now,
                updated: None,
            });
        Ok(Lease {
            id: self.ids.uuid(),
            name: self.kept(&name),
            user_id: caller.user_id.clone(),
            project_id: caller.project_id.clone(),
            start,
            end,
            trust_id: self.ids.hex(),
            status: LeaseStatus::Pending,
            before: LeaseStatus::Pending,
            since: now,
            degraded: false,
            created: now,
            updated: now,
            reservations,
            events: events.to_vec(),
        })
    }

    /// A reservation, with the hosts chosen for it.
    fn reserve(
        &self,
        asked: &Value,
        start: Timestamp,
        end: Timestamp,
        with: &[Reservation],
    ) -> Result<Reserved, Answer> {
        let missing = |key: &str| Answer::blazar(400, format!("Missing parameter {key}"));
        match asked["resource_type"].as_str() {
            Some("physical:host") => {
                for key in ["min", "max", "hypervisor_properties", "resource_properties"] {
                    if asked.get(key).is_none() {
                        return Err(missing(key));
                    }
                }
                let (min, max) = (number(asked, "min")?, number(asked, "max")?);
                if min == 0 || max == 0 {
                    let text = "Malformed parameter min and max (must be greater than or equal to 1)";
                    return Err(Answer::blazar(400, text));
                }
                if min > max {
                    return Err(Answer::blazar(
                        400,
                        "Invalid values for min/max of hosts. Max must be equal to or larger than min.",
                    ));
                }
                let text = |key: &str| asked[key].as_str().unwrap_or_default().to_owned();
                let (hypervisor_properties, resource_properties) =
                    (text("hypervisor_properties"), text("resource_properties"));
                let others: Vec<&String> = with.iter().flat_map(Reservation::hosts).collect();
                let free: Vec<String> = self
                    .matching(&hypervisor_properties, &resource_properties)?
                    .into_iter()
                    .filter(|id| !others.contains(&id) && self.is_free(id, start, end, None))
                    .collect();
                if (free.len() as u64) < min {
                    return Err(Answer::blazar(500, "Not enough hosts available"));
                }
                let hosts = free.into_iter().take(usize::try_from(max).unwrap_or(usize::MAX)).collect();
                Ok(Reserved::Hosts { hypervisor_properties, resource_properties, min, max, hosts })
            }
            Some("virtual:floatingip") => {
                let network_id = asked["network_id"].as_str().ok_or_else(|| missing("network_id"))?.to_owned();
                let amount = number(asked, "amount")?;
                if amount > 6 {
                    return Err(Answer::blazar(500, "Not enough floating IPs available"));
                }
                let required = asked.get("required_floatingips").cloned().unwrap_or_else(|| json!([]));
                Ok(Reserved::Addresses { network_id, amount, required })
            }
            Some(other) => Err(Answer::blazar(500, format!("The {other} resource type is not supported"))),
            None => Err(missing("resource_type")),
        }
    }

    /// Ids of the hosts that match, free or not; hosts that are not reservable are silently left out.
    fn matching(&self, hypervisor: &str, resource: &str) -> Result<Vec<String>, Answer> {
        let mut clauses = select::read(hypervisor)?;
        clauses.extend(select::read(resource)?);
        let hosts: Vec<Map<String, Value>> =
            self.reservable().filter_map(|host| self.render_host(host).as_object().cloned()).collect();
        if clauses.iter().any(|clause| !select::is_known(clause, &hosts)) {
            return Err(Answer::blazar(500, "BlazarDBNotFound: A database error occurred"));
        }
        let meant = |host: &&Map<String, Value>| {
            host["reservable"] == true && clauses.iter().all(|clause| select::holds(clause, host))
        };
        Ok(hosts.iter().filter(meant).filter_map(|host| host["id"].as_str()).map(str::to_owned).collect())
    }

    /// Whether a host is free in this period, not counting the lease `but`.
    fn is_free(&self, host: &str, start: Timestamp, end: Timestamp, but: Option<&str>) -> bool {
        !self.leases.all().any(|lease| {
            but != Some(lease.id.as_str())
                && lease.status != LeaseStatus::Terminated
                && lease.start < end
                && start < lease.end
                && lease.hosts().any(|id| id == host)
        })
    }

    pub(super) fn update_lease(&mut self, id: &str, body: &Value) -> Answer {
        let now = self.now();
        let Some(lease) = self.leases.get(id).cloned() else { return not_found("lease_id", id) };
        if !lease.status.is_stable() {
            return Answer::blazar(500, "Invalid lease status.");
        }
        let changed = match self.changed(&lease, body, now) {
            Ok(changed) => changed,
            Err(answer) => {
                // Observed at the real service: after enforcement refuses a change, the lease is in ERROR. Chameleon's
                // fork leaves it as it was.
                if answer.status == 403 && !self.config.quirks.fork {
                    self.on_lease(id, |lease| lease.status = LeaseStatus::Error);
                }
                return answer;
            }
        };
        let changed =
            Lease { status: LeaseStatus::Updating, before: lease.status_at(now), since: now, updated: now, ..changed };
        let answer = Answer::json(200, json!({"lease": self.render_lease(&changed)}));
        if let Some(lease) = self.leases.get_mut(id) {
            *lease = changed;
        }
        answer
    }

    /// The lease after the requested change. Fields besides name, start and end are ignored, as by the real service.
    fn changed(&self, lease: &Lease, body: &Value, now: Timestamp) -> Result<Lease, Answer> {
        let mut changed = lease.clone();
        if let Some(name) = body["name"].as_str() {
            name.clone_into(&mut changed.name);
        }
        if let Some(text) = body["start_date"].as_str() {
            changed.start = if text == "now" { minute(now) } else { date(text)? };
        }
        if let Some(text) = body["end_date"].as_str() {
            changed.end = date(text)?;
        }
        if let Some(text) = body["before_end_date"].as_str() {
            date(text)?;
        }
        let known = |id: &str| lease.reservations.iter().any(|part| part.id == id);
        let mut named = body["reservations"].as_array().into_iter().flatten().filter_map(|part| part["id"].as_str());
        if let Some(unknown) = named.find(|id| !known(id)) {
            let text = format!("Please enter valid reservation IDs. Invalid reservation IDs are: {unknown}");
            return Err(Answer::blazar(400, text));
        }
        if changed.start == lease.start && changed.end == lease.end {
            return Ok(changed);
        }
        if lease.status == LeaseStatus::Terminated {
            return Err(Answer::blazar(400, "Terminated leases can only be renamed"));
        }
        if changed.start != lease.start && lease.start < now {
            return Err(Answer::blazar(400, "Cannot modify the start date of already started leases"));
        }
        if changed.start != lease.start && changed.start < minute(now) {
            return Err(Answer::blazar(400, "Start date must be later than current date"));
        }
        if changed.end <= now || changed.end <= changed.start {
            return Err(Answer::blazar(400, "End date must be later than current and start date"));
        }
        self.enforce_change(lease, &changed, now)?;
        for part in &mut changed.reservations {
            let Reserved::Hosts { hypervisor_properties, resource_properties, hosts, .. } = &mut part.what else {
                continue;
            };
            let free = |host: &String| self.is_free(host, changed.start, changed.end, Some(&lease.id));
            if hosts.iter().all(free) {
                continue;
            }
            // A pending lease may move to other hosts.
            let others: Vec<String> = if lease.status == LeaseStatus::Pending {
                self.matching(hypervisor_properties, resource_properties)?.into_iter().filter(free).collect()
            } else {
                Vec::new()
            };
            if others.len() < hosts.len() {
                return Err(Answer::blazar(500, "Not enough hosts available"));
            }
            *hosts = others.into_iter().take(hosts.len()).collect();
        }
        let reminder = (changed.end - REMINDER).max(changed.start);
        for event in &mut changed.events {
            let time = match event.kind {
                "start_lease" => changed.start,
                "end_lease" => changed.end,
                _ => reminder,
            };
            if event.time != time {
                event.time = time;
                event.updated = Some(now);
                event.status = "UNDONE";
            }
        }
        Ok(changed)
    }

    pub(super) fn delete_lease(&mut self, id: &str) -> Answer {
        let Some(lease) = self.leases.get(id) else { return not_found("lease_id", id) };
        if !lease.status.is_stable() {
            return Answer::blazar(500, "Invalid lease status.");
        }
        if !self.has(Bug::DeleteDoesNothing) {
            let (now, until) = (self.now(), self.hidden());
            // Blazar answers once the servers are gone.
            self.end_reservations(id, now);
            self.leases.remove(id, until);
        }
        if self.config.quirks.delete_answers_200 {
            return Answer::json(200, json!({}));
        }
        Answer::empty(204).with("content-type", "application/json")
    }

    /// Leases a host to an unknown user; `None` if the host does not exist.
    pub(super) fn foreign_lease(&mut self, node: &str, start: Timestamp, end: Timestamp) -> Option<String> {
        let host = self.config.hosts.iter().find(|host| host.name == node)?.id.clone();
        let now = self.now();
        let lease = Lease {
            id: self.ids.uuid(),
            name: "somebody-elses".to_owned(),
            user_id: Self::user_id("mallory"),
            project_id: Self::project_id("CHI-FOREIGN"),
            start,
            end,
            trust_id: self.ids.hex(),
            status: LeaseStatus::Pending,
            before: LeaseStatus::Pending,
            since: now,
            degraded: false,
            created: now,
            updated: now,
            reservations: vec![Reservation {
                id: self.ids.uuid(),
                resource_id: self.ids.uuid(),
                status: "pending",
                missing: false,
                created: now,
                updated: now,
                what: Reserved::Hosts {
                    hypervisor_properties: String::new(),
                    resource_properties: format!("[\"==\", \"$node_name\", \"{node}\"]"),
                    min: 1,
                    max: 1,
                    hosts: vec![host],
                },
            }],
            events: Vec::new(),
        };
        let id = lease.id.clone();
        self.leases.add(lease, Some(now));
        self.advance_all();
        Some(id)
    }

    fn enforce_length(&self, asked: SignedDuration, longest: u64) -> Result<(), Answer> {
        let seconds = asked.as_secs();
        if u64::try_from(seconds).is_ok_and(|seconds| seconds <= longest) {
            return Ok(());
        }
        Err(Answer::blazar(
            self.enforcement(),
            format!(
                "Lease duration of {seconds} seconds must be less than or equal to the maximum lease duration of {longest} seconds."
            ),
        ))
    }

    fn enforcement(&self) -> u16 {
        if self.config.quirks.enforcement_400 { 400 } else { 403 }
    }

    /// Checks the project's remaining service units; Chameleon gets them from its portal.
    fn enforce_units(&self, parts: &[Reservation], asked: SignedDuration, caller: &Caller) -> Result<(), Answer> {
        let Some(left) = self.config.quirks.service_units else { return Ok(()) };
        let units = self.units(parts, asked);
        if units <= left {
            return Ok(());
        }
        let text =
            format!("Reservation for project {} would spend {units:.2} SUs, only {left:.2} left", caller.project);
        Err(Answer::blazar(self.enforcement(), text))
    }

    fn units(&self, parts: &[Reservation], time: SignedDuration) -> f64 {
        let factors = parts.iter().flat_map(Reservation::hosts).filter_map(|id| self.host_by_id(id)).map(|host| {
            let factor = self.properties(host).get("su_factor").and_then(|value| value.as_str()?.parse().ok());
            factor.unwrap_or(1.0)
        });
        factors.sum::<f64>() * time.as_secs_f64() / 3600.0
    }

    fn enforce_change(&self, lease: &Lease, changed: &Lease, now: Timestamp) -> Result<(), Answer> {
        let longest = self.config.longest_lease.as_secs();
        if changed.end <= lease.end {
            return Ok(());
        }
        match self.config.quirks.update_window {
            // With a window, the length counts from the previous end.
            Some(window) => {
                if lease.end.duration_since(now).as_secs_f64() > window.as_secs_f64() {
                    let text = format!(
                        "Lease can only be extended within {} seconds of the leases current end time.",
                        window.as_secs()
                    );
                    return Err(Answer::blazar(self.enforcement(), text));
                }
                self.enforce_length(changed.end.duration_since(lease.end), longest)?;
            }
            None => self.enforce_length(changed.end.duration_since(changed.start), longest)?,
        }
        let Some(left) = self.config.quirks.service_units else { return Ok(()) };
        let more = self.units(&lease.reservations, changed.end.duration_since(lease.end));
        if more > left {
            let text = format!("Reservation update would spend {more:.2} more SUs, only {left:.2} left");
            return Err(Answer::blazar(self.enforcement(), text));
        }
        Ok(())
    }
}

impl Lease {
    /// The status after a change; a lease in ERROR recovers.
    fn status_at(&self, now: Timestamp) -> LeaseStatus {
        match self.status {
            LeaseStatus::Error if now < self.start => LeaseStatus::Pending,
            LeaseStatus::Error => LeaseStatus::Active,
            other => other,
        }
    }
}

/// The start of the minute.
fn minute(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second().div_euclid(60) * 60).unwrap_or(time)
}

fn date(text: &str) -> Result<Timestamp, Answer> {
    read_time(text)
        .ok_or_else(|| Answer::blazar(400, format!("{text} is an invalid date. Required format: %Y-%m-%d %H:%M")))
}

/// Reads a number, or a string that contains one.
fn number(asked: &Value, key: &str) -> Result<u64, Answer> {
    let value = asked.get(key).ok_or_else(|| Answer::blazar(400, format!("Missing parameter {key}")))?;
    value
        .as_u64()
        .or_else(|| value.as_str()?.parse().ok())
        .ok_or_else(|| Answer::blazar(400, format!("Malformed parameter {key}")))
}
