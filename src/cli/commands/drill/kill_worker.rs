//! `gpucl drill kill-worker`: the lab's exercise on fault tolerance, as one command.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::progress::{Killed, Measured, due_to_be_killed, heard, names};
use super::victim::Victim;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::commands::job::stop::until_stopped;
use crate::cli::commands::verify;
use crate::cli::exit_code;
use crate::cli::output::{Table, print_error};
use crate::cli::signals::Ends;
use crate::cli::target::Target;
use crate::cluster::RayClient;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{self, Client, Holding, Job, JobStatus, Package, SubmitRequest};
use crate::state::ClusterState;
use crate::util::{human, random};

/// The training.
const TRAINING: &str = include_str!("training.py");
/// It is interrupted after this checkpoint, and so many steps more, which it has to do again. These take longer than the
/// two seconds in which Ray Train takes note of a checkpoint (ray 2.60.0).
const CHECKPOINT: u32 = 3;
const STEPS_MORE: usize = 6;
/// How long the training may take until then: Ray starts its processes, on a slow machine one after the other.
const BEGIN_LIMIT: Duration = Duration::from_secs(240);
/// How long the cluster may take to recover. Where heartbeats must be missed, Ray needs a minute to find out.
const RECOVERY_LIMIT: Duration = Duration::from_secs(300);
/// After this time a worker that did not come back is started by hand.
const RETURN_LIMIT: Duration = Duration::from_secs(120);
/// How often the log and the nodes are read: the times are as exact as this.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// How often it is said what is awaited.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// How long the training may take to stop when the drill is broken off.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// The arguments of `drill kill-worker`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The worker to kill, such as `worker-0`; default: the one that Ray chooses for the training
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Kill the worker even if other jobs run on it
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let state = &target.known.state;
    let wanted = match &args.worker {
        Some(name) => Some(Victim::wanted(app, &target, name).await?),
        None => None,
    };
    let checkpoints = place_of_checkpoints(state);
    let mut ends = Ends::listen()?;
    let client = target.client(app).await?;
    let mut drill = Drill { app, target: &target, client: &client, checkpoints, job: None, killed: None };
    let worked = ends.unless(drill.work(wanted.as_ref(), args.force)).await;
    let error = match worked {
        Some(Ok(code)) => return Ok(code),
        Some(Err(error)) => error,
        None => Error::new(ErrorKind::Cancelled, "finish the drill").because("it was interrupted"),
    };
    drill.put_right().await;
    Err(error.into())
}

/// Where the training keeps its checkpoints: in the object store; else in the data folder of the only host; else in a
/// process on the head's node, because several hosts and pods share nothing by themselves.
fn place_of_checkpoints(state: &ClusterState) -> String {
    let store = state.spec.as_ref().and_then(|spec| spec.services().object_store.settings());
    let bucket = store.and_then(|store| store.buckets.into_iter().next());
    match (bucket, &state.spec) {
        (Some(bucket), _) => format!("s3://{bucket}"),
        (None, Some(spec)) if spec.hosts.len() < 2 && state.platform().is_none() => "data".to_owned(),
        _ => "head".to_owned(),
    }
}

/// A drill, and how far it came.
struct Drill<'a> {
    app: &'a App,
    target: &'a Target,
    client: &'a RayClient,
    /// Where the training keeps its checkpoints.
    checkpoints: String,
    /// The job's id, once it was submitted.
    job: Option<String>,
    /// The worker that was killed.
    killed: Option<Victim>,
}

