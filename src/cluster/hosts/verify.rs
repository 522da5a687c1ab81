//! Decides whether a cluster is ready: by the checks on all hosts, and by what answers from outside.

use std::collections::BTreeSet;

use super::layout::project_of;
use super::on_hosts::OnHosts;
use super::outside;
use super::promise::promises;
use crate::cluster::checks::Checks;
use crate::cluster::outcome::Verified;
use crate::error::Result;
use crate::event::{CheckOutcome, WorkerGpus};
use crate::name::Key;
use crate::runtime::project::CheckLine;
use crate::spec::{NodeRole, NodeSpec};
use crate::state::ClusterState;
use crate::util::human;

/// Reports the result of every check, and decides whether the cluster is ready.
///
/// # Errors
/// [`ErrorKind::NotReady`] when a check failed, or did not run at all.
pub(super) async fn judge(on: &OnHosts, known: &ClusterState) -> Result<Verified> {
    let mut checks = Checks::new(&on.events);
    let by_hand = known.stopped_by_hand();
    for worker in &by_hand {
        let name = worker.display_name();
        let saw = format!("stopped by hand, and left out; it comes back with: gpucl worker start {name}");
        checks.report("worker", &name, CheckOutcome::Noted, saw);
    }
    let mut gpus = Vec::new();
    let mut owned_gpus = Vec::new();
    // A worker's GPU may be proven from another host: where the head runs.
    let everywhere: Vec<CheckLine> = on.hosts().iter().flat_map(|host| on.fleet.checks(host)).collect();
    let started = known.started_nodes();
    let host_of = |line: &CheckLine, host: &Key| {
        let node = started.iter().find(|node| node.key.display_name() == line.target);
        node.map_or_else(|| host.clone(), |node| node.host.clone())
    };
    let mut is_complete = true;
    for host in on.hosts() {
        let mut lines = on.fleet.checks(host);
        checks.lines(&mut lines);
        gpus.extend(lines.iter().filter_map(|line| worker_gpus(&host_of(line, host), line)));
        owned_gpus.extend(owned(&lines));
        if lines.is_empty() {
            is_complete = false;
            let why = on.supply.why_gone(known, host).unwrap_or_else(|| {
                let is_deployed = known.items.contains_key(&project_of(host));
                let why = if is_deployed {
                    "what runs there is not what was last deployed"
                } else {
                    "nothing of the cluster runs there"
                };
                why.to_owned()
            });
            checks.report("checks", &host.display_name(), CheckOutcome::Failed, why);
        }
    }
    if is_complete {
        checks.complete(expected(&by_hand, &started), &everywhere);
    }
    checks.distinct(owned_gpus);
    let logical = |node: &&NodeSpec| node.role == NodeRole::Worker && node.gpus > 0 && node.first_gpu.is_none();
    for node in started.iter().filter(logical) {
        let saw = format!("{} declared, not seen", human::count(node.gpus as usize, "logical GPU"));
        checks.report("gpu", &node.key.display_name(), CheckOutcome::Declared, saw);
    }
    let mut broken = Vec::new();
    for compared in promises(&on.layout(known), known) {
        let host = compared.host.display_name();
        if compared.outcome == CheckOutcome::Failed {
            broken.push(format!("{host} is not what was promised: {}", compared.saw));
        }
        checks.report("promised GPUs", &host, compared.outcome, compared.saw);
    }
    for result in outside::run(&on.fleet, on.runtime(), known).await {
        checks.report("closed", &result.host.display_name(), result.outcome, result.saw);
    }
    checks.finish(&known.name, gpus, &broken)
}

/// The result of a worker's GPU check, for display.
fn worker_gpus(host: &Key, line: &CheckLine) -> Option<WorkerGpus> {
    let (product, proof) = (line.product.clone()?, line.proof.clone()?);
    let host = host.display_name();
    // A PCI address is unique on its host only, so the check prefixed it with the host.
    let own = |gpu: &String| gpu.strip_prefix(&format!("{host}/")).unwrap_or(gpu).to_owned();
    let gpus = line.gpus.iter().map(own).collect();
    Some(WorkerGpus { gpus, host, worker: line.target.clone(), product, proof })
}

