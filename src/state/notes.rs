//! What is remembered of an item, beside that it is there: a record for each kind of item that has one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ItemKind;
use crate::name::Key;
use crate::playbook::Facts;
use crate::provider::{GpuOffer, HostPlace};
use crate::spec::NodeSpec;

/// What is remembered of an item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Notes {
    /// Nothing: a key, an address, rules.
    #[default]
    None,
    /// Of a host.
    Host(Box<HostNotes>),
    /// Of what runs on a host.
    Project(Box<ProjectNotes>),
    /// Of a lease that belongs to no cluster.
    Lease(Box<LeaseNotes>),
}

impl Notes {
    /// Those of an item of which nothing is known yet.
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

/// What is remembered of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostNotes {
    /// How commands are run on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<HostPlace>,
    /// The address that the cluster's other hosts reach it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What it told of itself when it was prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
    /// The ports of what runs there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<HostPorts>,
    /// The GPUs that its provider promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised: Option<Vec<GpuOffer>>,
    /// When it is taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The folder of Ray's environment there, where nodes are processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_env: Option<PathBuf>,
}

/// What is remembered of what runs on a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProjectNotes {
    /// The ports of the pages on the user's machine. The first host's alone has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<Pages>,
    /// The nodes that were last started there.
    pub nodes: Vec<NodeSpec>,
    /// They were ended by `stop`.
    pub stopped: bool,
}

/// What is remembered of a lease that belongs to no cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseNotes {
    /// Where it is.
    pub source: LeaseSource,
    /// Its name, as it was asked for.
    pub name: String,
    /// When it ends.
    pub end: Timestamp,
    /// The digest of the words that it was asked for with: the same words again are the same ask.
    pub asked: String,
}

/// Where a lease is, so that what was left open is asked for at the right place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSource {
    /// The provider's name.
    pub provider: String,
    /// The settings that it was opened with.
    pub settings: serde_json::Value,
    /// The site that was found for them.
    #[serde(default)]
    pub place: String,
}

/// The ports of one host that what runs there is reached by. One that a runtime has not, or not yet, is 0.
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
    /// Prometheus.
    pub prometheus: u16,
    /// Grafana.
    pub grafana: u16,
    /// Jupyter.
    pub jupyter: u16,
    /// The first of those that Ray's nodes take where they are on the host's network.
    pub ray: u16,
    /// The first port of each node's own block, where nodes have blocks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<Key, u16>,
}

impl HostPorts {
    /// The ports that may be used on a host: what must be free before its first start.
    pub fn all(&self) -> Vec<u16> {
        let all =
            [self.dashboard, self.client, self.object_store, self.console, self.prometheus, self.grafana, self.jupyter];
        all.into_iter().filter(|port| *port != 0).collect()
    }
}

/// The ports on the user's machine under which pages are shown: chosen once per cluster, since Grafana's must be known
/// before the head starts. By the page's name.
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

    /// A host with ports and a lease that ends, and what runs on it, in a store on the disk.
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
    fn notes_outlive_the_command_and_a_host_that_is_asked_for_anew() {
        let folder = tempfile::tempdir().unwrap();
        let paths = paths(folder.path());
        let mut store = written(&paths);
        let before = store.state().host(&Key::host(0)).unwrap().clone();
        let kind = ItemKind::Resource("instance".to_owned());
        store.write(Record::Requested { key: Key::host(0), kind, digest: "another".to_owned() }).unwrap();
        // By the journal, and by the snapshot.
        for _ in 0..2 {
            let name = store.state().name.clone();
            store = Store::open(&paths, &name).unwrap().unwrap();
            assert_eq!(store.state().host(&Key::host(0)), Some(&before));
            assert_eq!(store.state().project(&Key::project(0)), Some(&ProjectNotes::default()));
            assert_eq!(store.state().ends(), before.until);
            store.compact().unwrap();
        }
    }

    /// Taken for none, ports would be chosen anew under a head that listens, and a lease would seem to have no end.
    #[test]
    fn what_cannot_be_read_is_an_error_that_names_its_file() {
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
