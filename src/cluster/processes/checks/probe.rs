//! What only Ray itself can prove: a task ran on each worker, its GPUs work, and its gRPC ports want the token.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::subject::Subject;
use crate::error::Result;
use crate::event::CheckOutcome;
use crate::host::{Host as _, Stream};
use crate::name::Key;
use crate::plan::{NodeRole, NodeSpec};
use crate::ray::shell_line;
use crate::runtime::native::{Prepared, resource_of};

/// One line of the probe.
#[derive(Debug, Deserialize)]
struct Line {
    worker: Option<String>,
    grpc_port: Option<u16>,
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    saw: String,
    #[serde(default)]
    gpus: Vec<serde_json::Value>,
}

/// Runs the probe on the head's host, by one exec.
pub(super) async fn run(subject: &Subject<'_>) -> Vec<CheckOutcome> {
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    if let Err(error) = exec(subject, &mut lines, &mut errors).await {
        errors.push(error.to_string());
    }
    let mut outcomes = Vec::new();
    let mut missing: BTreeSet<String> = workers(subject).map(|node| node.key.display_name()).collect();
    for line in lines {
        let outcome = if line.ok { CheckOutcome::Passed } else { CheckOutcome::Failed };
        if let Some(worker) = line.worker {
            missing.remove(&worker);
            outcomes.push(subject.tell("task ran", &worker, outcome, line.saw));
            if let Some(node) =
                workers(subject).find(|node| node.key.display_name() == worker && node.first_gpu.is_some())
            {
                outcomes.push(gpus(subject, node, &line.gpus));
            }
        } else if let Some(port) = line.grpc_port {
            outcomes.push(subject.tell("token enforced", &format!("gRPC {port}"), outcome, line.saw));
        }
    }
    let why = errors.last().map_or("the probe did not speak of it", String::as_str);
    for worker in missing {
        outcomes.push(subject.tell("task ran", &worker, CheckOutcome::Failed, why));
    }
    outcomes
}

/// The GPUs that a task could really use against those that the worker owns.
fn gpus(subject: &Subject<'_>, node: &NodeSpec, seen: &[serde_json::Value]) -> CheckOutcome {
    let target = node.key.display_name();
    let names: Vec<String> = seen
        .iter()
        .map(|gpu| gpu.as_str().map_or_else(|| gpu["uuid"].as_str().unwrap_or_default().to_owned(), str::to_owned))
        .collect();
    let owned: Vec<String> = subject.known.note::<Vec<String>>(&node.host, "gpus").unwrap_or_default();
    let first = node.first_gpu.unwrap_or_default() as usize;
    let promised = owned.get(first..first + node.gpus as usize).unwrap_or_default();
    let outcome = if !promised.is_empty() && names == promised { CheckOutcome::Passed } else { CheckOutcome::Failed };
    let saw = if outcome == CheckOutcome::Passed {
        format!("its own: {}", names.join(", "))
    } else {
        format!(
            "promised {}, seen {}",
            promised.join(", "),
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        )
    };
    subject.tell("gpu", &target, outcome, saw)
}

async fn exec(subject: &Subject<'_>, lines: &mut Vec<Line>, errors: &mut Vec<String>) -> Result<()> {
    let head = Key::head();
    let Some(node) = subject.nodes.iter().find(|node| node.key == head) else { return Ok(()) };
    let (Some(prepared), Some(ports)) = (subject.known.note::<Prepared>(&node.host, "prepared"), subject.ports(&head))
    else {
        return Ok(());
    };
    let id = subject.known.items.get(&node.host).and_then(|item| item.id.clone()).unwrap_or_default();
    let (host, layout) = subject.world.host(&node.host, &id).await?;
    let asked = json!({
        "workers": workers(subject).map(|node| json!({
            "key": node.key.display_name(),
            "node_resource": resource_of(&node.key),
            "cpus": node.cpus,
            "gpus": node.gpus,
            "gpu_mode": if node.first_gpu.is_some() { "proven" } else { "declared" },
        })).collect::<Vec<_>>(),
        "grpc_ports": [ports.gcs()],
        "timeout_s": subject.spec.timeouts.ready.0.as_secs(),
    });
    let access = subject.access();
    let mut program = String::new();
    for (name, value) in access.settings(None) {
        match value {
            Some(value) if name != "PATH" => program.push_str(&format!("export {name}={}\n", shell_line(&[value]))),
            None => program.push_str(&format!("unset {name}\n")),
            Some(_) => {}
        }
    }
    program.push_str(&format!(
        "export RAY_ADDRESS={} TMPDIR={} RAY_USAGE_STATS_ENABLED=0\n",
        access.gcs_address,
        shell_line(&[layout.tmp().display().to_string()])
    ));
    let python = prepared.ray_env.join("bin/python").display().to_string();
    program.push_str(&format!(
        "exec {}\n",
        shell_line(&[python, layout.probe_script().display().to_string(), asked.to_string()])
    ));
    let mut on_line = |stream: Stream, line: &str| match (stream, serde_json::from_str::<Line>(line)) {
        (Stream::Out, Ok(line)) => lines.push(line),
        _ => errors.push(line.to_owned()),
    };
    host.exec(&program, &mut on_line).await.map(|_| ())
}

fn workers<'a>(subject: &'a Subject<'_>) -> impl Iterator<Item = &'a NodeSpec> {
    subject.nodes.iter().filter(|node| node.role == NodeRole::Worker)
}
