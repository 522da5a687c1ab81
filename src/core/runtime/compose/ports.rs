//! The ports of a host's containers.

use crate::spec::{NodeSpec, Spec};
use crate::state::HostPorts;
use std::collections::{BTreeMap, BTreeSet};

/// The first port to try when a usual one is taken.
const OTHERS_FROM: u16 = 20_000;
/// The first of Ray's own ports on the host network, and the alternative.
const RAY_FROM: [u16; 2] = [11_000, 21_000];
/// How many ports the Ray nodes of one host share.
const RAY_PORTS: u16 = 9_000;
/// The most ports of one node.
const MOST_OF_NODE: u16 = 1_000;
/// How many of a node's ports have a fixed use; its workers' ports follow them.
const OWN: u16 = 10;

impl HostPorts {
    /// Chooses ports of a host: the usual ones where free, else the next free one from 20000 up. Those that are known
    /// are kept.
    pub fn choose(spec: &Spec, known: &Self, taken: &BTreeSet<u16>) -> Self {
        let mut taken = taken.clone();
        let is_clear = |from: u16| (from..from + OWN).all(|port| !taken.contains(&port));
        let ray = match known.ray {
            0 => RAY_FROM.into_iter().find(|from| is_clear(*from)).unwrap_or(RAY_FROM[0]),
            ray => ray,
        };
        taken.extend(ray..ray + RAY_PORTS);
        taken.extend(known.all());
        let mut choose = |known: u16, usual: u16| {
            if known != 0 {
                return known;
            }
            let port = if taken.contains(&usual) {
                (OTHERS_FROM..=u16::MAX).find(|port| !taken.contains(port)).unwrap_or(usual)
            } else {
                usual
            };
            taken.insert(port);
            port
        };
        Self {
            dashboard: choose(known.dashboard, 8265),
            client: choose(known.client, 10_001),
            object_store: choose(known.object_store, 9000),
            console: choose(known.console, 9001),
            prometheus: choose(known.prometheus, 9090),
            grafana: choose(known.grafana, 3000),
            jupyter: choose(known.jupyter, 8888),
            serve: choose(known.serve, 8000),
            // Rare, and open to the other hosts of the cluster.
            mlflow: if spec.own_mlflow() { choose(known.mlflow, 5000) } else { 0 },
            ray,
            blocks: BTreeMap::new(),
        }
    }

    /// The port of the head's GCS on the host network.
    pub(super) fn gcs(&self) -> u16 {
        self.ray + 8
    }

    /// The port of the node exporter on the host network.
    pub(super) fn exporter(&self) -> u16 {
        self.ray + 9
    }
}

/// The ports of one node on the host network, which the nodes of a host share.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodePorts {
    from: u16,
    count: u16,
}

impl NodePorts {
    /// The ports of the `index`-th of `count` nodes of a host.
    pub(super) fn of(ports: &HostPorts, index: usize, count: usize) -> Self {
        let each = (RAY_PORTS / u16::try_from(count.max(1)).unwrap_or(u16::MAX)).clamp(2 * OWN, MOST_OF_NODE);
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        Self { from: ports.ray.saturating_add(index.saturating_mul(each)), count: each }
    }

    /// The flags of `ray start` for them, without those only for the head.
    pub(super) fn flags(self) -> Vec<(&'static str, u16)> {
        vec![
            ("node-manager-port", self.from),
            ("object-manager-port", self.from + 1),
            ("metrics-export-port", self.metrics()),
            ("dashboard-agent-listen-port", self.agent()),
            ("dashboard-agent-grpc-port", self.from + 4),
            ("runtime-env-agent-port", self.from + 5),
            ("min-worker-port", self.from + OWN),
            ("max-worker-port", self.from + self.count - 1),
        ]
    }

    /// The port of the node's metrics.
    pub(super) fn metrics(self) -> u16 {
        self.from + 2
    }

    /// The port of the node's agent.
    pub(super) fn agent(self) -> u16 {
        self.from + 3
    }

    /// The port of the head's autoscaler metrics.
    pub(super) fn autoscaler_metrics(self) -> u16 {
        self.from + 6
    }

    /// The port of the head's dashboard metrics.
    pub(super) fn dashboard_metrics(self) -> u16 {
        self.from + 7
    }
}

/// The ports of a host that must be open to its peers, and to nobody else, as ranges: Ray's, the node exporter's, and
/// on the head's host those of the object store, of MLflow and of the Ray client. Empty for a single host.
pub fn peer_ports(ports: &HostPorts, nodes: &[NodeSpec], is_head: bool, hosts: usize) -> Vec<(u16, u16)> {
    if hosts < 2 {
        return Vec::new();
    }
    let last = NodePorts::of(ports, nodes.len().max(1), nodes.len().max(1)).from;
    let mut ranges = vec![(ports.ray, last.saturating_sub(1).max(ports.ray + OWN))];
    if is_head {
        ranges.push((ports.object_store, ports.object_store));
        if ports.mlflow != 0 {
            ranges.push((ports.mlflow, ports.mlflow));
        }
        // Ray's client server listens on the node's address: nothing keeps it on the loopback.
        ranges.push((ports.client, ports.client));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(more: &str, known: &HostPorts, taken: &[u16]) -> HostPorts {
        let spec = serde_yaml::from_str(&format!("name: demo\nruntime: docker\n{more}")).unwrap();
        HostPorts::choose(&spec, known, &taken.iter().copied().collect())
    }

    #[test]
    fn usual_ports_are_taken_where_they_are_free() {
        let none = HostPorts::default();
        let usual = choose("", &none, &[]);
        assert_eq!((usual.dashboard, usual.client, usual.grafana, usual.ray), (8265, 10_001, 3000, 11_000));
        let other = choose("", &none, &[8265, 3000, 20_000, 11_008]);
        assert_eq!((other.dashboard, other.client, other.ray), (20_001, 10_001, 21_000));
        assert_eq!(other.grafana, 20_002);
        let all: BTreeSet<u16> = other.all().into_iter().collect();
        assert_eq!(all.len(), 8);
    }

    #[test]
    fn known_ports_are_kept_and_missing_ones_are_added() {
        let before = HostPorts { serve: 0, ..choose("", &HostPorts::default(), &[8265]) };
        assert_eq!(before.mlflow, 0, "nobody else's port is kept for it");
        // All that runs by now is taken, our own ports too.
        let taken = [before.all(), vec![5000, 11_000]].concat();
        let now = choose("services: {mlflow: true}", &before, &taken);
        assert_eq!(HostPorts { serve: 0, mlflow: 0, ..now.clone() }, before);
        assert_eq!((now.serve, now.mlflow), (8000, 20_001));
        assert_eq!(choose("services: {mlflow: true}", &now, &taken), now);
        assert_eq!(choose("", &now, &taken), HostPorts { mlflow: 0, ..now.clone() });
        let nodes: [NodeSpec; 0] = [];
        let opened = |ports: &HostPorts| peer_ports(ports, &nodes, true, 2).contains(&(20_001, 20_001));
        assert!(opened(&now) && !opened(&before));
    }

    #[test]
    fn nodes_of_one_host_share_no_port() {
        let ports = choose("", &HostPorts::default(), &[]);
        for count in [1, 3, 17, 200] {
            let mut last = ports.ray - 1;
            for index in 0..count {
                let of = NodePorts::of(&ports, index, count);
                let flags = of.flags();
                assert!(flags[0].1 > last && flags[7].1 > flags[6].1, "{count} {index}");
                last = flags[7].1;
            }
            assert!(last < ports.ray + RAY_PORTS, "{count}");
        }
    }
}