impl Drill<'_> {
    async fn work(&mut self, wanted: Option<&Victim>, force: bool) -> Result<u8> {
        let (app, client) = (self.app, self.client);
        let before = client.nodes().await?;
        let workers: Vec<&ray::Node> = before.iter().filter(|node| node.alive && !node.is_head).collect();
        let wanted = wanted.map(Victim::name);
        let begin = wanted.as_deref().map(|name| node_of(&workers, name)).transpose()?;
        match workers.len() {
            0 => {
                let flag = format!(" -c {}", self.target.name);
                return Err(Error::new(ErrorKind::NotFound, "run the drill")
                    .because("no worker runs")
                    .hint(format!("gpucl worker list{flag}; gpucl up")));
            }
            1 => app.ui.status(format_args!(
                "there is one worker: while it is away, the training has nowhere to go, and waits until it is back"
            )),
            _ => {}
        }
        if let (Some(node), Some(name), false) = (&begin, &wanted, force) {
            self.refuse_others(node, name).await?;
        }
        let id = self.submit(begin.as_deref()).await?;
        app.ui.status(format_args!("a training runs as job {id}; its worker is killed after checkpoint {CHECKPOINT}"));
        let node = self.until_ripe(&id).await?;
        let names = names(&before);
        let name = names.get(&node).cloned().unwrap_or_default();
        let Some(victim) = Victim::of_node(app, self.target, &name).await? else {
            let who = if name.is_empty() { node } else { name };
            return Err(Error::new(ErrorKind::Unsupported, format!("kill the node {who}"))
                .because("the training runs on it, and it is not a worker of the spec")
                .hint("--worker NAME   # begins the training on that worker"));
        };
        if !force {
            self.refuse_others(&node, &name).await?;
        }
        self.killed = Some(victim.clone());
        victim.kill(app, self.target).await?;
        let killed = Killed::of(&before, &node, matches!(victim, Victim::Pod(..)));
        let mut measured = self.measure(&id, &killed, &victim).await?;
        if let Victim::Pod(pods, _) = &victim {
            // A pod that is there since the fault is known by its address alone.
            let names = pods.names().await.unwrap_or_default();
            measured.node = measured.node.map(|node| names.get(&node).cloned().unwrap_or(node));
        }
        // From here on there is nothing to put right.
        (self.job, self.killed) = (None, None);
        let checks = verify::check(app, &self.target.name).await.map(|verified| verified.passed);
        self.report(&id, &victim, &measured, checks.as_ref().ok().copied());
        checks?;
        match measured.ended {
            Some((_, JobStatus::Succeeded)) if measured.resumed.is_some() => Ok(exit_code::DONE),
            _ => Err(Error::new(ErrorKind::Ray, "go on after the fault")
                .because("the training did not come to its end")
                .hint(format!("gpucl job logs {id} -c {}", self.target.name))),
        }
    }

    async fn submit(&mut self, begin: Option<&str>) -> Result<String> {
        let doing = || Error::new(ErrorKind::Internal, "pack the training");
        let folder = tempfile::tempdir().map_err(|error| doing().caused_by(&error))?;
        fs_err::write(folder.path().join("training.py"), TRAINING).map_err(|error| doing().caused_by(&error))?;
        let package = Package::of_folder(folder.path(), &[])?;
        self.client.upload(&package, None).await?;
        let id = format!("drill-{}", random::letters(8)?);
        let mut words = vec!["python", "training.py", &id, &self.checkpoints];
        words.extend(begin);
        let mut runtime_env = serde_json::Map::new();
        runtime_env.insert("working_dir".to_owned(), package.uri().into());
        // Ray would hold back lines of the second start that are like those of the first.
        let variables = json!({"RAY_DEDUP_LOGS": "0", "RAY_TRAIN_V2_ENABLED": "1"});
        runtime_env.insert("env_vars".to_owned(), variables);
        let request = SubmitRequest {
            entrypoint: ray::shell_line(&words),
            submission_id: Some(id.clone()),
            runtime_env,
            ..SubmitRequest::default()
        };
        self.job = Some(id.clone());
        self.client.submit(request).await
    }

    /// Waits until the training is to be interrupted; returns Ray's id of the node that it runs on.
    async fn until_ripe(&self, id: &str) -> Result<String> {
        let begun = Instant::now();
        let mut say = SAY_EVERY;
        loop {
            let (job, log) = tokio::join!(self.client.job(id), self.client.logs(id));
            let (job, log) = (job?, log.unwrap_or_default());
            if let Some(node) = due_to_be_killed(&heard(&log).said, CHECKPOINT, STEPS_MORE) {
                return Ok(node.to_owned());
            }
            let doing = || Error::new(ErrorKind::Ray, format!("bring the training to checkpoint {CHECKPOINT}"));
            let hint = format!("gpucl job logs {id} -c {}", self.target.name);
            if job.status.is_terminal() {
                let why = self.why(&job).await.unwrap_or_else(|| "it ended before".to_owned());
                return Err(doing().because(why).hint(hint));
            }
            if begun.elapsed() >= BEGIN_LIMIT {
                let why = self.why(&job).await.unwrap_or_else(|| "it is slow".to_owned());
                let limit = human::duration(BEGIN_LIMIT);
                return Err(doing().because(format!("it is not there after {limit}: {why}")).hint(hint));
            }
            if begun.elapsed() >= say {
                say += SAY_EVERY;
                let why = self.why(&job).await.map(|why| format!(": {why}")).unwrap_or_default();
                let waited = human::short_duration(begun.elapsed());
                self.app.ui.status(format_args!("waiting for checkpoint {CHECKPOINT} for {waited}{why}"));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Why the training waits or failed.
    async fn why(&self, job: &Job) -> Option<String> {
        ray::reason(job, &self.client.situation(job).await.unwrap_or_default())
    }

    /// Refuses to kill a worker that other jobs run on.
    async fn refuse_others(&self, node: &str, name: &str) -> Result<()> {
        let mut jobs = self.client.jobs().await?;
        jobs.retain(|job| job.was_submitted() && Some(job.id()) != self.job.as_deref());
        let holdings: BTreeMap<String, Holding> = self.client.holdings(&jobs).await?;
        let there = |(_, holding): &(&String, &Holding)| holding.nodes.contains(node);
        let others: Vec<&str> = holdings.iter().filter(there).map(|(job, _)| job.as_str()).collect();
        if others.is_empty() {
            return Ok(());
        }
        Err(usage(
            format!("kill {name}"),
            format!("other jobs run on it, and would lose what they do there: {}", others.join(", ")),
        )
        .hint("--worker NAME   # another worker")
        .hint("--force         # kills it all the same"))
    }

    /// Waits until the cluster has recovered and the training has ended, and measures when what happened.
    async fn measure(&self, id: &str, killed: &Killed, victim: &Victim) -> Result<Measured> {
        let (begun, name) = (Instant::now(), victim.name());
        let (mut measured, mut say, mut is_started) = (Measured::default(), SAY_EVERY, false);
        loop {
            let (nodes, job, log) = tokio::join!(self.client.nodes(), self.client.job(id), self.client.logs(id));
            // Ray may be too busy to answer at once.
            if let (Ok(nodes), Ok(job), Ok(log)) = (nodes, job, log) {
                measured.take(begun.elapsed(), killed, &nodes, &heard(&log), job.status);
            }
            if measured.is_complete() {
                return Ok(measured);
            }
            let waited = begun.elapsed();
            if measured.back.is_none() && !is_started && waited >= RETURN_LIMIT {
                is_started = true;
                if victim.start(self.app, self.target).await?.is_some() {
                    self.app.ui.status(format_args!("{name} did not come back by itself; it was started"));
                }
            }
            if waited >= RECOVERY_LIMIT {
                let limit = human::duration(RECOVERY_LIMIT);
                return Err(Error::new(ErrorKind::Timeout, format!("recover from the loss of {name}"))
                    .because(format!("still waiting for {} after {limit}", measured.awaited()))
                    .hint(format!("gpucl job status {id} -c {}", self.target.name)));
            }
            if waited >= say {
                say += SAY_EVERY;
                let waited = human::short_duration(waited);
                self.app.ui.status(format_args!("waiting for {}: {waited}", measured.awaited()));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    fn report(&self, id: &str, victim: &Victim, measured: &Measured, checks: Option<usize>) {
        let (app, worker) = (self.app, victim.name());
        let seconds = |time: Option<Duration>| time.map(|time| (time.as_secs_f64() * 10.0).round() / 10.0);
        let to = measured.node.as_deref();
        let result = measured.ended.map(|(_, status)| status.as_str());
        let is_back = measured.back.is_some();
        if app.json() {
            app.ui.json(&json!({
                "v": 1, "type": "drill", "drill": "kill-worker", "cluster": self.target.name, "job": id,
                "worker": worker, "detected_s": seconds(measured.detected),
                "rescheduled_s": seconds(measured.rescheduled), "rescheduled_to": to,
                "resumed_s": seconds(measured.resumed), "checkpoint": measured.checkpoint,
                "steps_lost": measured.lost, "result": result,
                "ended_s": seconds(measured.ended.map(|(at, _)| at)), "back_s": seconds(measured.back),
                "checks": checks,
            }));
            return;
        }
        let after = |time: Option<Duration>| time.map_or_else(|| "never".to_owned(), human::short_duration);
        let times = |count: u32, what: &str| human::count(count as usize, what);
        let from = match measured.checkpoint {
            0 => "from the beginning".to_owned(),
            number => format!("from checkpoint {number}"),
        };
        let mut table = Table::new(&["after the fault", "time", "what was seen"]);
        table.row(["detected", &after(measured.detected), &format!("Ray misses {worker}")]);
        table.row(["rescheduled", &after(measured.rescheduled), &to.map(|to| format!("on {to}")).unwrap_or_default()]);
        table.row(["resumed", &after(measured.resumed), &format!("{from}; {} lost", times(measured.lost, "step"))]);
        table.row(["result", &after(measured.ended.map(|(at, _)| at)), result.unwrap_or("unknown")]);
        table.row([
            "back",
            &after(measured.back),
            match (is_back, victim) {
                (false, _) => "",
                (true, Victim::Worker(_)) => "the worker is a node again",
                (true, Victim::Pod(..)) => "another pod is in its place",
            },
        ]);
        let checks = checks.map_or_else(|| "failed".to_owned(), |checks| human::count(checks, "check") + " passed");
        table.row(["whole", "", &checks]);
        app.ui.data(table);
    }

    /// After a drill that was broken off: stops the training, and starts the worker that was killed.
    async fn put_right(&mut self) {
        let app = self.app;
        let failed = |error: &Error| {
            print_error(error, app.ui.format());
        };
        if let Some(id) = self.job.take() {
            let client: &Client = self.client;
            let stopped = async {
                if client.job(&id).await?.status.is_terminal() {
                    return Ok(());
                }
                app.ui.status(format_args!("stopping job {id}"));
                client.stop(&id).await?;
                until_stopped(app, client, &id, STOP_LIMIT).await.map(|_| ())
            };
            match stopped.await {
                // It was never submitted.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => failed(&error),
                Ok(()) => {}
            }
        }
        if let Some(victim) = self.killed.take() {
            match victim.start(app, self.target).await {
                Ok(Some(summary)) => app.ui.status(summary),
                Ok(None) => {}
                Err(error) => failed(&error),
            }
        }
    }
}

/// Ray's id of the node of a worker.
fn node_of(workers: &[&ray::Node], name: &str) -> Result<String> {
    let found = workers.iter().find(|node| node.given_name() == Some(name)).map(|node| node.node_id.clone());
    found.ok_or_else(|| usage(format!("kill {name}"), "it does not run").hint(format!("gpucl worker start {name}")))
}
