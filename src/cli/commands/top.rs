//! `gpucl top`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;

use super::job::show::in_words;
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::signals::ctrl_c;
use crate::cli::target::Target;
use crate::error::Result;
use crate::ray::{Amounts, Client, GpuUsage, Holding, Job, Node, Usage};
use crate::util::human;

/// The time between two tables of `--watch`: Ray's agents measure every 2.5 s.
const PAUSE: Duration = Duration::from_millis(2500);

/// The arguments of `top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure again every 2.5 seconds, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let client = Target::choose(app)?.client(app).await?;
    // Listen before anything is printed: the user may press Ctrl-C at once.
    let mut interrupt = match args.watch {
        true => Some(ctrl_c()?),
        false => None,
    };
    loop {
        let rows = measure(&client).await?;
        if app.json() {
            rows.iter().for_each(|row| app.ui.json(&as_json(row)));
        } else if args.watch {
            app.ui.screen(table(&rows));
        } else {
            app.ui.data(table(&rows));
        }
        let Some(interrupt) = &mut interrupt else { return Ok(exit_code::DONE) };
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = interrupt.recv() => return Ok(exit_code::INTERRUPTED),
        }
    }
}

/// A node that is alive, and what it uses.
struct Row {
    /// `head`, `worker-0`; Ray's id if gpucl did not start it.
    name: String,
    node: Node,
    /// None until Ray's agent on it has measured.
    usage: Option<Usage>,
    /// The jobs of which something runs there, and what each holds there.
    jobs: Vec<(String, Amounts)>,
}

async fn measure(client: &Client) -> Result<Vec<Row>> {
    let (nodes, usage, jobs) = tokio::join!(client.nodes(), client.usage(), client.jobs());
    let mut jobs = jobs?;
    jobs.retain(Job::was_submitted);
    Ok(rows(nodes?, usage?, &client.holdings(&jobs).await?))
}

fn rows(nodes: Vec<Node>, mut usage: BTreeMap<String, Usage>, holdings: &BTreeMap<String, Holding>) -> Vec<Row> {
    let jobs_on = |node: &str| {
        let there = holdings.iter().filter(|(_, holding)| holding.nodes.contains(node));
        there.map(|(job, holding)| (job.clone(), holding.held.get(node).cloned().unwrap_or_default())).collect()
    };
    let alive = nodes.into_iter().filter(|node| node.alive);
    let mut rows: Vec<Row> = alive
        .map(|node| Row {
            name: name_of(&node),
            usage: usage.remove(&node.node_id),
            jobs: jobs_on(&node.node_id),
            node,
        })
        .collect();
    rows.sort_by_key(|row| (!row.node.is_head, human::natural(&row.name)));
    rows
}

fn name_of(node: &Node) -> String {
    node.given_name().map_or_else(|| node.node_id.chars().take(12).collect(), str::to_owned)
}

/// A line for each node, and one for each GPU. A GPU that several nodes of a machine see has one line, which names them.
fn table(rows: &[Row]) -> Table {
    let gpus = gpus(rows);
    let header: &[&str] = match gpus.is_empty() {
        true => &["node", "cpu", "memory", "jobs"],
        false => &["node", "cpu", "memory", "jobs", "gpu", "product", "busy", "gpu memory", "temperature"],
    };
    let mut table = Table::new(header);
    let mut line = |cells: Vec<String>| table.row(cells.into_iter().take(header.len()));
    for row in rows {
        let own = gpus.iter().filter(|seen| seen.nodes == [row.name.as_str()]);
        let mut own = own.map(|seen| gpu_cells(seen.gpu));
        line([cells(row), own.next().unwrap_or_default()].concat());
        own.for_each(|gpu| line([vec![String::new(); 4], gpu].concat()));
    }
    for shared in gpus.iter().filter(|seen| seen.nodes.len() > 1) {
        let who = vec![shared.nodes.join(", "), String::new(), String::new(), jobs_with_gpu(rows, &shared.nodes)];
        line([who, gpu_cells(shared.gpu)].concat());
    }
    table
}

/// A GPU, and the nodes that see it.
struct GuardsReport<'a> {
    gpu: &'a GpuUsage,
    nodes: Vec<&'a str>,
}

