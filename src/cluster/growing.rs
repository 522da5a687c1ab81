//! What Ray's autoscaler may add to a cluster.

use crate::provider::platform::NodeGroup;
use crate::ray::{Amounts, Growing};
use crate::state::ClusterState;

/// The groups that Ray's autoscaler may add nodes to.
pub fn growing(state: &ClusterState) -> Vec<Growing> {
    let groups = state.platform().into_iter().flat_map(|platform| &platform.groups).filter(|group| group.scales());
    let node = |group: &NodeGroup| {
        let mut node: Amounts = group.resources.clone();
        node.insert("CPU".to_owned(), f64::from(group.cpus.unwrap_or(1)));
        node.insert("GPU".to_owned(), f64::from(group.gpus));
        // At most: a part of it is Ray's own. Where the spec does not say, nothing is too much.
        node.insert("memory".to_owned(), group.memory.map_or(f64::MAX, |memory| memory as f64));
        Growing { name: group.name.clone(), node, labels: group.labels.clone(), max: group.max }
    };
    groups.map(node).collect()
}
