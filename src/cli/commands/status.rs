//! `gpucl status`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::money;
use crate::cli::output::Table;
use crate::cli::target::Target;
use crate::cluster::{self, ContainerReport, NodeReport, Phase, StatusReport};
use crate::engine::Cancel;
use crate::error::Result;
use crate::ray::Node;
use crate::runtime::project::ContainerState;
use crate::util::{human, when};
use std::time::Duration;

/// The arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show only what this machine knows, without asking other hosts, providers or Ray
    #[arg(long)]
    offline: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let mut target = Target::anywhere(app)?;
    // Ask the hosts and Ray in parallel.
    let (inspected, ray) = tokio::join!(inspect(app, &args, &target), async {
        if args.offline || target.access().is_err() { None } else { ask(app, &target).await }
    });
    if let Some(report) = inspected? {
        target.known.report = report;
    }
    let report = &target.known.report;
    if app.json() {
        app.ui.json(&json(report, ray.as_ref()));
        return Ok(exit_code::DONE);
    }
    if let Some(machine) = &report.machine {
        app.ui.data(format!("{}: on {machine}, another machine that shares this home folder", report.cluster));
        app.ui.data(format!("it is used from there: ssh {machine}"));
        return Ok(exit_code::DONE);
    }
    let since = report.ready_since.map(|since| when::dated(since, &when::zone(app.variable("TZ"))));
    app.ui.data(format!(
        "{}: {}{} on {}",
        report.cluster,
        report.phase,
        since.map(|since| format!(" since {since}")).unwrap_or_default(),
        report.provider,
    ));
    money::lines(report).iter().for_each(|line| app.ui.data(line));
    if let (Some(what), Some(at)) = (&report.waits_for, report.waits_until) {
        app.ui.data(format!("it waits for {what}, which begins at {}", human::in_time(at)));
    }
    if let (None, Some(process)) = (&report.waits_for, report.brought_up_by) {
        app.ui.data(format!("process {process} is bringing it up; `gpucl up` follows it"));
    }
    for host in &report.restarted_hosts {
        app.ui.data(format!("{host} has been restarted: `gpucl up` repairs what is not running"));
    }
    for host in &report.gone_hosts {
        app.ui.data(format!("{host} is gone: its provider no longer has it; `gpucl up` replaces it"));
    }
    for host in &report.silent_hosts {
        app.ui.data(format!("{host} does not answer: try `gpucl ssh {host}`; `gpucl up` continues once it does"));
    }
    if report.restarted && report.restarted_hosts.is_empty() {
        app.ui.data("this machine has been restarted: nothing of the cluster runs; `gpucl up` rebuilds it");
    }
    report.happened(jiff::Timestamp::now()).into_iter().for_each(|line| app.ui.data(line));
    if !report.nodes.is_empty() {
        let runtime = target.known.state.spec.as_ref().map(|spec| spec.runtime).unwrap_or_default();
        let process = crate::runtime::of(runtime).node_is();
        let mut table = Table::new(&["node", process, "age", "ray", "cpu", "gpu", "memory"]);
        for node in &report.nodes {
            table.row(row(node, report, ray.as_ref()));
        }
        let is_node = |container: &&ContainerReport| report.nodes.iter().any(|node| node.name == container.name);
        for container in report.containers.iter().filter(|container| !is_node(container)) {
            let (name, runs) = (container.name.clone(), in_words(container));
            let blank = String::new;
            table.row([name, runs, age(container.age_seconds), blank(), blank(), blank(), blank()]);
        }
        app.ui.data(table);
    }
    if let Some(ray) = &ray {
        app.ui.data(ray.jobs.clone());
    } else if !args.offline && ![Phase::Stopped, Phase::Waiting].contains(&report.phase) {
        app.ui.status("Ray does not answer; this is only what this machine knows");
    }
    Ok(exit_code::DONE)
}

/// The report after an inspection of its hosts; `None` if they must not be asked.
async fn inspect(app: &App, args: &Args, target: &Target) -> Result<Option<StatusReport>> {
    if args.offline && target.is_remote() {
        return Ok(None);
    }
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings_to_inspect(app.plain_events(), cancel)?;
    Ok(cluster::inspect(&settings, &target.name).await?.map(|known| known.report))
}