/// Pairs of a worker and a GPU it sees. GPUs listed by the host itself do not count.
fn owned(lines: &[CheckLine]) -> Vec<(String, String)> {
    let workers = lines.iter().filter(|line| line.check == "gpu" && line.target.starts_with("worker"));
    workers.flat_map(|line| line.gpus.iter().map(|gpu| (line.target.clone(), gpu.clone()))).collect()
}

/// The checks that nodes cannot be ready without.
fn expected(by_hand: &BTreeSet<Key>, started: &[NodeSpec]) -> Vec<(&'static str, String)> {
    let mut expected = Vec::new();
    for node in started.iter().filter(|node| !by_hand.contains(&node.key)) {
        let mut expect = |check| expected.push((check, node.key.display_name()));
        expect("node alive");
        if node.role == NodeRole::Worker {
            expect("task ran");
        }
        if node.first_gpu.is_some() {
            expect("gpu");
        }
    }
    expected
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::event::{Bus, EventKind};

    #[test]
    fn gpus_that_the_host_lists_have_no_owner() {
        let lines = [line("gpu", "host-0", &["GPU-1", "GPU-2"]), line("gpu", "worker-0", &["GPU-1"])];
        assert_eq!(owned(&lines), [("worker-0".to_owned(), "GPU-1".to_owned())]);
    }

    /// A job can kill a program that checks its own container: what that printed before does not make a cluster ready.
    #[test]
    fn a_check_without_a_result_fails() {
        let node = |key: Key, role: NodeRole, first_gpu: Option<u32>| NodeSpec {
            key,
            role,
            host: Key::host(0),
            ray_version: String::new(),
            cpus: 1,
            gpus: u32::from(first_gpu.is_some()),
            first_gpu,
            memory: 0,
            object_store_memory: 0,
            resources: BTreeMap::new(),
            labels: BTreeMap::new(),
            environment: BTreeMap::new(),
            dashboard_port: None,
        };
        let nodes = [
            node(Key::head(), NodeRole::Head, None),
            node(Key::worker(0), NodeRole::Worker, Some(0)),
            node(Key::worker(1), NodeRole::Worker, None),
        ];
        let line = |check: &str, target: &str| line(check, target, &[]);
        let mut lines = vec![
            line("node alive", "head"),
            line("node alive", "worker-0"),
            line("task ran", "worker-0"),
            line("gpu", "worker-0"),
            line("node alive", "worker-1"),
            line("task ran", "worker-1"),
        ];
        let failed = |by_hand: &[Key], lines: &[CheckLine]| {
            let (events, mut inbox) = Bus::new();
            Checks::new(&events).complete(expected(&by_hand.iter().cloned().collect(), &nodes), lines);
            let mut failed = Vec::new();
            while let Ok(event) = inbox.try_recv() {
                if let EventKind::Check { check, target, outcome: CheckOutcome::Failed, .. } = event {
                    failed.push(format!("{check} {target}"));
                }
            }
            failed
        };
        assert_eq!(failed(&[], &lines), [""; 0]);
        for index in 0..lines.len() {
            let mut without = lines.clone();
            let gone = without.remove(index);
            assert_eq!(failed(&[], &without), [format!("{} {}", gone.check, gone.target)]);
        }
        assert_eq!(failed(&[Key::worker(1)], &lines[..4]), [""; 0], "a stopped worker has nothing to show");
        lines.truncate(1);
        lines[0].ok = false;
        assert_eq!(failed(&[], &lines), [""; 0], "what failed says more");
    }

    fn line(check: &str, target: &str, gpus: &[&str]) -> CheckLine {
        CheckLine {
            check: check.to_owned(),
            target: target.to_owned(),
            ok: true,
            saw: String::new(),
            gpus: gpus.iter().map(|gpu| (*gpu).to_owned()).collect(),
            product: None,
            proof: None,
        }
    }
}
