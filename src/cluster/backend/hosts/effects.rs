//! The operations on a host: prepare, set firewall, deploy, stop and clean.

use std::path::PathBuf;
use std::sync::Arc;

use super::goal::no_place;
use super::world::{ANSWERS_WITHIN, HostObservation, ProjectWorld, Purpose};
use super::{files, images};
use crate::cluster::pages::choose_pages;
use crate::engine::{Ledger, Urgency};
use crate::error::{Error, ErrorKind, LeftBehind, Result, Status};
use crate::host::{ExecEnd, Host};
use crate::name::Key;
use crate::playbook;
use crate::provider::Recorder as _;
use crate::runtime::project::{self, CleanOptions, Container, Filling};
use crate::spec::SetupSpec;

use crate::state::{ClusterState, Pages};

impl ProjectWorld {
    pub(super) async fn prepare(&self, host: &Key, ledger: &Ledger) -> Result<()> {
        self.note_promises(ledger)?;
        let known = ledger.state();
        // Without a separate firewall stage, preparation opens ports and needs the addresses of all hosts.
        match self.has_firewall() || !self.runtime().opens_ports() {
            true => self.observe_new(host, &known).await?,
            false => self.observe_all_new(&known).await?,
        }
        let connected = self.connected_new(host, &known).await?;
        let survey = self.survey(&ledger.state());
        let own = survey.get(host).ok_or_else(|| no_place(host))?;
        ledger.note_host(host, |host| host.ports = Some(own.ports.clone()))?;
        let stage = self.prepare_stage(host, &survey, &self.nodes(&survey)?)?;
        let stop = self.config.cancel.at_least(Urgency::Finish);
        let report = playbook::run_stage(connected.as_ref(), &stage, &self.config.events, stop).await?;
        for moved in images::record(&ledger.folder(), report.values.get("images").map_or("", String::as_str))? {
            self.config.events.warn(moved.warning(&host.display_name()));
            let lines = self.script(host, "give the recorded images to", &moved.script()).await?;
            moved.check(&host.display_name(), &lines)?;
        }
        ledger.note_host(host, |host| {
            host.address = Some(own.address.clone());
            host.facts = Some(report.facts.clone());
            host.ray_env = report.values.get("ray_env").map(PathBuf::from);
        })?;
        self.observations()
            .by_host
            .insert(host.clone(), HostObservation { facts: report.facts, ..HostObservation::default() });
        Ok(())
    }

    /// Opens a host's ports to the others, which all have an address by now. The next connection, that of `deploy`,
    /// confirms the change.
    pub(super) async fn set_firewall(&self, host: &Key, ledger: &Ledger) -> Result<()> {
        self.observe_all_new(&ledger.state()).await?;
        let survey = self.survey(&ledger.state());
        let stage = self.firewall_stage(host, &survey, &self.nodes(&survey)?)?;
        let stop = self.config.cancel.at_least(Urgency::Finish);
        playbook::run_stage(self.connected(host).await?.as_ref(), &stage, &self.config.events, stop).await.map(|_| ())
    }

    /// Fills the data folder of a host that is prepared.
    pub(super) async fn fill(&self, host: &Key, ledger: &Ledger) -> Result<()> {
        match self.has_firewall() || !self.runtime().opens_ports() {
            true => self.observe_new(host, &ledger.state()).await?,
            false => self.observe_all_new(&ledger.state()).await?,
        }
        let survey = self.survey(&ledger.state());
        let Some(filling) = self.filling(host, &survey, &self.nodes(&survey)?)? else { return Ok(()) };
        let Filling { stage, wants } = filling;
        let connected = self.connected_after_firewall(host).await?;
        for (files, wants) in self.config.files.iter().flatten().zip(&wants) {
            let doing = format!("send files to {}", host.display_name());
            let sent = files::send(connected.as_ref(), files, wants, &self.config.events);
            self.config.cancel.unless_pressed(&doing, sent).await?;
        }
        let stop = self.config.cancel.at_least(Urgency::Finish);
        playbook::run_stage(connected.as_ref(), &stage, &self.config.events, stop).await.map(|_| ())
    }

    /// A host whose firewall may have been set: a new connection proves that it lets us in, and carries the next stage.
    async fn connected_after_firewall(&self, host: &Key) -> Result<Arc<dyn Host>> {
        if self.host_keys().len() < 2 {
            return self.connected(host).await;
        }
        let place = self.place_of(host).ok_or_else(|| no_place(host))?;
        self.config.connector.fresh(host, &place, &self.home(host), ANSWERS_WITHIN).await
    }

    /// Starts the nodes of a host. Programs of other users, which have claims of their own, may take a port between our
    /// look and the node's start: a cluster on one host then starts once more, on other ports.
    pub(super) async fn deploy(&self, project: &Key, host: &Key, ledger: &Ledger) -> Result<()> {
        let Err(error) = self.deploy_once(project, host, ledger).await else { return Ok(()) };
        let runs = self.observed_containers(host).iter().any(Container::is_running);
        if error.retry_status() != Status::Temporary || runs || self.host_keys().len() > 1 {
            return Err(error);
        }
        let pages = self.pages(&ledger.state())?;
        if !self.claim_other_ports(host, &ledger.state(), &pages).await.unwrap_or(false) {
            return Err(error);
        }
        // What is left of the first start goes, and its claims of ports with it.
        let others = async {
            self.stop_project(project, host, ledger).await?;
            self.claim_other_ports(host, &ledger.state(), &pages).await
        };
        if others.await.is_err() {
            return Err(error);
        }
        self.config.events.warn(format!(
            "another program took a port of {} before its nodes could: they start again, on other ports",
            host.display_name()
        ));
        self.deploy_once(project, host, ledger).await
    }

