//! A cluster on hosts, as the engine and the verbs see it.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use jiff::Timestamp;

use super::affected_paths::affected_paths;
use super::goal::{Given, desired};
use super::on_hosts::OnHosts;
use super::rounds::carry_to;
use super::status::{report_restarts, with_observation};
use super::verify::judge;
use crate::cluster::errors::missed;
use crate::cluster::options::{DownOptions, UpOptions};
use crate::cluster::outcome::{HostAffectedPaths, Proof, Verified};
use crate::cluster::report::StatusReport;
use crate::cluster::substrate::{Remark, Resolution, Substrate};
use crate::engine::{Hosts, Ledger, Pipeline, Planned, World};
use crate::error::Result;
use crate::event::Endpoint;
use crate::name::Key;
use crate::plan::{Goal, HostAction, Observed, Plan, limits, small_shared_memory};
use crate::provider::{ObservedResource, Offer, ResourceRequest};
use crate::spec::Loaded;
use crate::state::ClusterState;
use crate::util::human;

/// Timeout of the inspection of all hosts for a report.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(20);

#[async_trait]
impl World for OnHosts {
    async fn observe(&self, known: &ClusterState) -> Result<Observed> {
        self.observe_all(known).await
    }

    /// What was known of a host of its key is dropped.
    async fn acquire(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<String> {
        if self.supply.makes_hosts() {
            self.fleet.forget(&request.key).await;
            ledger.note_host(&request.key, |host| host.facts = None)?;
        }
        self.supply.acquire(request, ledger).await
    }

    /// Records a host's place and end as well.
    async fn wait_usable(&self, request: &ResourceRequest, id: &str, ledger: &Ledger) -> Result<()> {
        self.supply.wait_usable(request, id).await?;
        if request.is_host { self.note_acquired(&request.key, id, ledger).await } else { Ok(()) }
    }

    async fn release(&self, resource: &ObservedResource) -> Result<()> {
        self.supply.release(resource).await
    }

    fn hosts(&self) -> Option<&dyn Hosts> {
        Some(self)
    }

    fn costs_from(&self, _request: &ResourceRequest) -> Option<Timestamp> {
        self.supply.costs_from()
    }

    fn consistency_delay(&self) -> Duration {
        self.supply.provider.capability().consistency_delay
    }
}

#[async_trait]
impl Hosts for OnHosts {
    async fn perform(&self, key: &Key, action: &HostAction, ledger: &Ledger) -> Result<()> {
        match action {
            HostAction::Prepare { .. } => self.supply.while_there(key, self.prepare(key, ledger)).await,
            HostAction::SetFirewall { .. } => self.supply.while_there(key, self.set_firewall(key, ledger)).await,
            HostAction::Fill { .. } => self.supply.while_there(key, self.fill(key, ledger)).await,
            HostAction::Deploy { host, .. } => self.supply.while_there(host, self.deploy(key, host, ledger)).await,
            HostAction::StopProject { host } => self.stop_project(key, host, ledger).await,
            HostAction::Clean { host } => self.clean(host).await,
        }
    }
}

impl OnHosts {
    /// Everything that the spec asks for, on the hosts as they are known now.
    pub(super) fn goal_of_up(
        &self,
        loaded: &Loaded,
        offers: &[Offer],
        known: &ClusterState,
        observed: &Observed,
    ) -> Result<Goal> {
        let given = Given {
            resources: self.supply.requests()?,
            offers,
            behind_first: self.supply.provider.capability().behind_first,
            prepared: &observed.prepared,
            pages: known.pages(),
        };
        let wrong = |(path, sentence): (String, String)| loaded.places.error(&path, sentence);
        desired(&self.layout(known), given, wrong).map(Goal::Up)
    }

    /// What limits the hosts, and what they do not hold; `None` until the facts of all are known.
    fn remarks_on_capacity(&self, known: &ClusterState) -> Option<Vec<Remark>> {
        let layout = self.layout(known);
        let (machines, nodes) = (layout.machines(), layout.nodes_if_complete().ok()??);
        let notes = limits(&machines).into_iter().map(Remark::Note);
        let warnings = small_shared_memory(&machines, &nodes).into_iter().map(Remark::Warning);
        Some(notes.chain(warnings).collect())
    }

    /// Records the promised GPUs of each host, so that a later `verify` needs no query to the provider.
    pub(super) fn note_promises(&self, ledger: &Ledger) -> Result<()> {
        let promised = self.supply.promised();
        promised.into_iter().try_for_each(|(host, gpus)| ledger.note_host(&host, |host| host.promised = Some(gpus)))
    }

