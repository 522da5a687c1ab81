//! The steps on a host: prepare, set the firewall, fill, deploy, stop and clean. What each does is the layout's.

use std::path::PathBuf;

use super::on_hosts::OnHosts;
use super::places::note_place;
use super::{files, images};
use crate::engine::{Ledger, Urgency};
use crate::error::{Error, ErrorKind, LeftBehind, Result, Status};
use crate::host::Host;
use crate::name::Key;
use crate::playbook::{self, Stage, StageReport};
use crate::provider::Recorder as _;
use crate::runtime::project::{self, Container, Filling};
use crate::state::{ClusterState, HostPorts};

impl OnHosts {
    async fn run_stage(&self, on: &dyn Host, stage: &Stage) -> Result<StageReport> {
        playbook::run_stage(on, stage, &self.events, self.cancel.at_least(Urgency::Finish)).await
    }

    /// Inspects a host before its first stage. Without a firewall stage, preparation opens ports and needs the addresses
    /// of all hosts.
    async fn inspect_before_first_stage(&self, host: &Key, known: &ClusterState) -> Result<()> {
        let is_apart = !self.runtime().opens_ports();
        match is_apart || self.layout(known).has_firewall_stage() {
            true => self.fleet.inspect_new(host, known).await,
            false => self.fleet.inspect_all_new(known).await,
        }
    }

    /// Prepares a host.
    pub(super) async fn prepare(&self, host: &Key, ledger: &Ledger) -> Result<()> {
        self.note_promises(ledger)?;
        let known = ledger.state();
        self.inspect_before_first_stage(host, &known).await?;
        let connected = self.fleet.connect_new(host, &known).await?;
        let layout = self.layout(&ledger.state());
        let own = layout.host(host)?;
        ledger.note_host(host, |host| host.ports = Some(own.ports.clone()))?;
        let stage = layout.preparation(host, &layout.nodes()?)?;
        let stage = self.run_stage(connected.as_ref(), &stage);
        let (report, mut given) = tokio::join!(stage, self.give_own_key(host));
        let report = report?;
        if given.is_err() {
            // The stage may have restarted the host meanwhile.
            given = self.give_own_key(host).await;
        }
        self.warn_of_given_key(host, given);
        for moved in images::record(&ledger.folder(), report.values.get("images").map_or("", String::as_str))? {
            self.events.warn(moved.warning(&host.display_name()));
            let lines = self.fleet.run(host, "give the recorded images to", &moved.script()).await?;
            moved.check(&host.display_name(), &lines)?;
        }
        ledger.note_host(host, |host| {
            host.address = Some(own.address.clone());
            host.facts = Some(report.facts.clone());
            host.ray_env = report.values.get("ray_env").map(PathBuf::from);
        })?;
        self.fleet.prepared(host, report.facts);
        Ok(())
    }

    /// Has a host use a host key of its own, unless it does.
    pub(super) async fn give_own_key(&self, host: &Key) -> Result<()> {
        let given = self.fleet.give_own_key(host);
        self.cancel.unless_pressed(&format!("replace the host key of {}", host.display_name()), given).await
    }

    /// Warns if a host could not be given a key of its own: the connection is as certain as it was.
    pub(super) fn warn_of_given_key(&self, host: &Key, given: Result<()>) {
        if let Err(error) = given
            && error.kind() != ErrorKind::Cancelled
        {
            let (name, why) = (host.display_name(), error.causes().join(": "));
            self.events.warn(format!(
                "{name} keeps the host key from its user data, which programs on it can read: {why}. The next `gpucl up` \
                 tries again"
            ));
        }
    }

    /// Opens a host's ports to the others, which all have an address by now. The next connection, that of `deploy`,
    /// confirms the change.
    pub(super) async fn set_firewall(&self, host: &Key, ledger: &Ledger) -> Result<()> {
        self.fleet.inspect_all_new(&ledger.state()).await?;
        let layout = self.layout(&ledger.state());
        let stage = layout.firewall(host, &layout.nodes()?)?;
        self.run_stage(self.fleet.connect(host).await?.as_ref(), &stage).await.map(|_| ())
    }

    /// Fills the data folder of a host that is prepared.
    pub(super) async fn fill(&self, host: &Key, ledger: &Ledger) -> Result<()> {
        self.inspect_before_first_stage(host, &ledger.state()).await?;
        let layout = self.layout(&ledger.state());
        let Some(Filling { stage, wants }) = layout.filling(host, &layout.nodes()?)? else { return Ok(()) };
        let connected = self.fleet.reconnect(host).await?;
        for (files, wants) in self.files.iter().flatten().zip(&wants) {
            let doing = format!("send files to {}", host.display_name());
            let sent = files::send(connected.as_ref(), files, wants, &self.events);
            self.cancel.unless_pressed(&doing, sent).await?;
        }
        self.run_stage(connected.as_ref(), &stage).await.map(|_| ())
    }

    /// Starts the nodes of a host. Programs of other users, which have claims of their own, may take a port between our
    /// look and the node's start: a cluster on one host then starts once more, on other ports.
    pub(super) async fn deploy(&self, project: &Key, host: &Key, ledger: &Ledger) -> Result<()> {
        let Err(error) = self.deploy_once(project, host, ledger).await else { return Ok(()) };
        let runs = self.fleet.containers(host).iter().any(Container::is_running);
        if error.retry_status() != Status::Temporary || runs || self.hosts().len() > 1 {
            return Err(error);
        }
        if !self.claim_other_ports(host, &ledger.state()).await.unwrap_or(false) {
            return Err(error);
        }
        // What is left of the first start goes, and its claims of ports with it.
        let others = async {
            self.stop_project(project, host, ledger).await?;
            self.claim_other_ports(host, &ledger.state()).await
        };
        if others.await.is_err() {
            return Err(error);
        }
        self.events.warn(format!(
            "another program took a port of {} before its nodes could: they start again, on other ports",
            host.display_name()
        ));
        self.deploy_once(project, host, ledger).await
    }

