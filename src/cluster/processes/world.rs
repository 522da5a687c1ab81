//! The real world of a cluster whose provider hands over hosts, with nodes in the native runtime.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::agent::{AgentClient, AgentStart, Request};
use crate::engine::{Cancel, Ledger, Urgency, World};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::Bus;
use crate::host::LocalHost;
use crate::name::{Key, Scope};
use crate::plan::{Action, NodeSpec, Observed, Operation};
use crate::playbook::{self, Stage};
use crate::provider::{HostPlace, Provider, Recorder as _};
use crate::runtime::native::{self, ClusterProcesses, HeadAddress, Layout, NodePorts, Prepared, Record, Sight};
use crate::state::{ClusterState, ItemKind};
use crate::util::fs::write_atomic;

/// What the world needs to know.
pub struct HostWorldConfig {
    /// Whose and which cluster.
    pub scope: Scope,
    /// Where its hosts come from.
    pub provider: Box<dyn Provider>,
    /// A short folder for sockets.
    pub runtime_dir: PathBuf,
    /// How to start an agent.
    pub agent: AgentStart,
    /// What hosts are prepared by; absent where nothing is to be prepared (`down`).
    pub stage: Option<Stage>,
    /// How long a node may take to end by itself.
    pub stop_grace: Duration,
    /// The processes of the cluster on this machine.
    pub processes: ClusterProcesses,
    /// Who is told.
    pub events: Bus,
    /// Whether to go on.
    pub cancel: Cancel,
}

/// Hosts, agent and nodes for real.
pub struct HostWorld {
    config: HostWorldConfig,
    agent: AgentClient,
    /// The nodes of which something may have been missed.
    missed: Mutex<BTreeSet<Key>>,
}

impl HostWorld {
    /// Makes it; nothing is touched.
    pub fn new(config: HostWorldConfig) -> Self {
        let agent = AgentClient::new(&config.runtime_dir, &config.scope);
        Self { config, agent, missed: Mutex::default() }
    }

    /// The nodes of which something may run on unseen, since their reapers and the agent were killed.
    pub fn missed(&self) -> Vec<Key> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn note_missed(&self, keys: impl IntoIterator<Item = Key>) {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
    }

    /// The cluster's agent.
    pub fn agent(&self) -> &AgentClient {
        &self.agent
    }

    /// A host of the cluster and its layout.
    pub async fn host(&self, key: &Key, id: &str) -> Result<(LocalHost, Layout)> {
        let tag = self.config.scope.tag(key);
        let HostPlace::Local { folder } = self.config.provider.place(&tag, id).await? else {
            return Err(Error::new(ErrorKind::Unsupported, format!("use the host {}", key.display_name()))
                .because("this runtime runs on this machine only"));
        };
        let layout = Layout::new(&folder, &tag, &self.config.runtime_dir);
        Ok((LocalHost::new(key.display_name(), folder)?, layout))
    }

