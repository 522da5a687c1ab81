//! Decides whether a cluster on a platform is ready.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::goal;
use super::on_platform::OnPlatform;
use super::preparation::{self, Prepared};
use crate::cluster::checks::Checks;
use crate::cluster::machines::{Bridge, DASHBOARD_PORT, PodHost, Pods, RemotePort, short};
use crate::cluster::outcome::Verified;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::{CheckOutcome, WorkerGpus};
use crate::host::{ExecEnd, Host as _, Stream};
use crate::name::Scope;
use crate::provider::platform::{ClusterRequest, Isolation, Member, NodeGroup, Preparation};
use crate::ray::{Client, Node, TokenChoice};
use crate::render::quote;
use crate::runtime::project::{CheckLine, checks_of};
use crate::spec::{GpuProof, Spec};
use crate::util::human;

/// The port of Ray's GCS on the head.
const GCS_PORT: u16 = 6379;
/// The program that runs inside Ray.
const PROBE: &str = "templates/ray-native/probe.py";
/// How long it may take, in seconds.
const PROBE_LIMIT: u64 = 60;
/// A path that only the token opens.
const GUARDED: &str = "/api/version";
/// How long nodes may take to be ready again before that counts.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two looks at nodes.
const PAUSE: Duration = Duration::from_millis(500);

/// What is tried beside the checks of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trying {
    /// Everything that can be.
    Everything,
    /// What an `up` has changed: nodes get what changed of their data and files. What takes long is tried the first time.
    AfterUp { is_first: bool },
}

/// Runs all checks, and decides.
///
/// # Errors
/// [`ErrorKind::NotReady`] when a check failed, or could not be made.
pub(super) async fn verify_cluster(on: &OnPlatform, trying: Trying) -> Result<Verified> {
    let spec = &on.spec;
    let wanted = match trying {
        Trying::Everything => None,
        Trying::AfterUp { .. } => on.request.preparation.as_ref(),
    };
    let is_first = trying != Trying::AfterUp { is_first: false };
    let request = goal::of_spec(spec, false);
    let members = all_members(on, &request).await?;
    let mut checks = Checks::new(&on.settings.events);
    check_groups(&mut checks, &request, &members);
    let Some(head) = members.iter().find(|member| member.is_head && member.ready) else {
        return checks.finish(&spec.name, Vec::new(), &[]);
    };
    let bridge = Bridge::open(Arc::clone(&on.pods), RemotePort::head(DASHBOARD_PORT), 0).await?;
    let client = Client::new(format!("http://{}", bridge.local()), token(&on.credentials)?);
    let (nodes, version, refused, lines, prepared, isolation) = tokio::join!(
        alive(on, &client, &members, spec.timeouts.ready.0),
        client.version(),
        tokens(&client),
        probe(on, spec, &request, &members, head),
        prepared(on, spec, &members, wanted),
        isolation(on, head, is_first),
    );
    // Head and workers of different versions do not even join; but all of them may be another than the spec's.
    let found = version?.ray_version;
    let saw = match found == spec.ray.version {
        true => format!("Ray {found}"),
        false => format!("the image has Ray {found}, and the spec says {}", spec.ray.version),
    };
    checks.passed("version", "head", found == spec.ray.version, saw);
    check_nodes(&mut checks, &on.pods, &request, &members, &nodes?);
    let mut lines = lines?;
    checks.lines(&mut lines);
    let workers = members.iter().filter(|member| !member.is_head && member.ready);
    checks.complete(workers.map(|worker| ("task ran", short(on.scope(), worker))), &lines);
    for (name, prepared) in prepared? {
        checks.passed("data and files", &name, prepared.passed, prepared.saw);
    }
    if let Some(isolation) = isolation? {
        report_isolation(&mut checks, isolation);
    }
    let (passed, saw) = refused?;
    checks.passed("token enforced", "dashboard", passed, saw);
    let of_gpus = || lines.iter().filter(|line| line.check == "gpu");
    checks.distinct(of_gpus().flat_map(|line| line.gpus.iter().map(|gpu| (line.target.clone(), gpu.clone()))));
    if spec.gpu == GpuProof::Declared {
        for member in members.iter().filter(|member| gpus_of(&request, member) > 0) {
            let saw = format!("{} declared, not seen", human::count(gpus_of(&request, member) as usize, "logical GPU"));
            checks.report("gpu", &short(on.scope(), member), CheckOutcome::Declared, saw);
        }
    }
    let gpus = of_gpus().filter_map(|line| worker_gpus(on.scope(), &members, line)).collect();
    checks.finish(&spec.name, gpus, &[])
}

/// Whether others are kept away from the head's GCS; `None` where it is not asked. It takes some seconds.
async fn isolation(on: &OnPlatform, head: &Member, wanted: bool) -> Result<Option<Isolation>> {
    if !wanted {
        return Ok(None);
    }
    on.platform()?.isolation(on.scope(), head, GCS_PORT).await.map(Some)
}

