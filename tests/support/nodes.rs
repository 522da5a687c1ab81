//! The running processes of a cluster, found without gpucl.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{TestEnv, tagged_processes};

/// A process that no other can be taken for: its number, and when it started.
pub(crate) type Process = (u32, String);

/// The nodes of a cluster by their keys, such as `worker0`.
#[track_caller]
pub(crate) fn nodes(env: &TestEnv, cluster: &str) -> BTreeMap<String, Process> {
    let mut found = BTreeMap::new();
    for (pid, command) in tagged_processes(env) {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environ = String::from_utf8_lossy(&environ).into_owned();
        let tag = environ.split('\0').find_map(|line| line.strip_prefix("GPUCL_TAG=gpucl-")).unwrap_or_default();
        // The owner has eight characters, the key no hyphen.
        let (Some(rest), true) = (tag.get(9..), command.contains("/reaper.py run ")) else { continue };
        if let Some((_, key)) = rest.rsplit_once('-').filter(|(name, _)| *name == cluster) {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let started = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19)).unwrap_or_default();
            let before = found.insert(key.to_owned(), (pid, started.to_owned()));
            assert_eq!(before, None, "two processes are the node {key} of {cluster}");
        }
    }
    found
}

/// The first ports of the blocks that a cluster's nodes have.
pub(crate) fn port_blocks(env: &TestEnv, cluster: &str) -> Vec<u16> {
    let path = env.home().join(format!(".local/state/gpucl/clusters/{cluster}/snapshot.json"));
    let snapshot: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let items = snapshot["state"]["items"].as_object().unwrap();
    let blocks = items["host0"]["notes"]["ports"]["blocks"].as_object().unwrap();
    let bases: Vec<u16> = blocks.values().map(|base| base.as_u64().unwrap().try_into().unwrap()).collect();
    assert!(!bases.is_empty(), "the snapshot knows no ports");
    bases
}

/// The name of the session of the head's Ray: it changes whenever Ray is started.
pub(crate) fn ray_session(env: &TestEnv, cluster: &str) -> PathBuf {
    let hosts = env.home().join(".local/share/gpucl/hosts");
    let host = std::fs::read_dir(hosts)
        .unwrap()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().ends_with(&format!("-{cluster}-host0")))
        .unwrap();
    std::fs::read_link(host.path().join("ray/h/session_latest")).unwrap()
}