    async fn known_host(&self, key: &Key, known: &ClusterState) -> Result<(LocalHost, Layout)> {
        let id = known.items.get(key).and_then(|item| item.id.clone()).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("find the host {key}")).because("the journal has no id of it")
        })?;
        self.host(key, &id).await
    }

    fn claims(&self) -> PathBuf {
        self.config.runtime_dir.join("ports")
    }

    async fn prepare(&self, key: &Key, ledger: &Ledger) -> Result<()> {
        let (host, layout) = self.known_host(key, &ledger.state()).await?;
        let stage = self.config.stage.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("prepare {key}")).because("there is nothing to prepare it for")
        })?;
        let stop = self.config.cancel.at_least(Urgency::Now);
        let report = playbook::run_stage(&host, stage, &self.config.events, stop).await?;
        ledger.note(key, "prepared", &Prepared::of(stage, &report, &layout))?;
        ledger.note(key, "gpus", &report.facts.gpus.iter().filter_map(|gpu| gpu.uuid.clone()).collect::<Vec<_>>())
    }

    async fn start_node(&self, node: &NodeSpec, ledger: &Ledger) -> Result<()> {
        let known = ledger.state();
        let doing = || format!("start {}", node.key.display_name());
        let (_, layout) = self.known_host(&node.host, &known).await?;
        let missing =
            |what: &str| Error::new(ErrorKind::Internal, doing()).because(format!("the journal has no {what}"));
        let prepared: Prepared = known.note(&node.host, "prepared").ok_or_else(|| missing("prepared host"))?;
        layout.create(&node.key)?;
        let before: Option<NodePorts> = known.note(&node.key, "ports");
        let ports = native::allocate(&self.claims(), &self.config.scope, &node.key, before, node.dashboard_port)?;
        ledger.note(&node.key, "ports", &ports)?;
        ledger.note(&node.key, "node", node)?;
        let head: NodePorts = match node.role {
            crate::plan::NodeRole::Head => ports,
            crate::plan::NodeRole::Worker => {
                known.note(&Key::head(), "ports").ok_or_else(|| missing("ports of the head"))?
            }
        };
        let gpus = owned_gpus(node, &known)?;
        let head = HeadAddress { gcs: head.gcs() };
        let launch = native::launch(&self.config.scope, node, &layout, &prepared.ray_env, ports, head, &gpus);
        let text = serde_json::to_vec_pretty(&launch).doing(ErrorKind::Internal, doing)?;
        write_atomic(&layout.launch_file(&node.key), &text, 0o600).doing(ErrorKind::Host, doing)?;
        // What an earlier node of this name printed must not be taken for what this one prints.
        let _ = fs_err::rename(layout.log(&node.key), layout.log(&node.key).with_extension("log.old"));
        let answer = self.agent.ask(&Request::Start { launch: Box::new(launch) }).await?;
        let id = answer.and_then(|answer| answer.id).ok_or_else(|| {
            Error::new(ErrorKind::Host, doing())
                .because("the cluster's agent does not run")
                .hint(format!("`gpucl up` starts it again; its log is {}", self.config.agent.log.display()))
        })?;
        ledger.exists(&node.key, &id).await
    }

    async fn stop_node(&self, key: &Key) -> Result<()> {
        let scope = &self.config.scope;
        // Else the agent would start it again. Without an agent nobody does.
        let _ = self.agent.ask(&Request::LetGo { key: key.clone() }).await;
        if native::end_processes(&self.config.processes, key, self.config.stop_grace).await? == Sight::Partial {
            self.note_missed([key.clone()]);
        }
        let tag = scope.tag(key).to_string();
        native::release_ports(&self.claims(), |holder| holder == tag);
        for resource in self.config.provider.observe(scope).await?.iter().filter(|resource| resource.usable) {
            let Ok((_, layout)) = self.host(&resource.key, &resource.id).await else { continue };
            let doing = || format!("remove the files of {}", key.display_name());
            crate::util::fs::remove_tree(&layout.real_temp_dir(key)).doing(ErrorKind::Host, doing)?;
            match fs_err::remove_file(layout.launch_file(key)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).doing(ErrorKind::Host, doing);
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn stop_agent(&self) -> Result<()> {
        let _ = self.agent.ask(&Request::End).await;
        let begin = std::time::Instant::now();
        let processes = &self.config.processes;
        while begin.elapsed() < Duration::from_secs(2) && !processes.of(&Key::agent()).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        native::end_processes(processes, &Key::agent(), Duration::from_secs(2)).await?;
        self.agent.remove_socket();
        Ok(())
    }
}

/// The GPUs that a node owns, by their UUID, never by their number.
fn owned_gpus(node: &NodeSpec, known: &ClusterState) -> Result<Vec<String>> {
    let Some(first) = node.first_gpu else { return Ok(Vec::new()) };
    let uuids: Vec<String> = known.note(&node.host, "gpus").unwrap_or_default();
    let range = first as usize..(first + node.gpus) as usize;
    uuids.get(range).map(<[String]>::to_vec).ok_or_else(|| {
        Error::new(ErrorKind::Host, format!("give {} its {} GPUs", node.key.display_name(), node.gpus))
            .because(format!("the host's driver shows {}", crate::util::human::count(uuids.len(), "GPU")))
            .hint("`nvidia-smi -L` shows what the driver sees; for logical GPUs say `gpu: declared` in the spec")
    })
}

#[async_trait]
impl World for HostWorld {
    async fn observe(&self, known: &ClusterState) -> Result<Observed> {
        let scope = &self.config.scope;
        let resources = self.config.provider.observe(scope).await?;
        let (agents, nodes) = self.config.processes.observe();
        let mut observed = Observed { resources, agents, nodes, ..Observed::default() };
        for resource in observed.resources.iter().filter(|resource| resource.usable) {
            if let Some(prepared) = known.note::<Prepared>(&resource.key, "prepared") {
                let (host, _) = self.host(&resource.key, &resource.id).await?;
                if native::is_prepared(&host, &prepared).await? {
                    observed.prepared.insert(resource.key.clone(), prepared.digest);
                }
            }
        }
        // An agent that does not answer is as good as none, but must be ended before another can begin.
        if let [agent] = observed.agents.as_mut_slice()
            && !matches!(self.agent.ask(&Request::Status).await, Ok(Some(_)))
        {
            agent.health = crate::plan::Health::Broken("it does not answer".to_owned());
        }
        Ok(observed)
    }

    async fn perform(&self, operation: &Operation, ledger: &Ledger) -> Result<()> {
        let key = &operation.key;
        match &operation.action {
            Action::Acquire { request } => {
                let tag = self.config.scope.tag(key);
                let acquired = self.config.provider.acquire(&tag, request, ledger).await?;
                // The provider has written it down; a provider that did not would fail the conformance suite.
                ledger.exists(key, &acquired.id).await
            }
            Action::Await { request, id } => {
                self.config.provider.wait_usable(&self.config.scope.tag(key), request, id).await
            }
            Action::Prepare { .. } => self.prepare(key, ledger).await,
            Action::StartAgent => {
                let identity = self.agent.start(&self.config.agent).await?;
                ledger.exists(key, &identity.to_string()).await
            }
            Action::StartNode { node } => self.start_node(node, ledger).await,
            Action::StopNode => self.stop_node(key).await,
            Action::StopAgent => self.stop_agent().await,
            Action::Guard { .. } | Action::Deploy { .. } | Action::StopProject { .. } | Action::Clean { .. } => {
                Err(Error::new(ErrorKind::Internal, operation.action.name())
                    .because("the native runtime has no projects"))
            }
            Action::Release { resource } => {
                if let Ok((host, layout)) = self.host(key, &resource.id).await {
                    playbook::end_program(&host).await?;
                    host.end_abandoned().await?;
                    layout.remove_link()?;
                    // They go with the folder.
                    let lost = Record::of_host(layout.home()).into_iter().filter(|(_, record)| record.is_lost());
                    self.note_missed(lost.map(|(key, _)| key));
                }
                self.config.provider.release(&self.config.scope, resource).await?;
                let scope = &self.config.scope;
                native::release_ports(&self.claims(), |tag| tag.parse().is_ok_and(|tag| scope.holds(&tag)));
                Ok(())
            }
        }
    }

    fn settle(&self) -> Duration {
        self.config.provider.capability().settle
    }
}

/// Says whether an item that the journal knows runs still.
pub(crate) fn is_running(known: &ClusterState, key: &Key) -> bool {
    known
        .items
        .get(key)
        .filter(|item| matches!(item.kind, ItemKind::Node | ItemKind::Agent))
        .and_then(|item| item.id.as_deref()?.parse::<crate::util::process::Identity>().ok())
        .is_some_and(|identity| identity.is_alive())
}