fn report_isolation(checks: &mut Checks<'_>, isolation: Isolation) {
    let (outcome, saw) = match isolation {
        Isolation::Enforced => (CheckOutcome::Passed, format!("another pod does not reach port {GCS_PORT}")),
        Isolation::Open => (
            CheckOutcome::Declared,
            format!("not enforced by this network: another pod reaches port {GCS_PORT}, which asks for the token"),
        ),
        Isolation::Unknown(why) => (CheckOutcome::Declared, format!("not tried: {why}")),
    };
    checks.report("network policy", "head", outcome, saw);
}

/// What every node says of its data and files.
async fn prepared(
    on: &OnPlatform,
    spec: &Spec,
    members: &[Member],
    wanted: Option<&Preparation>,
) -> Result<Vec<(String, Prepared)>> {
    let ready = members.iter().filter(|member| member.ready && spec.has_data());
    let checked = ready.map(|member| async move {
        let limit = spec.timeouts.data.0;
        let name = short(on.scope(), member);
        let host = PodHost::new(&on.pods, member);
        let prepared = tokio::time::timeout(limit, preparation::check(&host, wanted)).await.map_err(|_| {
            Error::new(ErrorKind::Timeout, format!("prepare {name}"))
                .because(format!("its data and files did not come within {}", human::short_duration(limit)))
                .hint("`timeouts: {data: 2h}` in the spec gives them longer")
        })??;
        Ok::<_, Error>((name, prepared))
    });
    futures_util::future::try_join_all(checked).await
}

