//! A cluster on a platform, as the engine and the verbs see it.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::consent;
use super::goal;
use super::on_platform::OnPlatform;
use super::status::with_members;
use super::verify::{Trying, verify_cluster};
use crate::cluster::guards;
use crate::cluster::options::{DownOptions, UpOptions};
use crate::cluster::outcome::{Proof, Verified};
use crate::cluster::report::StatusReport;
use crate::cluster::substrate::{Remark, Resolution, Substrate};
use crate::engine::{Ledger, Pipeline, Planned, Replan, World};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Endpoint;
use crate::plan::{Desired, Goal, Observed, Plan};
use crate::provider::{ObservedResource, Offer, ResourceRequest};
use crate::spec::Loaded;
use crate::state::ClusterState;

/// Timeout of an inspection for a report.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(20);

#[async_trait]
impl World for OnPlatform {
    async fn observe(&self, _known: &ClusterState) -> Result<Observed> {
        Ok(Observed { resources: self.provider().observe(self.scope()).await?, ..Observed::default() })
    }

    async fn acquire(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<String> {
        let acquired = self.provider().acquire(&self.scope().tag(&request.key), request, ledger).await?;
        self.note(&request.key, ledger)?;
        Ok(acquired.id)
    }

    async fn wait_usable(&self, request: &ResourceRequest, id: &str, _ledger: &Ledger) -> Result<()> {
        self.provider().wait_usable(&self.scope().tag(&request.key), request, id).await
    }

    async fn update(&self, request: &ResourceRequest, id: &str, ledger: &Ledger) -> Result<()> {
        self.platform()?.update(&self.scope().tag(&request.key), request, id).await?;
        self.note(&request.key, ledger)
    }

    async fn release(&self, resource: &ObservedResource) -> Result<()> {
        self.provider().release(self.scope(), resource).await
    }

    fn consistency_delay(&self) -> Duration {
        self.provider().capability().consistency_delay
    }
}

/// A platform makes its nodes itself, whenever it has room.
impl Replan for OnPlatform {}

#[async_trait(?Send)]
impl Substrate for OnPlatform {
    fn to_stop(&mut self) {
        self.request = goal::of_spec(&self.spec, true);
    }

    async fn resolve(&mut self, up: Option<&UpOptions>) -> Result<Resolution> {
        if let Some(options) = up {
            consent::ask(&self.settings, options, &self.platform()?.site().await?).await?;
        }
        self.complete_request().await?;
        let notes = self.platform()?.check(self.scope(), &self.request).await?;
        notes.iter().for_each(|note| self.settings.events.note(note));
        Ok(Resolution { notes, ..Resolution::default() })
    }

    fn requests(&self) -> Result<Vec<ResourceRequest>> {
        self.objects()
    }

    async fn goal(
        &self,
        _loaded: &Loaded,
        _offers: &[Offer],
        _known: &ClusterState,
        _observed: &Observed,
    ) -> Result<Goal> {
        Ok(Goal::Up(Desired { resources: self.objects()?, ..Desired::default() }))
    }

    /// The object that runs the nodes stays, if it is there: it is not made for the sake of being stopped. The others serve
    /// nodes: they go, and with them the secrets of jobs.
    fn goal_of_stop(&self, observed: &Observed) -> Result<Goal> {
        let is_there = |object: &ResourceRequest| observed.resources.iter().any(|found| found.key == object.key);
        let resources = self.objects()?.into_iter().next_back().filter(is_there).into_iter().collect();
        Ok(Goal::Up(Desired { resources, ..Desired::default() }))
    }

    /// What the updates of a plan do to nodes that run.
    async fn remarks(&self, _known: &ClusterState, plan: &Plan) -> Result<Vec<Remark>> {
        Ok(self.consequences(plan).await?.lines.into_iter().map(Remark::Note).collect())
    }

    async fn starts_head(&self, plan: &Plan) -> Result<bool> {
        let is_there = self.pods.members().await?.iter().any(|member| member.is_head && member.ready);
        Ok(!is_there || self.consequences(plan).await?.restarts_head)
    }

    async fn carry_out(
        &self,
        pipeline: &Pipeline<'_>,
        _loaded: &Loaded,
        _offers: Vec<Offer>,
        observed: Observed,
        goal: Goal,
    ) -> Result<usize> {
        let Planned { plan, .. } = pipeline.plan_for(&goal, observed)?;
        pipeline.execute(&plan).await.into_result()?;
        // What was found by its tag after a crash has no notes yet.
        self.objects()?.iter().try_for_each(|object| self.note(&object.key, pipeline.ledger))?;
        Ok(plan.operations.len())
    }

    async fn verify(&self, ledger: &Ledger, before: Option<&ClusterState>) -> Result<Verified> {
        let Some(before) = before else { return verify_cluster(self, Trying::Everything).await };
        let trying = Trying::AfterUp { is_first: before.ready_since.is_none() };
        let (verified, ()) = tokio::join!(verify_cluster(self, trying), self.show_dashboards(before.spec.as_ref()));
        let verified = verified?;
        guards::bring(&self.settings, &ledger.state(), &ledger.folder()).await?;
        Ok(verified)
    }

    fn is_ready_since(&self, ready: Option<Timestamp>) -> bool {
        ready.is_some()
    }

    fn endpoints(&self, _known: &ClusterState) -> Vec<Endpoint> {
        let shown = self.pages.iter().filter(|(name, _)| *name == "dashboard");
        shown.map(|(name, port)| Endpoint { name: name.clone(), url: format!("http://127.0.0.1:{port}") }).collect()
    }

    async fn inspect(&self, known: &ClusterState, mut report: StatusReport) -> Result<StatusReport> {
        match tokio::time::timeout(INSPECTION_TIMEOUT, self.pods.members()).await {
            Ok(Ok(members)) => with_members(self.scope(), known, &members, &mut report),
            _ => report.silent_hosts.push(self.spec.provider.name().to_owned()),
        }
        Ok(report)
    }

    async fn prove_gone(
        &self,
        _first: &Planned,
        _known: &ClusterState,
        _options: DownOptions,
        proof: &mut Proof,
    ) -> Result<()> {
        let members = self.pods.members().await?;
        if members.is_empty() {
            proof.seen.push("looked for its nodes again: there is none".to_owned());
            return Ok(());
        }
        let names = members.into_iter().map(|member| member.name).collect::<Vec<_>>();
        Err(Error::new(ErrorKind::LeftBehind, "remove every node of the cluster")
            .because(format!("its objects are gone, but these are still there: {}", names.join(", ")))
            .hint(format!("gpucl down -c {}   # looks again", self.spec.name)))
    }
}
