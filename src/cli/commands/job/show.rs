//! `gpucl job list` and `gpucl job status`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::at_end::AtEnd;
use super::secrets::sweep;
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::target::Target;
use crate::cluster::growing;
use crate::error::Result;
use crate::ray::{self, Amounts, Client, Job, JobStatus, Node, Situation};
use crate::util::human;

/// How many characters of a command a table shows.
const ENTRYPOINT_WIDTH: usize = 60;

/// The arguments of `job list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Also list programs that connected on their own, such as those of `gpucl verify`
    #[arg(short, long)]
    all: bool,
}

/// The arguments of `job status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// The job's id
    id: String,
}

pub(crate) async fn list(app: &App, args: ListArgs) -> Result<u8> {
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    sweep(app, &target, &client).await;
    let mut jobs = client.jobs().await?;
    jobs.retain(|job| args.all || job.was_submitted());
    // Without its node's name, and without what it holds, a job is still worth showing.
    let (nodes, holdings) = match jobs.is_empty() {
        true => (Vec::new(), BTreeMap::new()),
        false => {
            let (nodes, holdings) = tokio::join!(client.nodes(), client.holdings(&jobs));
            (nodes.unwrap_or_default(), holdings.unwrap_or_default())
        }
    };
    let seen = AtEnd::look(app, &target, &jobs).await;
    if app.json() {
        for job in &jobs {
            let mut line = as_json(job);
            line["at_end"] = seen.of(job).map_or(Value::Null, |end| end.as_json(job));
            line["node"] = node_name(job, &nodes).into();
            if let Some(holding) = holdings.get(job.id()) {
                line["holds"] = json!(holding.total());
                line["nodes"] = json!(names(&holding.nodes, &nodes));
            }
            app.ui.json(&line);
        }
        return Ok(exit_code::DONE);
    }
    if jobs.is_empty() {
        app.ui.status("no job was submitted yet; submit one: gpucl job submit --working-dir . -- python train.py");
        return Ok(exit_code::DONE);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["id", "status", "started", "ended", "took", "holds", "node", "command"]);
    for job in &jobs {
        let (started, ended) = (shown_time(job.started()), shown_time(job.ended()));
        let took = job.lasted(now).map(human::short_duration).unwrap_or_default();
        let holding = holdings.get(job.id());
        let holds = holding.map(|holding| in_words(&holding.total())).unwrap_or_default();
        // Where it holds something; its command may run on another node, mostly the head.
        let held = holding.map(|holding| names(holding.held.keys(), &nodes).join(", "));
        let node = held.filter(|held| !held.is_empty()).or_else(|| node_name(job, &nodes)).unwrap_or_default();
        let command = shortened(&job.entrypoint);
        let status =
            seen.of(job).map_or(job.status.as_str().to_owned(), |_| format!("{}, at the end", job.status.as_str()));
        table.row([job.id(), &status, &started, &ended, &took, &holds, &node, &command]);
    }
    app.ui.data(table);
    Ok(exit_code::DONE)
}

pub(crate) async fn status(app: &App, args: StatusArgs) -> Result<u8> {
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    sweep(app, &target, &client).await;
    let job = match client.job(&args.id).await {
        Ok(job) => job,
        Err(error) => return Err(super::with_near_id(error, &client, &args.id).await),
    };
    let mut situation = situation(app, &client, &job).await;
    situation.growing = growing(&target.known.state);
    let reason = ray::reason(&job, &situation);
    let node = node_name(&job, &situation.nodes);
    let at_end = AtEnd::look(app, &target, std::slice::from_ref(&job)).await.of(&job);
    if app.json() {
        let mut shown = as_json(&job);
        shown["node"] = node.into();
        shown["reason"] = reason.into();
        shown["at_end"] = at_end.map_or(Value::Null, |end| end.as_json(&job));
        app.ui.json(&shown);
        return Ok(exit_code::DONE);
    }
    let line = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            app.ui.data(format_args!("{name:<9} {value}"));
        }
    };
    line("id", Some(job.id().to_owned()));
    line("status", Some(job.status.as_str().to_owned()));
    line("reason", reason);
    line("the end", at_end.as_ref().map(ToString::to_string));
    line("goes on", at_end.and_then(|end| end.goes_on(&job)));
    line("command", Some(job.entrypoint.clone()));
    line("started", Some(shown_time(job.started())));
    line("ended", Some(shown_time(job.ended())));
    line("took", job.lasted(Timestamp::now()).map(human::short_duration));
    line("exit", job.driver_exit_code.map(|code| code.to_string()));
    line("message", job.short_message().map(str::to_owned));
    line("node", node);
    Ok(exit_code::DONE)
}