/// The members, once every group has those that it should have, or after some patience: one may just be coming back.
async fn all_members(on: &OnPlatform, request: &ClusterRequest) -> Result<Vec<Member>> {
    let begun = Instant::now();
    loop {
        let members = on.pods.members().await?;
        let has_all = |group: &NodeGroup| {
            let ready = members.iter().filter(|member| member.group == group.name && member.ready).count();
            ready >= wanted(group)
        };
        if begun.elapsed() >= PATIENCE || std::iter::once(&request.head).chain(&request.workers).all(has_all) {
            return Ok(members);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// How many nodes a group has at least.
fn wanted(group: &NodeGroup) -> usize {
    if group.scales() { group.min as usize } else { group.count as usize }
}

/// Whether every group has the nodes that it should have.
fn check_groups(checks: &mut Checks<'_>, request: &ClusterRequest, members: &[Member]) {
    for group in std::iter::once(&request.head).chain(&request.workers) {
        let of_group: Vec<&Member> = members.iter().filter(|member| member.group == group.name).collect();
        let ready = of_group.iter().filter(|member| member.ready).count();
        let wanted = wanted(group);
        let range = if group.scales() { format!("{} to {}", group.min, group.max) } else { group.count.to_string() };
        let waits: Vec<&str> =
            of_group.iter().filter(|member| !member.ready).map(|member| member.detail.as_str()).collect();
        let why = if waits.is_empty() { String::new() } else { format!(": {}", waits.join("; ")) };
        checks.passed("group", &group.name, ready >= wanted, format!("{ready} ready, {range} wanted{why}"));
    }
}

/// How long Ray may list a node as alive whose pod was killed: its health check fails five times, every three seconds,
/// and each may wait ten more for an answer.
const UNNOTICED: Duration = Duration::from_secs(75);

/// Ray's nodes, once all members are among those that are alive, and those that were killed are not: jobs that Ray sends
/// there are lost.
async fn alive(on: &OnPlatform, client: &Client, members: &[Member], limit: Duration) -> Result<Vec<Node>> {
    let begun = Instant::now();
    let address_of = |member: &Member| member.address.clone();
    let mut known: BTreeSet<String> = members.iter().filter_map(address_of).collect();
    loop {
        let nodes = client.nodes().await;
        let is_there = |member: &Member, nodes: &[Node]| {
            nodes.iter().any(|node| node.alive && Some(&node.address) == member.address.as_ref())
        };
        match nodes {
            Ok(nodes) if members.iter().filter(|member| member.ready).all(|member| is_there(member, &nodes)) => {
                let mut alive = nodes.iter().filter(|node| node.alive);
                if begun.elapsed() >= UNNOTICED.min(limit) || alive.all(|node| known.contains(&node.address)) {
                    return Ok(nodes);
                }
                tokio::time::sleep(PAUSE).await;
                // Or it is of a pod that was added since.
                known.extend(on.pods.members().await?.iter().filter_map(address_of));
            }
            result if begun.elapsed() >= limit => return result,
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Whether every member is a node of Ray, with what its group was promised.
fn check_nodes(checks: &mut Checks<'_>, pods: &Pods, request: &ClusterRequest, members: &[Member], nodes: &[Node]) {
    for member in members.iter().filter(|member| member.ready) {
        let name = short(pods.scope(), member);
        let node = nodes.iter().find(|node| node.alive && Some(&node.address) == member.address.as_ref());
        let Some(node) = node else {
            checks.report("node alive", &name, CheckOutcome::Failed, "Ray does not know it, or says that it is dead");
            continue;
        };
        let has = |resource: &str| node.resources.get(resource).copied().unwrap_or_default();
        let mut missing = Vec::new();
        if let Some(group) = group_of(request, member) {
            let cpus = group.cpus.unwrap_or(u32::from(!member.is_head));
            let mut wanted: Vec<(&str, f64)> = vec![("CPU", f64::from(cpus)), ("GPU", f64::from(group.gpus))];
            wanted.extend(group.resources.iter().map(|(name, amount)| (name.as_str(), *amount)));
            let lacks = |(name, amount): &(&str, f64)| (has(name) - amount).abs() > 1e-6;
            missing.extend(
                wanted
                    .iter()
                    .filter(|one| lacks(one))
                    .map(|(name, amount)| format!("{name} is {}, not {amount}", has(name))),
            );
        }
        let memory = human::bytes(has("memory") as u64);
        let saw =
            format!("ALIVE with {} CPU, {} GPU, {memory} for tasks, on {}", has("CPU"), has("GPU"), member.machine);
        let saw = if missing.is_empty() { saw } else { format!("{saw}; {}", missing.join("; ")) };
        checks.passed("node alive", &name, missing.is_empty(), saw);
    }
}

/// What Ray answers without the token, with a wrong one and with the right one.
async fn tokens(client: &Client) -> Result<(bool, String)> {
    let (none, wrong, right) = tokio::try_join!(
        client.probe(GUARDED, TokenChoice::None),
        client.probe(GUARDED, TokenChoice::Wrong),
        client.probe(GUARDED, TokenChoice::Right),
    )?;
    let passed = matches!(none, 401 | 403) && matches!(wrong, 401 | 403) && right == 200;
    Ok((passed, format!("without: {none}, wrong: {wrong}, right: {right}")))
}

/// Runs a task on every worker, with the proof of its GPUs.
async fn probe(
    on: &OnPlatform,
    spec: &Spec,
    request: &ClusterRequest,
    members: &[Member],
    head: &Member,
) -> Result<Vec<CheckLine>> {
    let doing = || format!("run the checks in {}", head.name);
    let workers: Vec<_> = members
        .iter()
        .filter(|member| !member.is_head && member.ready)
        .filter_map(|member| {
            let gpus = gpus_of(request, member);
            let mode = if gpus > 0 && spec.gpu == GpuProof::Proven { "proven" } else { "declared" };
            let resource = format!("node:{}", member.address.as_ref()?);
            let key = short(on.scope(), member);
            Some(json!({ "key": key, "node_resource": resource, "gpus": gpus, "gpu_mode": mode }))
        })
        .collect();
    let wanted = json!({ "workers": workers, "grpc_ports": [GCS_PORT], "timeout_s": PROBE_LIMIT, "lines": "check" });
    let (program, _) = on.settings.library.read(PROBE)?;
    let program = String::from_utf8(program).doing(ErrorKind::Internal, doing)?;
    let program = format!("python - {} <<'GPUCL_PROBE'\n{program}\nGPUCL_PROBE\n", quote(&wanted.to_string()));
    let (mut lines, mut errors) = (Vec::new(), Vec::new());
    let mut on_line = |stream: Stream, line: &str| match stream {
        Stream::Out => lines.push(line.to_owned()),
        Stream::Err => errors.push(line.to_owned()),
    };
    let host = PodHost::new(&on.pods, head);
    let run = host.exec(&program, &mut on_line);
    let limit = Duration::from_secs(PROBE_LIMIT + 30);
    let ended = tokio::time::timeout(limit, run).await.map_err(|_| {
        Error::new(ErrorKind::Timeout, doing()).because(format!("they did not end within {} s", limit.as_secs()))
    })??;
    let how = match ended {
        ExecEnd::Exited(0) => return Ok(checks_of(&lines)),
        ExecEnd::Exited(code) => format!("they ended with exit code {code}"),
        ExecEnd::Broken => "the connection to it broke".to_owned(),
    };
    let error = Error::new(ErrorKind::NotReady, doing()).because(how);
    Err(errors.last().into_iter().fold(error, |error, last| error.because(last)))
}

fn group_of<'a>(request: &'a ClusterRequest, member: &Member) -> Option<&'a NodeGroup> {
    match member.is_head {
        true => Some(&request.head),
        false => request.workers.iter().find(|group| group.name == member.group),
    }
}

fn gpus_of(request: &ClusterRequest, member: &Member) -> u32 {
    group_of(request, member).map_or(0, |group| group.gpus)
}

/// A worker's GPUs, for display.
fn worker_gpus(scope: &Scope, members: &[Member], line: &CheckLine) -> Option<WorkerGpus> {
    let machine = members.iter().find(|member| short(scope, member) == line.target).map(|member| &member.machine);
    Some(WorkerGpus {
        host: machine.cloned().unwrap_or_default(),
        worker: line.target.clone(),
        gpus: line.gpus.clone(),
        product: line.product.clone()?,
        proof: line.proof.clone()?,
    })
}

/// The token of a cluster.
fn token(folder: &Path) -> Result<secrecy::SecretString> {
    crate::secret::ray_token(folder)?
        .ok_or_else(|| Error::new(ErrorKind::State, "read the cluster's token").because("it is missing"))
}