    /// Records the boot id of each verified host; a different one later is reported as a restart.
    fn note_boots(&self, ledger: &Ledger) -> Result<()> {
        for host in self.hosts() {
            let now = self.fleet.facts(host).map(|facts| facts.boot_id).unwrap_or_default();
            ledger.note_host(host, |host| {
                if let Some(facts) = host.facts.as_mut().filter(|_| !now.is_empty()) {
                    facts.boot_id = now;
                }
            })?;
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl Substrate for OnHosts {
    fn to_remove(&mut self, options: DownOptions) {
        self.removal = Some(options);
    }

    async fn resolve(&mut self, up: Option<&UpOptions>) -> Result<Resolution> {
        match up {
            Some(_) => self.resolve_or_wait().await,
            None => self.supply.resolve().await,
        }
    }

    fn requests(&self) -> Result<Vec<ResourceRequest>> {
        self.supply.requests()
    }

    async fn goal(&self, loaded: &Loaded, offers: &[Offer], known: &ClusterState, observed: &Observed) -> Result<Goal> {
        self.refuse_taken_port().await?;
        self.goal_of_up(loaded, offers, known, observed)
    }

    fn goal_of_stop(&self, _observed: &Observed) -> Result<Goal> {
        Ok(Goal::Stop)
    }

    async fn remarks(&self, known: &ClusterState, _plan: &Plan) -> Result<Vec<Remark>> {
        let mut remarks: Vec<Remark> = self.corrected_ways(known).into_iter().map(Remark::Note).collect();
        remarks.extend(self.remarks_on_capacity(known).into_iter().flatten());
        Ok(remarks)
    }

    fn affected_paths(&self, known: &ClusterState, plan: &Plan) -> Result<Vec<HostAffectedPaths>> {
        let pages = known.pages().cloned().unwrap_or_default();
        affected_paths(self.layout(known), &pages, plan, self.fleet.replaces_host_keys())
    }

    async fn carry_out(
        &self,
        pipeline: &Pipeline<'_>,
        loaded: &Loaded,
        offers: Vec<Offer>,
        observed: Observed,
        goal: Goal,
    ) -> Result<usize> {
        let is_reported = self.remarks_on_capacity(&pipeline.ledger.state()).is_some();
        // Of hosts that were there: the others get theirs when they are prepared.
        join_all(self.hosts().iter().map(async |host| self.warn_of_given_key(host, self.give_own_key(host).await)))
            .await;
        let operations = carry_to(pipeline, self, loaded, offers, observed, goal).await?;
        self.note_promises(pipeline.ledger)?;
        // Of hosts that did not exist before.
        if !is_reported {
            let remarks = self.remarks_on_capacity(&pipeline.ledger.state());
            remarks.iter().flatten().for_each(|remark| remark.report(&self.events));
        }
        Ok(operations)
    }

    fn report_restarts(&self, known: &ClusterState) {
        report_restarts(self, known);
    }

    async fn inspect_again(&self, known: &ClusterState) -> Result<()> {
        self.observe_all(known).await.map(|_| ())
    }

    async fn verify(&self, ledger: &Ledger, before: Option<&ClusterState>) -> Result<Verified> {
        let known = ledger.state();
        let give_end = async { if before.is_some() { self.give_end(ledger).await } else { Ok(()) } };
        let (verified, given) = tokio::join!(judge(self, &known), give_end);
        let verified = verified?;
        given?;
        if before.is_some() {
            self.note_boots(ledger)?;
        }
        Ok(verified)
    }

    fn is_ready_since(&self, ready: Option<Timestamp>) -> bool {
        ready.is_some_and(|ready| self.fleet.runs_since(ready))
    }

    fn endpoints(&self, known: &ClusterState) -> Vec<Endpoint> {
        let head = Key::host(0);
        let Some(ports) = known.host(&head).and_then(|host| host.ports.clone()) else { return Vec::new() };
        let there = self.runtime().pages(&self.spec, &head, &ports);
        let pages = known.pages().cloned().unwrap_or_default();
        pages
            .into_iter()
            .filter(|(name, _)| there.iter().any(|page| page.name == *name))
            .map(|(name, port)| Endpoint { name, url: format!("http://127.0.0.1:{port}") })
            .collect()
    }

    async fn inspect(&self, known: &ClusterState, report: StatusReport) -> Result<StatusReport> {
        let observed = tokio::time::timeout(INSPECTION_TIMEOUT, self.observe_all(known)).await;
        Ok(with_observation(self, known, report, observed.ok().and_then(Result::ok).as_ref()))
    }

    async fn prove_gone(
        &self,
        first: &Planned,
        known: &ClusterState,
        options: DownOptions,
        proof: &mut Proof,
    ) -> Result<()> {
        report_restarts(self, known);
        for (key, id) in adopted(known) {
            match &self.supply.provider.reservations() {
                Some(reservations) if options.release_lease => {
                    reservations.delete(&id).await?;
                    proof.removed.push(format!("{} ({id}), which was not made for the cluster", key.display_name()));
                }
                Some(reservations) => proof.kept.extend(reservations.lease(&id).await.ok().map(|lease| {
                    let (name, end) = (&lease.name, human::local(lease.end));
                    format!("the lease {name} until {end}; `gpucl lease delete {id}` deletes it")
                })),
                None => {}
            }
        }
        if self.leaves_no_trace() && !first.observed.resources.is_empty() {
            proof.seen.push("what was on the hosts is gone with them".to_owned());
        }
        for found in &first.observed.projects {
            let (traces, name) = (self.runtime().traces(), found.host.display_name());
            proof.seen.push(format!("no {traces} on {name} is tagged {}", self.scope.tag(&found.host)));
        }
        let cleaned = self.fleet.cleaned();
        if cleaned.tried_ports > 0 && cleaned.open_ports == 0 {
            let tried = cleaned.tried_ports;
            proof.seen.push(format!("tried the {tried} ports that it used: nothing listens on them"));
        }
        proof.unknown.extend(cleaned.missed.iter().map(|node| missed(node)));
        proof.kept.extend(cleaned.kept);
        Ok(())
    }
}

/// The adopted resources, by key and id: used by the cluster but not created for it.
fn adopted(known: &ClusterState) -> Vec<(Key, String)> {
    let items = known.items.iter().filter(|(_, item)| item.adopted);
    items.filter_map(|(key, item)| Some((key.clone(), item.id.clone()?))).collect()
}
