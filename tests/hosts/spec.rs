//! The specs of these tests: small nodes, the testbed's mirrors, the testbed's hosts.

use super::testbed::{TestHost, testbed};
use crate::support::{Outcome, TestEnv};

/// A cluster of these hosts, all services, one worker for each GPU; `more` is added to the spec.
pub(crate) fn spec(name: &str, hosts: &[&TestHost], more: &str) -> String {
    let testbed = testbed();
    let text = |key: &str| testbed[key].as_str().unwrap();
    let entries: String = hosts
        .iter()
        .map(|host| {
            format!(
                "  - {{node: {}, user: {}, identity_file: {}, host_key: \"{}\"}}\n",
                host.address(),
                host.user(),
                host.identity().display(),
                host.host_key()
            )
        })
        .collect();
    format!(
        "name: {name}\nprovider: ssh\nruntime: docker\nhosts:\n{entries}\
         ray:\n  head: {{object_store_memory: 100MiB, memory: 500MiB}}\n  \
         workers: {{per: gpu, cpus: 1, object_store_memory: 100MiB, memory: 500MiB}}\n\
         oversubscribe: true\n\
         playbooks:\n  docker: {{registry_mirror: \"{}\"}}\n  \
         nvidia: {{toolkit_repository: \"{}\", toolkit_key_url: \"{}\", toolkit_key_fingerprint: \"{}\"}}\n\
         timeouts: {{ready: 8m, start: 6m}}\n{more}",
        text("registry"),
        text("toolkit_repository"),
        text("toolkit_key_url"),
        text("toolkit_fingerprint"),
    )
}

/// An environment in which the testbed's images are the ones to use.
pub(crate) fn env() -> TestEnv {
    TestEnv::new()
}

/// Runs gpucl with the testbed's data.
pub(crate) fn gpucl(env: &TestEnv, arguments: &[&str]) -> Outcome {
    let data = testbed()["data_dir"].as_str().unwrap();
    env.run(&[&["--data-dir", data], arguments].concat())
}
