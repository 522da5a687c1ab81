//! The nodes of the cluster, as reported by Ray.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::client::Client;
use crate::error::{Error, ErrorKind, Result};

/// A Ray node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// Ray's id for the node, new after every restart.
    pub node_id: String,
    /// The node's IP address.
    pub address: String,
    /// It is the head node.
    pub is_head: bool,
    /// Its state is `ALIVE`.
    pub alive: bool,
    /// Ray's state: `ALIVE` or `DEAD`.
    pub state: String,
    /// Its total resources: `CPU`, `GPU`, `memory` in bytes, custom ones.
    pub resources: BTreeMap<String, f64>,
    /// Ray's node labels.
    pub labels: BTreeMap<String, String>,
    /// When it started, if Ray reports it.
    pub start_time: Option<jiff::Timestamp>,
}

/// The label with the node's name in the cluster, such as `worker-0`, set when it is started.
pub const NAME_LABEL: &str = "gpucl.dev/node";

impl Node {
    /// Its name in the cluster, such as `worker-0`; else its IP address.
    pub fn name(&self) -> &str {
        self.given_name().unwrap_or(&self.address)
    }

    /// Its name in the cluster, if gpucl started it.
    pub fn given_name(&self) -> Option<&str> {
        self.labels.get(NAME_LABEL).map(String::as_str)
    }
}

#[derive(Deserialize)]
struct Listing {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Rows,
}

#[derive(Deserialize)]
struct Rows {
    result: Vec<Row>,
    #[serde(default)]
    partial_failure_warning: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    node_id: String,
    #[serde(default)]
    node_ip: String,
    #[serde(default)]
    is_head_node: bool,
    state: String,
    // Null for a node that died early.
    #[serde(default)]
    resources_total: Option<BTreeMap<String, f64>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    start_time_ms: Option<i64>,
}

impl Client {
    /// Lists all nodes that Ray knows, dead ones included: the head first, then by id.
    ///
    /// # Errors
    /// If Ray does not answer, refuses the token, or returns only a part.
    pub async fn nodes(&self) -> Result<Vec<Node>> {
        let doing = "list Ray's nodes";
        let listing: Listing = self.read("/api/v0/nodes?detail=1&limit=10000", doing).await?;
        let rows = listing.data.result;
        if let Some(warning) = rows.partial_failure_warning.filter(|warning| !warning.trim().is_empty()) {
            return Err(Error::new(ErrorKind::Ray, doing).because(format!("Ray returned only a part: {warning}")));
        }
        let mut nodes: Vec<Node> = rows
            .result
            .into_iter()
            .map(|row| Node {
                node_id: row.node_id,
                address: row.node_ip,
                is_head: row.is_head_node,
                alive: row.state == "ALIVE",
                state: row.state,
                resources: row.resources_total.unwrap_or_default(),
                labels: row.labels.unwrap_or_default(),
                start_time: row.start_time_ms.and_then(|at| jiff::Timestamp::from_millisecond(at).ok()),
            })
            .collect();
        for node in &mut nodes {
            if let (None, Some(name)) = (node.given_name(), self.names.get(&node.address)) {
                node.labels.insert(NAME_LABEL.to_owned(), name.clone());
            }
        }
        nodes.sort_by(|a, b| (!a.is_head, &a.node_id).cmp(&(!b.is_head, &b.node_id)));
        Ok(nodes)
    }
}