/// All GPUs, each once. Nodes that are processes see all GPUs of their machine: only those with GPUs are named.
fn gpus(rows: &[Row]) -> Vec<GuardsReport<'_>> {
    let has_gpus = |row: &Row| row.node.resources.get("GPU").is_some_and(|number| *number > 0.0);
    let mut found: Vec<GuardsReport<'_>> = Vec::new();
    for only_owners in [true, false] {
        for row in rows.iter().filter(|row| has_gpus(row) == only_owners) {
            for gpu in row.usage.iter().flat_map(|usage| &usage.gpus) {
                match found.iter_mut().find(|seen| seen.gpu.uuid == gpu.uuid) {
                    Some(seen) if only_owners => seen.nodes.push(&row.name),
                    Some(_) => {}
                    None => found.push(GuardsReport { gpu, nodes: vec![&row.name] }),
                }
            }
        }
    }
    found
}

fn cells(row: &Row) -> Vec<String> {
    let usage = row.usage.as_ref();
    let cpu = usage.and_then(|usage| {
        let of = usage.cpus.map(|cpus| format!(" of {cpus}")).unwrap_or_default();
        Some(format!("{:.0}%{of}", usage.cpu_percent?))
    });
    let memory = usage.and_then(|usage| Some(share(usage.memory_used?, usage.memory_total?)));
    // Also one that holds nothing there, such as an actor that only coordinates.
    let jobs: Vec<String> = row
        .jobs
        .iter()
        .map(|(job, held)| match in_words(held) {
            held if held.is_empty() => job.clone(),
            held => format!("{job} ({held})"),
        })
        .collect();
    vec![row.name.clone(), cpu.unwrap_or_else(unknown), memory.unwrap_or_else(unknown), jobs.join(", ")]
}

/// The jobs that hold a GPU on one of these nodes.
fn jobs_with_gpu(rows: &[Row], nodes: &[&str]) -> String {
    let there = rows.iter().filter(|row| nodes.contains(&row.name.as_str()));
    let jobs: BTreeSet<&str> = there
        .flat_map(|row| &row.jobs)
        .filter(|(_, held)| held.contains_key("GPU"))
        .map(|(job, _)| job.as_str())
        .collect();
    jobs.into_iter().collect::<Vec<_>>().join(", ")
}

fn gpu_cells(gpu: &GpuUsage) -> Vec<String> {
    vec![
        gpu.index.to_string(),
        gpu.product.clone(),
        gpu.busy_percent.map_or_else(unknown, |percent| format!("{percent}%")),
        share(gpu.memory_used, gpu.memory_total),
        gpu.temperature_celsius.map_or_else(unknown, |degrees| format!("{degrees} °C")),
    ]
}

/// What is not reported.
fn unknown() -> String {
    "?".to_owned()
}

fn share(used: u64, total: u64) -> String {
    format!("{} of {}", human::bytes(used), human::bytes(total))
}