/// What surrounds a job. A failure to read it is reported, and costs only the reason.
async fn situation(app: &App, client: &Client, job: &Job) -> Situation {
    let read = match job.status {
        // Only the node's name is needed.
        JobStatus::Succeeded | JobStatus::Stopped => {
            client.nodes().await.map(|nodes| Situation { nodes, ..Situation::default() })
        }
        _ => client.situation(job).await,
    };
    read.unwrap_or_else(|error| {
        app.ui.status(format_args!("the nodes and what the job waits for are not shown: {error}"));
        Situation::default()
    })
}

/// The name of the node that a job's command runs on, else the beginning of its id.
fn node_name(job: &Job, nodes: &[Node]) -> Option<String> {
    Some(name_of(job.driver_node_id.as_deref()?, nodes))
}

/// The name of the node with this id, else the beginning of the id.
fn name_of(id: &str, nodes: &[Node]) -> String {
    let known = nodes.iter().find(|node| node.node_id == id).map(|node| node.name().to_owned());
    known.unwrap_or_else(|| id.chars().take(12).collect())
}

/// The names of the nodes with these ids, in order.
fn names<'a>(ids: impl IntoIterator<Item = &'a String>, nodes: &[Node]) -> Vec<String> {
    let mut names: Vec<String> = ids.into_iter().map(|id| name_of(id, nodes)).collect();
    names.sort_by_key(|name| human::natural(name));
    names
}

/// CPUs and GPUs as text: `8 CPU, 1 GPU`. Other resources are in the JSON form.
/// The CPUs and GPUs of some amounts: `8 CPU, 1 GPU`.
pub(crate) fn in_words(amounts: &Amounts) -> String {
    let known = ["CPU", "GPU"].iter().filter_map(|name| Some(format!("{} {name}", amounts.get(*name)?)));
    known.collect::<Vec<_>>().join(", ")
}

fn shown_time(at: Option<Timestamp>) -> String {
    at.map(|at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()).unwrap_or_default()
}

/// The JSON form of a job: `docs/reference/json.md`.
pub(super) fn as_json(job: &Job) -> Value {
    let time = |at: Option<i64>| {
        at.filter(|at| *at > 0).and_then(|at| Timestamp::from_millisecond(at).ok()).map(|at| at.to_string())
    };
    let exit = job.status.is_terminal().then(|| ray::exit_code(job.status, job.driver_exit_code));
    json!({
        "v": 1, "type": "job", "id": job.id(), "kind": job.kind.to_lowercase(), "status": job.status.as_str(),
        "command": job.entrypoint, "message": job.message, "error_type": job.error_type,
        "started": time(job.start_time), "ended": time(job.end_time), "exit_code": exit,
        "driver_exit_code": job.driver_exit_code, "driver_node_id": job.driver_node_id, "metadata": job.metadata,
    })
}

/// The status of a job that was followed to its end, as a sentence; for one that never began, Ray is asked for more.
pub(super) async fn last_sentence(client: &Client, job: &Job) -> String {
    let began = job.driver_exit_code.is_some() || job.driver_node_id.is_some();
    if job.status != JobStatus::Failed || began {
        return sentence(job);
    }
    sentence_in(job, &client.situation(job).await.unwrap_or_default())
}

/// The status of a job, as a sentence.
pub(super) fn sentence(job: &Job) -> String {
    sentence_in(job, &Situation::default())
}

fn sentence_in(job: &Job, situation: &Situation) -> String {
    let took = job.lasted(Timestamp::now()).map(human::short_duration).unwrap_or_default();
    let id = job.id();
    match job.status {
        ray::JobStatus::Succeeded => format!("job {id} succeeded after {took}"),
        ray::JobStatus::Stopped => format!("job {id} was stopped after {took}"),
        ray::JobStatus::Failed => {
            let how = ray::reason(job, situation).map(|why| format!("; {why}")).unwrap_or_default();
            format!("job {id} failed after {took}{how}")
        }
        status => format!("job {id} is {}", status.as_str()),
    }
}

fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(ENTRYPOINT_WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