    async fn deploy_once(&self, project: &Key, host: &Key, ledger: &Ledger) -> Result<()> {
        let known = ledger.state();
        // The head's address and the list of nodes need the facts of all hosts.
        self.observe_all_new(&known).await?;
        let place = self.place_of(host).ok_or_else(|| no_place(host))?;
        // A host that was found by its tag has no recorded place yet.
        self.note_place(host, &place, ledger)?;
        let pages = self.pages(&known)?;
        self.claim_ports(&known, &pages).await?;
        let survey = self.survey(&known);
        let own = survey.get(host).ok_or_else(|| no_place(host))?;
        ledger.note_host(host, |host| {
            (host.ports, host.address) = (Some(own.ports.clone()), Some(own.address.clone()));
        })?;
        let deployment = self.deployment(host, &survey, &pages)?;
        ledger.note_project(project, |noted| {
            if *project == Key::project(0) {
                noted.pages = Some(pages.clone());
            }
            (noted.nodes, noted.stopped) = (deployment.nodes.clone(), false);
            noted.setup = self.config.spec.setup().map(SetupSpec::digest);
            noted.stopped_by_hand.clear();
        })?;
        // The name is recorded first, so that the project can be found whatever happens next.
        ledger.exists(project, &deployment.project).await?;
        let connected = self.connected_after_firewall(host).await?;
        let stop = self.config.cancel.at_least(Urgency::Finish);
        let report = playbook::run_stage(connected.as_ref(), &deployment.stage, &self.config.events, stop).await?;
        let checks = project::checks_in_values(&report.values);
        if let Some(observed) = self.observations().by_host.get_mut(host) {
            observed.checks = checks;
        }
        Ok(())
    }

    /// The local ports of the pages: chosen once and kept.
    fn pages(&self, known: &ClusterState) -> Result<Pages> {
        let mut observations = self.observations();
        let noted = known.pages().cloned();
        if let Some(pages) = noted.or_else(|| observations.pages.clone()) {
            return Ok(pages);
        }
        let pages = choose_pages(&["dashboard", "grafana", "prometheus", "object-store", "jupyter", "client"])?;
        observations.pages = Some(pages.clone());
        Ok(pages)
    }

    /// Runs a script on a host and returns its output lines.
    pub(super) async fn script(&self, host: &Key, what: &str, script: &str) -> Result<Vec<String>> {
        let connected = self.connected(host).await?;
        let mut lines = Vec::new();
        let end = connected.exec(script, &mut |_, line| lines.push(line.to_owned())).await?;
        if end == ExecEnd::Broken {
            return Err(Error::new(ErrorKind::Host, format!("{what} {}", host.display_name()))
                .because("the connection to the host broke")
                .left(LeftBehind::Unknown));
        }
        Ok(lines)
    }

    pub(super) async fn stop_project(&self, project: &Key, host: &Key, ledger: &Ledger) -> Result<()> {
        let tag = self.config.scope.tag(host).to_string();
        let lines =
            self.script(host, "stop the nodes on", &self.runtime().stop_script(&tag, &self.folders(host))).await?;
        if !lines.iter().any(|line| line == "::stopped") {
            return Err(self.unfinished("stop the nodes on", host, &lines));
        }
        ledger.note_project(project, |project| {
            project.stopped = true;
            project.stopped_by_hand.clear();
        })
    }

    pub(super) async fn clean(&self, host: &Key) -> Result<()> {
        let connected = self.connected(host).await?;
        playbook::end_program(connected.as_ref()).await?;
        connected.end_abandoned().await?;
        let clean = match self.config.purpose {
            Purpose::Remove(clean) => clean,
            Purpose::Check | Purpose::Verify | Purpose::Inspect | Purpose::Glance => CleanOptions::default(),
        };
        let tag = self.config.scope.tag(host).to_string();
        let script = self.runtime().clean_script(&tag, &self.folders(host), clean);
        let lines = self.script(host, "clean", &script).await?;
        for line in &lines {
            if let Some(removed) = line.strip_prefix("::removed ") {
                self.config.events.note(format!("{}: removed {removed}", host.display_name()));
            } else if let Some(kept) = line.strip_prefix("::kept ") {
                self.observations().kept.push(format!("{kept} on {}", host.display_name()));
            } else if let Some(tried) = line.strip_prefix("::tried ") {
                self.observations().tried_ports += tried.trim().parse::<usize>().unwrap_or_default();
            } else if let Some(port) = line.strip_prefix("::open ") {
                self.observations().open_ports += 1;
                self.config.events.warn(format!("port {port}, which was ours, is now in use by another program"));
            } else if let Some(node) = line.strip_prefix("::unknown") {
                let node = node.trim().parse::<Key>().map_or("a node".to_owned(), |key| key.display_name());
                self.observations().missed.insert(format!("{node} of {}", host.display_name()));
            }
        }
        if lines.iter().any(|line| line == "::clean") { Ok(()) } else { Err(self.unfinished("clean", host, &lines)) }
    }

    fn unfinished(&self, what: &str, host: &Key, lines: &[String]) -> Error {
        let left: Vec<String> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("::left "))
            .map(|left| format!("{left} on {}", host.display_name()))
            .collect();
        let words = lines.iter().filter(|line| !line.starts_with("::")).map(String::as_str).collect::<Vec<_>>();
        let mut error =
            Error::new(ErrorKind::LeftBehind, format!("{what} {}", host.display_name())).because("it did not finish");
        if !words.is_empty() {
            error = error.because(words[words.len().saturating_sub(12)..].join("\n"));
        }
        error.left(if left.is_empty() { LeftBehind::Unknown } else { LeftBehind::Remaining(left) })
    }
}