fn as_json(row: &Row) -> serde_json::Value {
    let usage = row.usage.as_ref();
    json!({
        "v": 1,
        "type": "node_usage",
        "node": row.name,
        "node_id": row.node.node_id,
        "address": row.node.address,
        "cpu_percent": usage.and_then(|usage| usage.cpu_percent),
        "cpus": usage.and_then(|usage| usage.cpus),
        "memory_used": usage.and_then(|usage| usage.memory_used),
        "memory_total": usage.and_then(|usage| usage.memory_total),
        "jobs": row.jobs.iter().map(|(job, _)| job.as_str()).collect::<Vec<_>>(),
        "holds": row.jobs.iter().map(|(job, held)| (job.as_str(), held)).collect::<BTreeMap<_, _>>(),
        "gpus": usage.map(|usage| usage.gpus.as_slice()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Key;

    fn node(key: &str, gpus: f64) -> Node {
        Node {
            node_id: format!("{key}-id"),
            address: "127.0.0.1".to_owned(),
            is_head: key == "head",
            alive: true,
            state: "ALIVE".to_owned(),
            resources: BTreeMap::from([("GPU".to_owned(), gpus)]),
            labels: BTreeMap::from([(crate::ray::NAME_LABEL.to_owned(), key.parse::<Key>().unwrap().display_name())]),
            start_time: None,
        }
    }

    fn gpu(index: u32, busy_percent: Option<u8>) -> GpuUsage {
        GpuUsage {
            index,
            uuid: format!("GPU-{index}"),
            product: "NVIDIA A100".to_owned(),
            busy_percent,
            memory_used: 20 << 30,
            memory_total: 40 << 30,
            temperature_celsius: busy_percent.map(|_| 61),
            power_milliwatts: None,
        }
    }

    fn usage(gpus: Vec<GpuUsage>) -> Usage {
        Usage { cpu_percent: Some(42.4), cpus: Some(8), memory_used: Some(3 << 30), memory_total: Some(16 << 30), gpus }
    }

    /// With a job `train` that has its command on the head, and 1 CPU and 1 GPU of worker-0.
    fn shown(nodes: Vec<Node>, usage: Vec<(&str, Usage)>) -> String {
        let usage = usage.into_iter().map(|(key, usage)| (format!("{key}-id"), usage)).collect();
        let amounts = BTreeMap::from([("CPU".to_owned(), 1.0), ("GPU".to_owned(), 1.0)]);
        let held = BTreeMap::from([("worker0-id".to_owned(), amounts)]);
        let holding = Holding { held, nodes: ["head-id", "worker0-id"].map(str::to_owned).into() };
        table(&rows(nodes, usage, &[("train".to_owned(), holding)].into())).to_string()
    }

    #[test]
    fn without_gpus_there_are_cpu_and_memory_and_a_node_that_was_not_measured_shows_so() {
        let nodes = vec![node("worker10", 0.0), node("worker2", 0.0), node("head", 0.0)];
        let shown = shown(nodes, vec![("head", usage(vec![])), ("worker10", usage(vec![]))]);
        let expected = [
            " NODE       CPU       MEMORY               JOBS",
            " head       42% of 8  3.0 GiB of 16.0 GiB  train",
            " worker-2   ?         ?",
            " worker-10  42% of 8  3.0 GiB of 16.0 GiB",
        ];
        assert_eq!(shown, expected.join("\n"));
    }

    #[test]
    fn each_gpu_has_a_line_with_its_node() {
        let nodes = vec![node("head", 0.0), node("worker0", 2.0)];
        let shown =
            shown(nodes, vec![("head", usage(vec![])), ("worker0", usage(vec![gpu(0, Some(87)), gpu(1, None)]))]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4, "{shown}");
        assert!(lines[0].ends_with("BUSY  GPU MEMORY            TEMPERATURE"), "{shown}");
        assert!(
            lines[2]
                .starts_with(" worker-0  42% of 8  3.0 GiB of 16.0 GiB  train (1 CPU, 1 GPU)  0    NVIDIA A100  87%"),
            "{shown}"
        );
        assert!(lines[2].ends_with("20.0 GiB of 40.0 GiB  61 °C"), "{shown}");
        assert!(lines[3].trim_start().starts_with("1    NVIDIA A100  ?"), "{shown}");
    }

    #[test]
    fn a_gpu_that_several_nodes_see_has_one_line_with_those_that_may_use_it() {
        let nodes = vec![node("head", 0.0), node("worker0", 1.0), node("worker1", 1.0)];
        let both = || usage(vec![gpu(0, Some(1)), gpu(1, Some(2))]);
        let shown = shown(nodes, vec![("head", both()), ("worker0", both()), ("worker1", both())]);
        assert_eq!(shown.matches("NVIDIA").count(), 2, "{shown}");
        assert_eq!(shown.matches(" worker-0, worker-1 ").count(), 2, "{shown}");
        let of_gpu = |line: &&str| line.contains("NVIDIA") && line.contains(" train ");
        assert_eq!(shown.lines().filter(of_gpu).count(), 2, "the job that holds a GPU of one of them: {shown}");
    }

    #[test]
    fn a_node_that_gpucl_did_not_start_goes_by_rays_id_and_a_dead_one_is_left_out() {
        let foreign = Node { labels: BTreeMap::new(), ..node("0123456789abcdef", 0.0) };
        let dead = Node { alive: false, ..node("worker0", 0.0) };
        let shown = shown(vec![foreign, dead], vec![]);
        assert_eq!(shown.lines().nth(1), Some(" 0123456789ab  ?    ?"), "{shown}");
        assert_eq!(shown.lines().count(), 2, "{shown}");
    }
}
