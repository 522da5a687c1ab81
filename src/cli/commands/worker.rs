//! `gpucl worker`: the workers of a cluster, one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::target::Target;
use crate::cluster::{self, NodeReport, PodHost};
use crate::engine::Cancel;
use crate::error::Result;
use crate::event::EventKind;
use crate::host::Host as _;
use crate::name::{ClusterName, Key};
use crate::runtime::project::ByHand;
use crate::spec::NodeSpec;
use crate::util::human;

/// The commands below `worker`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the workers: where they run, since when, and what they have
    List(ListArgs),
    /// Stop a worker; it stays stopped until it is started, or until the next `up`
    Stop(Args),
    /// Start a worker that was stopped by hand or that has ended
    Start(Args),
    /// Kill a worker without warning, as a fault would; it comes back as after a fault
    Kill(Args),
}

/// The arguments of `worker list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

/// The arguments of `worker stop`, `start` and `kill`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The worker's name, such as `worker-0`
    worker: String,
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::List(_) => list(app).await,
        Command::Stop(args) => act(app, &args.worker, ByHand::Stop).await,
        Command::Start(args) => act(app, &args.worker, ByHand::Start).await,
        Command::Kill(args) => act(app, &args.worker, ByHand::Kill).await,
    }
}

async fn act(app: &App, worker: &str, act: ByHand) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    if let (Some(pods), ByHand::Kill) = (target.pods(app).await?, act) {
        let member = pods.worker(worker).await?;
        pods.platform()?.kill(pods.scope(), &member.name).await?;
        if !app.json() {
            app.ui.data(format_args!("{} was killed; its group gets another one", PodHost::new(&pods, &member).name()));
        }
        return Ok(exit_code::DONE);
    }
    let worker = cluster::named(&target.known.state, worker, act.name())?.key;
    let summary = by_hand(app, &target.name, &worker, act).await?;
    if !app.json() {
        app.ui.data(summary);
    }
    Ok(exit_code::DONE)
}

/// Stops, starts or kills a worker; returns the result in one sentence.
pub(crate) async fn by_hand(app: &App, cluster: &ClusterName, worker: &Key, by_hand: ByHand) -> Result<String> {
    let ended = run_with_events(app, by_hand.verb(), cluster.as_str(), async |events, cancel| {
        let settings = app.settings(events.clone(), cancel)?;
        let name = worker.display_name();
        let (what, limit) = match by_hand {
            ByHand::Stop => (format!("{name} to end"), Duration::from_secs(120)),
            ByHand::Start => (format!("{name} to answer"), Duration::from_secs(180)),
            ByHand::Kill => (format!("{name} to be killed"), Duration::from_secs(30)),
        };
        let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        events.send(EventKind::Waiting { what, limit_milliseconds });
        cluster::by_hand(&settings, cluster, worker, by_hand).await?;
        let summary = match by_hand {
            ByHand::Stop => format!("{name} is stopped, until `gpucl worker start {name}` or the next `gpucl up`"),
            ByHand::Start => format!("{name} runs"),
            ByHand::Kill => format!("{name} was killed; it is started again as after a fault"),
        };
        Ok(Ended { summary, endpoints: Vec::new() })
    })
    .await?;
    Ok(ended.summary)
}

async fn list(app: &App) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings_to_inspect(app.plain_events(), cancel)?;
    let Some(known) = cluster::inspect(&settings, &target.name).await? else {
        return Err(cluster::unknown(&app.paths, &target.name).into());
    };
    let nodes: BTreeMap<String, NodeSpec> =
        known.state.started_nodes().into_iter().map(|node| (node.key.display_name(), node)).collect();
    let has = |worker: &NodeReport| match known.state.platform() {
        None => nodes.get(&worker.name).map(|node| Has { cpus: node.cpus, gpus: node.gpus, memory: Some(node.memory) }),
        Some(platform) => {
            let group = platform.groups.iter().find(|group| worker.group.as_ref() == Some(&group.name))?;
            Some(Has { cpus: group.cpus.unwrap_or(1), gpus: group.gpus, memory: group.memory })
        }
    };
    let workers = known.report.nodes.iter().filter(|node| node.name != "head");
    let workers: Vec<(&NodeReport, Has)> = workers.filter_map(|worker| Some((worker, has(worker)?))).collect();
    if app.json() {
        workers.iter().for_each(|(worker, has)| app.ui.json(&as_json(worker, has)));
        return Ok(exit_code::DONE);
    }
    if workers.is_empty() {
        app.ui.status(format!("{} has no workers", target.name));
        return Ok(exit_code::DONE);
    }
    let mut table = Table::new(&["worker", "group", "host", "state", "age", "cpu", "gpu", "memory"]);
    for (worker, has) in workers {
        table.row([
            worker.name.clone(),
            worker.group.clone().unwrap_or_default(),
            worker.host.clone(),
            state(worker).to_owned(),
            worker.age_seconds.map(|age| human::short_duration(Duration::from_secs(age))).unwrap_or_default(),
            has.cpus.to_string(),
            has.gpus.to_string(),
            has.memory.map(human::bytes).unwrap_or_default(),
        ]);
    }
    app.ui.data(table);
    Ok(exit_code::DONE)
}

fn state(worker: &NodeReport) -> &str {
    match (worker.running, worker.stopped_by_hand) {
        (true, _) => "runs",
        (false, true) => "stopped by hand",
        (false, false) => worker.ended.as_deref().unwrap_or("does not run"),
    }
}

/// What a worker has for tasks.
struct Has {
    cpus: u32,
    gpus: u32,
    /// In bytes, where the spec or the host says it.
    memory: Option<u64>,
}

fn as_json(worker: &NodeReport, has: &Has) -> serde_json::Value {
    json!({
        "v": 1,
        "type": "worker",
        "worker": worker.name,
        "group": worker.group,
        "host": worker.host,
        "running": worker.running,
        "stopped_by_hand": worker.stopped_by_hand,
        "ended": worker.ended,
        "age_seconds": worker.age_seconds,
        "cpus": has.cpus,
        "gpus": has.gpus,
        "memory": has.memory,
    })
}
