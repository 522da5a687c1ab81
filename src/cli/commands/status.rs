//! `gpucl status`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::target::Target;
use crate::cluster::{NodeReport, StatusReport};
use crate::error::Result;
use crate::ray::Node;
use crate::spec::Runtime;
use crate::util::human;
use std::time::Duration;

/// The arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ask nobody but this machine
    #[arg(long)]
    offline: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let target = Target::choose(app)?;
    let report = &target.known.report;
    let ray = if args.offline || !report.nodes.iter().any(|node| node.running && node.name == "head") {
        None
    } else {
        ask(&target).await
    };
    if app.json() {
        app.ui.json(&json(report, ray.as_ref()));
        return Ok(exit_code::DONE);
    }
    app.ui.data(format!(
        "{}: {}{} on {}, agent {}",
        report.cluster,
        report.phase,
        report.ready_since.map(|since| format!(" since {}", local(since))).unwrap_or_default(),
        report.provider,
        if report.agent { "runs" } else { "does not run" },
    ));
    if report.restarted {
        app.ui.data(if target.known.state.spec.as_ref().is_some_and(|spec| spec.runtime == Runtime::Docker) {
            "a host was restarted since; `gpucl up` brings back what does not run, and checks all of it"
        } else {
            "this machine was restarted since: nothing of it runs; `gpucl up` builds it again"
        });
    }
    if !report.nodes.is_empty() {
        let mut table = Table::new(&["node", "process", "age", "ray", "cpu", "gpu", "memory"]);
        for node in &report.nodes {
            table.row(row(node, ray.as_ref()));
        }
        app.ui.data(table);
    }
    if let Some(ray) = &ray {
        app.ui.data(ray.jobs.clone());
    } else if !args.offline && report.phase != "stopped" {
        app.ui.status("Ray does not answer; what is shown is what this machine knows");
    }
    Ok(exit_code::DONE)
}

/// What Ray told.
pub(crate) struct FromRay {
    nodes: Vec<Node>,
    jobs: String,
    counts: serde_json::Value,
}

async fn ask(target: &Target) -> Option<FromRay> {
    let client = target.client().ok()?;
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

fn row(node: &NodeReport, ray: Option<&FromRay>) -> [String; 7] {
    let process = match (&node.pid, &node.ended) {
        (Some(pid), _) => format!("runs ({pid})"),
        (None, Some(how)) => format!("ended: {how}"),
        (None, None) => "does not run".to_owned(),
    };
    let age = node.age_seconds.map(|age| human::short_duration(Duration::from_secs(age))).unwrap_or_default();
    let key = format!("gpucl_{}", node.name.replace('-', ""));
    // Ray lists a node that was killed as alive until it misses its heartbeats.
    let found = ray
        .filter(|_| node.running)
        .and_then(|ray| ray.nodes.iter().filter(|found| found.alive).find(|found| found.resources.contains_key(&key)));
    let has = |name: &str| found.map(|found| found.resources.get(name).copied().unwrap_or(0.0));
    let number = |name: &str| has(name).map(|amount| amount.to_string()).unwrap_or_default();
    [
        node.name.clone(),
        process,
        age,
        found.map(|found| found.state.to_lowercase()).unwrap_or_default(),
        number("CPU"),
        number("GPU"),
        has("memory").map(|bytes| human::bytes(bytes as u64)).unwrap_or_default(),
    ]
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

fn local(at: jiff::Timestamp) -> String {
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}
