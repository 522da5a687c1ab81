//! The notes of an item: what the journal records beyond its existence, by the kind of the item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::item::ItemKind;
use crate::name::Key;
use crate::playbook::Facts;
use crate::provider::platform::NodeGroup;
use crate::provider::{GpuOffer, HostPlace};
use crate::spec::NodeSpec;

/// The notes of an item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Notes {
    /// No notes: a key pair, an address, rules.
    #[default]
    None,
    /// Notes of a host.
    Host(Box<HostNotes>),
    /// Notes of a project.
    Project(Box<ProjectNotes>),
    /// Notes of what runs a cluster on a platform.
    Platform(Box<PlatformNotes>),
    /// Notes of a standalone lease.
    Lease(Box<LeaseNotes>),
}

impl Notes {
    /// The empty notes of a new item.
    pub(super) fn of(key: &Key, kind: &ItemKind) -> Self {
        match kind {
            ItemKind::Project => Self::Project(Box::default()),
            ItemKind::Resource(_) if key.is_host() => Self::Host(Box::default()),
            ItemKind::Resource(_) => Self::None,
        }
    }

    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// The notes of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostNotes {
    /// How to run commands on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<HostPlace>,
    /// The address at which the cluster's other hosts reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The facts collected when it was prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
    /// The ports of its nodes and services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<HostPorts>,
    /// The GPUs that its provider promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised: Option<Vec<GpuOffer>>,
    /// When its reservation ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The folder of Ray's environment on the host, with the native runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_env: Option<PathBuf>,
}

/// The notes of a project.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProjectNotes {
    /// The ports of the pages on the user's machine; only in the project of the first host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<Pages>,
    /// The nodes of its last deployment.
    pub nodes: Vec<NodeSpec>,
    /// The digest of the `setup` that they were started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Whether they were ended by `stop`.
    pub stopped: bool,
    /// The workers that were stopped by hand, and not started since.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub stopped_by_hand: BTreeSet<Key>,
}

/// The notes of what runs a cluster on a platform.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlatformNotes {
    /// The groups of nodes that were last asked for, the head first.
    pub groups: Vec<NodeGroup>,
    /// Whether its nodes were ended by `stop`.
    pub stopped: bool,
    /// The ports of its pages on the user's machine.
    pub pages: Pages,
}

/// The notes of a standalone lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseNotes {
    /// Where the lease is.
    pub source: LeaseSource,
    /// The requested name.
    pub name: String,
    /// When the lease ends.
    pub end: Timestamp,
    /// The digest of the request: an equal request has the same digest.
    pub asked: String,
}

/// The provider and place of a lease, needed to recover a call that was left open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSource {
    /// The provider's name.
    pub provider: String,
    /// The settings that the provider was opened with.
    pub settings: serde_json::Value,
    /// The site that was chosen.
    #[serde(default)]
    pub place: String,
}

/// The ports of one host's nodes and services; 0 if the runtime does not have one, or not yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPorts {
    /// Ray's dashboard and job API.
    pub dashboard: u16,
    /// Ray's client server.
    pub client: u16,
    /// The object store's S3 interface.
    pub object_store: u16,
    /// The object store's console.
    pub console: u16,
    /// Prometheus' page.
    pub prometheus: u16,
    /// Grafana's page.
    pub grafana: u16,
    /// Jupyter's page.
    pub jupyter: u16,
    /// MLflow's page and API.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mlflow: u16,
    /// The applications of Serve.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub serve: u16,
    /// The first of the ports that Ray's nodes use on the host's network.
    pub ray: u16,
    /// The first port of each node's own block, if nodes have blocks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<Key, u16>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(port: &u16) -> bool {
    *port == 0
}

impl HostPorts {
    /// The ports that must be free before the first start, without those of Ray's nodes.
    pub fn all(&self) -> Vec<u16> {
        let of_ray = [self.dashboard, self.client, self.serve];
        let of_services = [self.object_store, self.console, self.prometheus, self.grafana, self.jupyter, self.mlflow];
        of_ray.into_iter().chain(of_services).filter(|port| *port != 0).collect()
    }
}

/// The ports of pages on the user's machine, by the page's name. They are chosen once per cluster, since Grafana's
/// must be known before the head starts.
pub type Pages = BTreeMap<String, u16>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Scope;
    use crate::state::{Paths, Record, Store};

    fn paths(folder: &std::path::Path) -> Paths {
        let of = |name: &str| folder.join(name);
        Paths { config: of("config"), state: of("state"), data: of("data"), cache: of("cache"), runtime: of("run") }
    }

    /// Writes a store with a host, which has ports and an end, and its project.
    fn written(paths: &Paths) -> Store {
        let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() };
        let mut store = Store::create(paths, &scope, Timestamp::now()).unwrap();
        let asked = |key: &Key, kind| Record::Requested { key: key.clone(), kind, digest: String::new() };
        let (host, project) = (Key::host(0), Key::project(0));
        store.write(asked(&host, ItemKind::Resource("instance".to_owned()))).unwrap();
        store.write(asked(&project, ItemKind::Project)).unwrap();
        let ports = HostPorts { ray: 6379, blocks: [(Key::head(), 23_900)].into(), ..HostPorts::default() };
        let until = Some("2026-11-23T10:00:00Z".parse().unwrap());
        let notes = HostNotes { ports: Some(ports), until, ..HostNotes::default() };
        store.write(Record::Noted { key: host, notes: Notes::Host(Box::new(notes)) }).unwrap();
        store
    }

    #[test]
    fn notes_outlive_the_command_and_a_second_request_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let paths = paths(folder.path());
        let mut store = written(&paths);
        let before = store.state().host(&Key::host(0)).unwrap().clone();
        let kind = ItemKind::Resource("instance".to_owned());
        store.write(Record::Requested { key: Key::host(0), kind, digest: "another".to_owned() }).unwrap();
        // From the journal, then from the snapshot.
        for _ in 0..2 {
            let name = store.state().name.clone();
            store = Store::open(&paths, &name).unwrap().unwrap();
            assert_eq!(store.state().host(&Key::host(0)), Some(&before));
            assert_eq!(store.state().project(&Key::project(0)), Some(&ProjectNotes::default()));
            assert_eq!(store.state().ends(), before.until);
            store.compact().unwrap();
        }
    }

    /// If unreadable notes were ignored, a running head would get new ports, and a lease would have no end.
    #[test]
    fn unreadable_notes_are_an_error_that_names_the_file() {
        for (file, is_snapshot) in [("journal-1.jsonl", false), ("snapshot.json", true)] {
            for (whole, broken) in
                [("6379", "\"6379\""), ("2026-11-23T10:00:00Z", "soon"), ("\"of\":\"host\"", "\"of\":\"horse\"")]
            {
                let folder = tempfile::tempdir().unwrap();
                let paths = paths(folder.path());
                let mut store = written(&paths);
                if is_snapshot {
                    store.compact().unwrap();
                }
                let name = store.state().name.clone();
                let path = paths.cluster(&name).join(file);
                let text = fs_err::read_to_string(&path).unwrap().replace("\": ", "\":");
                assert!(text.contains(whole), "{text}");
                fs_err::write(&path, text.replace(whole, broken)).unwrap();
                let error = Store::open(&paths, &name).unwrap_err().to_string();
                assert!(error.contains(file), "{error}");
            }
        }
    }
}
