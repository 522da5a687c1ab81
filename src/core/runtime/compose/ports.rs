//! The ports of a host's containers.

use crate::spec::NodeSpec;
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
    /// Chooses ports of a host: the usual ones where free, else the next free one from 20000 up.
    pub fn choose(taken: &BTreeSet<u16>) -> Self {
        let mut taken = taken.clone();
        let is_clear = |from: u16| (from..from + OWN).all(|port| !taken.contains(&port));
        let ray = RAY_FROM.into_iter().find(|from| is_clear(*from)).unwrap_or(RAY_FROM[0]);
        taken.extend(ray..ray + RAY_PORTS);
        let mut choose = |usual: u16| {
            let port = if taken.contains(&usual) {
                (OTHERS_FROM..=u16::MAX).find(|port| !taken.contains(port)).unwrap_or(usual)
            } else {
                usual
            };
            taken.insert(port);
            port
        };
        Self {
            dashboard: choose(8265),
            client: choose(10_001),
            object_store: choose(9000),
            console: choose(9001),
            prometheus: choose(9090),
            grafana: choose(3000),
            jupyter: choose(8888),
            mlflow: 0,
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
/// on the head's host the object store's and the Ray client's. Empty for a single host.
pub fn peer_ports(ports: &HostPorts, nodes: &[NodeSpec], is_head: bool, hosts: usize) -> Vec<(u16, u16)> {
    if hosts < 2 {
        return Vec::new();
    }
    let last = NodePorts::of(ports, nodes.len().max(1), nodes.len().max(1)).from;
    let mut ranges = vec![(ports.ray, last.saturating_sub(1).max(ports.ray + OWN))];
    if is_head {
        ranges.push((ports.object_store, ports.object_store));
        // Ray's client server listens on the node's address: nothing keeps it on the loopback.
        ranges.push((ports.client, ports.client));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_ports_are_taken_where_they_are_free() {
        let usual = HostPorts::choose(&BTreeSet::new());
        assert_eq!((usual.dashboard, usual.client, usual.grafana, usual.ray), (8265, 10_001, 3000, 11_000));
        let other = HostPorts::choose(&BTreeSet::from([8265, 3000, 20_000, 11_008]));
        assert_eq!((other.dashboard, other.client, other.ray), (20_001, 10_001, 21_000));
        assert_eq!(other.grafana, 20_002);
        let all: BTreeSet<u16> = other.all().into_iter().collect();
        assert_eq!(all.len(), 7);
    }

    #[test]
    fn nodes_of_one_host_share_no_port() {
        let ports = HostPorts::choose(&BTreeSet::new());
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