/// The state of a container, as text.
fn in_words(container: &ContainerReport) -> String {
    match (&container.state, &container.health) {
        (ContainerState::Running, Some(health)) => format!("runs, {health}"),
        (ContainerState::Running, None) => "runs".to_owned(),
        (state, _) => state.to_string(),
    }
}

fn age(seconds: Option<u64>) -> String {
    seconds.map(|age| human::short_duration(Duration::from_secs(age))).unwrap_or_default()
}

/// Ray's own report.
pub(crate) struct FromRay {
    nodes: Vec<Node>,
    jobs: String,
    counts: serde_json::Value,
}

async fn ask(app: &App, target: &Target) -> Option<FromRay> {
    let client = target.client(app).await.ok()?;
    let both = async { tokio::join!(client.nodes(), client.jobs()) };
    let (nodes, jobs) = tokio::time::timeout(Duration::from_secs(5), both).await.ok()?;
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for job in jobs.ok()?.into_iter().filter(crate::ray::Job::was_submitted) {
        *counts.entry(job.status.as_str().to_lowercase()).or_default() += 1;
    }
    let text: Vec<String> = counts.iter().map(|(status, number)| format!("{number} {status}")).collect();
    let jobs = if text.is_empty() { "jobs: none".to_owned() } else { format!("jobs: {}", text.join(", ")) };
    Some(FromRay { nodes: nodes.ok()?, jobs, counts: serde_json::json!(counts) })
}

fn row(node: &NodeReport, report: &StatusReport, ray: Option<&FromRay>) -> [String; 7] {
    let container = report.containers.iter().find(|container| container.name == node.name);
    let process = match (&node.pid, &node.ended, container) {
        _ if node.stopped_by_hand && !node.running => "stopped by hand".to_owned(),
        (Some(pid), _, _) => format!("runs ({pid})"),
        (None, _, Some(container)) => in_words(container),
        (None, Some(how), None) => format!("ended: {how}"),
        (None, None, None) if node.running => "started".to_owned(),
        (None, None, None) => "does not run".to_owned(),
    };
    let key = format!("gpucl_{}", node.name.replace('-', ""));
    // A platform's nodes have a name in place of the resource.
    let is_it = |found: &&Node| found.resources.contains_key(&key) || found.name() == node.name;
    // Ray lists a node that was killed as alive until it misses its heartbeats.
    let found = ray.filter(|_| node.running).and_then(|ray| ray.nodes.iter().filter(|found| found.alive).find(is_it));
    let has = |name: &str| found.map(|found| found.resources.get(name).copied().unwrap_or(0.0));
    let number = |name: &str| has(name).map(|amount| amount.to_string()).unwrap_or_default();
    [
        shown_name(node),
        process,
        age(node.age_seconds),
        found.map(|found| found.state.to_lowercase()).unwrap_or_default(),
        number("CPU"),
        number("GPU"),
        has("memory").map(|bytes| human::bytes(bytes as u64)).unwrap_or_default(),
    ]
}

/// `worker-0`, or with the name of its group `worker-0 (big)`.
fn shown_name(node: &NodeReport) -> String {
    match &node.group {
        Some(group) => format!("{} ({group})", node.name),
        None => node.name.clone(),
    }
}

/// The JSON form.
pub(crate) fn json(report: &StatusReport, ray: Option<&FromRay>) -> serde_json::Value {
    let mut value = serde_json::json!({ "v": 1, "type": "cluster" });
    if let (Some(object), Ok(serde_json::Value::Object(report))) = (value.as_object_mut(), serde_json::to_value(report))
    {
        object.extend(report);
        if let Some(ray) = ray {
            object.insert("ray_nodes".to_owned(), serde_json::json!(ray.nodes));
            object.insert("jobs".to_owned(), ray.counts.clone());
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_shown_beside_the_name_that_commands_take() {
        let mut node = NodeReport {
            name: "worker-0".to_owned(),
            group: None,
            host: "host-0".to_owned(),
            running: true,
            stopped_by_hand: false,
            pid: None,
            age_seconds: None,
            ended: None,
            last_end: None,
        };
        assert_eq!(shown_name(&node), "worker-0");
        node.group = Some("big".to_owned());
        assert_eq!(shown_name(&node), "worker-0 (big)");
    }
}
