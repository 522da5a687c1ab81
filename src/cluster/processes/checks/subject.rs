//! What is verified, and how it is reached.

use std::path::{Path, PathBuf};

use crate::cluster::processes::world::HostWorld;
use crate::cluster::{Opened, Settings};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Bus, CheckOutcome, Endpoint, EventKind};
use crate::name::{Key, Scope};
use crate::plan::NodeSpec;
use crate::ray::{Access, Client};
use crate::runtime::native::{NodePorts, Prepared};
use crate::spec::Spec;
use crate::state::ClusterState;

/// A cluster to be verified.
pub(crate) struct Subject<'a> {
    pub(super) scope: Scope,
    pub(super) known: ClusterState,
    pub(super) spec: &'a Spec,
    pub(super) nodes: &'a [NodeSpec],
    pub(super) world: &'a HostWorld,
    pub(super) client: Client,
    pub(super) events: &'a Bus,
    access: Access,
}

impl<'a> Subject<'a> {
    /// Takes what is known of a cluster.
    ///
    /// # Errors
    /// When the cluster does not run.
    pub(crate) fn new(
        settings: &'a Settings,
        opened: &'a Opened,
        spec: &'a Spec,
        nodes: &'a [NodeSpec],
    ) -> Result<Self> {
        let known = opened.ledger.state();
        let folder = opened.ledger.folder();
        let access = access_of(&known, &folder).ok_or_else(|| not_running(&known))?;
        let token = crate::secret::ray_token(&folder)?.ok_or_else(|| not_running(&known))?;
        Ok(Self {
            scope: known.scope(),
            client: Client::new(access.dashboard_url.clone(), token),
            known,
            spec,
            nodes,
            world: &opened.world,
            events: &settings.events,
            access,
        })
    }

    /// The ways in.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// The ports of a node.
    pub(super) fn ports(&self, key: &Key) -> Option<NodePorts> {
        self.known.note(key, "ports")
    }

    /// Tells how a check ended.
    pub(super) fn tell(
        &self,
        check: &str,
        target: &str,
        outcome: CheckOutcome,
        saw: impl Into<String>,
    ) -> CheckOutcome {
        self.events.send(EventKind::Check {
            check: check.to_owned(),
            target: target.to_owned(),
            outcome,
            saw: saw.into(),
        });
        outcome
    }
}

fn not_running(known: &ClusterState) -> Error {
    Error::new(ErrorKind::NotReady, format!("verify the cluster {}", known.name)).because("it does not run").hint(
        known.spec_path.as_ref().map_or_else(|| "gpucl up cluster.yaml".to_owned(), |path| format!("gpucl up {path}")),
    )
}

/// The ways into a cluster, by what is known of it; `None` when it has no head.
pub(crate) fn access_of(known: &ClusterState, folder: &Path) -> Option<Access> {
    let head = Key::head();
    let ports: NodePorts = known.note(&head, "ports")?;
    known.items.get(&head)?.id.as_ref()?;
    let node: NodeSpec = known.note(&head, "node")?;
    let prepared: Option<Prepared> = known.note(&node.host, "prepared");
    Some(Access {
        dashboard_url: format!("http://127.0.0.1:{}", ports.dashboard),
        gcs_address: format!("127.0.0.1:{}", ports.gcs()),
        token_path: crate::secret::ray_token_path(folder),
        environment: prepared.map(|prepared: Prepared| -> PathBuf { prepared.ray_env }),
        client_address: format!("ray://127.0.0.1:{}", ports.client()),
    })
}

/// The addresses that answer, for the summary.
pub(crate) fn endpoints(access: &Access) -> Vec<Endpoint> {
    let endpoint = |name: &str, url: &str| Endpoint { name: name.to_owned(), url: url.to_owned() };
    vec![endpoint("dashboard", &access.dashboard_url), endpoint("client", &access.client_address)]
}
