//! What nodes use now, as measured by Ray's agent on each of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::client::Client;
use crate::error::Result;

/// Bytes in a MiB, the unit of GPU memory in Ray's answer.
const MIB: u64 = 1 << 20;

/// What a node uses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Usage {
    /// CPU use of the machine that the node runs on, in percent of all its CPUs.
    pub cpu_percent: Option<f64>,
    /// The number of the machine's CPUs.
    pub cpus: Option<u32>,
    /// Memory in use on the machine, or within the container's limit, in bytes.
    pub memory_used: Option<u64>,
    /// The machine's memory, or the container's limit, in bytes.
    pub memory_total: Option<u64>,
    /// The GPUs that the node's agent sees.
    pub gpus: Vec<GpuUsage>,
}

/// What a GPU does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuUsage {
    /// Its number on its machine, or in its container.
    pub index: u32,
    /// Its id, unique in the world.
    pub uuid: String,
    /// The product's name.
    pub product: String,
    /// The time during which it computed, in percent; none if the driver does not report it.
    pub busy_percent: Option<u8>,
    /// Its memory in use, in bytes.
    pub memory_used: u64,
    /// Its memory, in bytes.
    pub memory_total: u64,
    /// Its temperature in degrees Celsius; none if the driver does not report it.
    pub temperature_celsius: Option<i32>,
    /// Its power draw in milliwatts; none if the driver does not report it.
    pub power_milliwatts: Option<u32>,
}

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    summary: Vec<Row>,
}

/// A node; everything that its agent measures is missing until its first report.
#[derive(Deserialize)]
struct Row {
    raylet: Raylet,
    #[serde(default)]
    cpu: Option<f64>,
    // Logical and physical ones; for a container a share such as 0.5.
    #[serde(default)]
    cpus: Option<(f64, Option<f64>)>,
    // Total, available, percent, used.
    #[serde(default)]
    mem: Option<(u64, u64, f64, u64)>,
    #[serde(default)]
    gpus: Option<Vec<Gpu>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raylet {
    node_id: String,
    state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Gpu {
    index: u32,
    name: String,
    uuid: String,
    // -1 if unknown.
    #[serde(default)]
    utilization_gpu: Option<i64>,
    // In MiB, as is the total.
    memory_used: u64,
    memory_total: u64,
    #[serde(default)]
    temperature_c: Option<i32>,
    #[serde(default)]
    power_mw: Option<u32>,
}

impl Client {
    /// Reads what each node that is alive uses, by Ray's id of the node. Ray measures every few seconds.
    ///
    /// # Errors
    /// If Ray does not answer or refuses the token.
    pub async fn usage(&self) -> Result<BTreeMap<String, Usage>> {
        Ok(by_node(self.read("/nodes?view=summary", "ask Ray what its nodes use").await?))
    }
}

fn by_node(answer: Answer) -> BTreeMap<String, Usage> {
    let alive = answer.data.summary.into_iter().filter(|row| row.raylet.state == "ALIVE");
    alive.map(|row| (row.raylet.node_id.clone(), usage_of(row))).collect()
}

fn usage_of(row: Row) -> Usage {
    Usage {
        cpu_percent: row.cpu,
        cpus: row.cpus.map(|(logical, _)| logical.ceil() as u32),
        memory_used: row.mem.map(|(_, _, _, used)| used),
        memory_total: row.mem.map(|(total, _, _, _)| total),
        gpus: row.gpus.unwrap_or_default().into_iter().map(gpu_of).collect(),
    }
}

fn gpu_of(gpu: Gpu) -> GpuUsage {
    GpuUsage {
        index: gpu.index,
        uuid: gpu.uuid,
        product: gpu.name,
        busy_percent: gpu.utilization_gpu.and_then(|percent| u8::try_from(percent).ok()),
        memory_used: gpu.memory_used.saturating_mul(MIB),
        memory_total: gpu.memory_total.saturating_mul(MIB),
        temperature_celsius: gpu.temperature_c,
        power_milliwatts: gpu.power_mw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written after the source of Ray 2.60.0, less what is not read; the GPUs are in the form that Ray's agent writes.
    const RECORDED: &str = include_str!("fixtures/nodes-summary.json");

    #[test]
    fn the_usage_of_each_live_node_is_read_and_dead_nodes_are_left_out() {
        let usage = by_node(serde_json::from_str(RECORDED).unwrap());
        let ids: Vec<&str> = usage.keys().map(|id| &id[..4]).collect();
        assert_eq!(ids, ["0aaa", "1bbb", "2ccc"]);
        let head = &usage["0aaa000000000000000000000000000000000000000000000000aaaa"];
        assert_eq!((head.cpu_percent, head.cpus), (Some(12.5), Some(2)));
        assert_eq!((head.memory_used, head.memory_total), (Some(3_221_225_472), Some(25_769_803_776)));
        assert_eq!(head.gpus, []);
    }

    #[test]
    fn what_a_driver_does_not_report_is_none_and_memory_is_in_bytes() {
        let usage = by_node(serde_json::from_str(RECORDED).unwrap());
        let worker = &usage["1bbb000000000000000000000000000000000000000000000000bbbb"];
        let [first, second] = worker.gpus.as_slice() else { panic!("{worker:?}") };
        assert_eq!((first.busy_percent, first.temperature_celsius), (Some(87), Some(61)));
        assert_eq!((first.memory_used, first.memory_total), (20_480 << 20, 40_960 << 20));
        assert_eq!((second.busy_percent, second.temperature_celsius, second.power_milliwatts), (None, None, None));
    }

    #[test]
    fn a_node_whose_agent_has_not_reported_yet_has_no_values() {
        let usage = by_node(serde_json::from_str(RECORDED).unwrap());
        let new = &usage["2ccc000000000000000000000000000000000000000000000000cccc"];
        assert_eq!((new.cpu_percent, new.memory_total, new.gpus.len()), (None, None, 0));
    }
}