    async fn deploy_once(&self, project: &Key, host: &Key, ledger: &Ledger) -> Result<()> {
        let known = ledger.state();
        // The head's address and the list of nodes need the facts of all hosts.
        self.fleet.inspect_all_new(&known).await?;
        // A host that was found by its tag has no recorded place yet.
        if let Some(place) = self.fleet.place(host) {
            note_place(host, &place, ledger)?;
        }
        self.claim_ports(&known).await?;
        let (layout, pages) = (self.layout(&known), &self.pages);
        let own = layout.host(host)?;
        ledger.note_host(host, |host| {
            (host.ports, host.address) = (Some(own.ports.clone()), Some(own.address.clone()));
        })?;
        let deployment = layout.deployment(host, pages)?;
        ledger.note_project(project, |noted| {
            if *project == Key::project(0) {
                noted.pages = Some(pages.clone());
            }
            (noted.nodes, noted.stopped) = (deployment.nodes.clone(), false);
            noted.setup = self.spec.setup().map(|setup| setup.digest());
            noted.stopped_by_hand.clear();
        })?;
        // The name is recorded first, so that the project can be found whatever happens next.
        ledger.exists(project, &deployment.project).await?;
        let connected = self.fleet.reconnect(host).await?;
        let report = self.run_stage(connected.as_ref(), &deployment.stage).await?;
        self.fleet.deployed(host, project::checks_in_values(&report.values));
        Ok(())
    }

    /// Claims ports on all hosts, once per command.
    async fn claim_ports(&self, known: &ClusterState) -> Result<()> {
        let (layout, pages) = (self.layout(known), &self.pages);
        let claim = async |host: Key| -> Result<Option<HostPorts>> {
            let Some(script) = layout.claim_script(&host, pages)? else { return Ok(None) };
            let lines = self.fleet.run(&host, "find ports on", &script).await?;
            layout.claimed(&host, pages, &lines).map(Some)
        };
        self.fleet.claim_ports(claim).await
    }

    /// Claims the ports again, when a node did not start on them; false if they are still the same.
    async fn claim_other_ports(&self, host: &Key, known: &ClusterState) -> Result<bool> {
        let before = self.fleet.claim_again(host).await;
        self.claim_ports(known).await?;
        Ok(self.fleet.ports(host) != before)
    }

    /// Refuses a dashboard port that another program uses, before anything is changed.
    pub(super) async fn refuse_taken_port(&self) -> Result<()> {
        let host = Key::host(0);
        let Some(port) = self.spec.ray.head.dashboard_port else { return Ok(()) };
        let is_taken = self.fleet.facts(&host).is_some_and(|facts| super::fleet::taken(&facts).contains(&port));
        let script = self.runtime().holder_script(&self.fleet.tag(&host), &self.fleet.folders(&host), port);
        let Some(script) = script.filter(|_| is_taken) else { return Ok(()) };
        self.runtime().refused(&self.fleet.run(&host, "inspect the ports of", &script).await?)
    }

    /// Ends the nodes of a host.
    pub(super) async fn stop_project(&self, project: &Key, host: &Key, ledger: &Ledger) -> Result<()> {
        let script = self.runtime().stop_script(&self.fleet.tag(host), &self.fleet.folders(host));
        let lines = self.fleet.run(host, "stop the nodes on", &script).await?;
        if !lines.iter().any(|line| line == "::stopped") {
            return Err(unfinished("stop the nodes on", host, &lines));
        }
        ledger.note_project(project, |project| {
            project.stopped = true;
            project.stopped_by_hand.clear();
        })
    }

    /// Removes what is ours from a host.
    pub(super) async fn clean(&self, host: &Key) -> Result<()> {
        let lines = self.fleet.clean(host, self.clean_options()).await?;
        for line in &lines {
            if let Some(removed) = line.strip_prefix("::removed ") {
                self.events.note(format!("{}: removed {removed}", host.display_name()));
            } else if let Some(port) = line.strip_prefix("::open ") {
                self.events.warn(format!("port {port}, which was ours, is now in use by another program"));
            }
        }
        if lines.iter().any(|line| line == "::clean") { Ok(()) } else { Err(unfinished("clean", host, &lines)) }
    }
}

/// The error for a script that did not get to its end.
fn unfinished(doing: &str, host: &Key, lines: &[String]) -> Error {
    let left: Vec<String> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("::left "))
        .map(|left| format!("{left} on {}", host.display_name()))
        .collect();
    let words = lines.iter().filter(|line| !line.starts_with("::")).map(String::as_str).collect::<Vec<_>>();
    let mut error =
        Error::new(ErrorKind::LeftBehind, format!("{doing} {}", host.display_name())).because("it did not finish");
    if !words.is_empty() {
        error = error.because(words[words.len().saturating_sub(12)..].join("\n"));
    }
    error.left(if left.is_empty() { LeftBehind::Unknown } else { LeftBehind::Remaining(left) })
}
