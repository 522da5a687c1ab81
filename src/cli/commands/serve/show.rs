//! `gpucl serve status`, `logs` and `url`.

use secrecy::ExposeSecret as _;
use serde_json::json;

use super::open::Opened;
use crate::cli::app::App;
use crate::cli::commands::job::cluster_flag;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::signals::Ends;
use crate::cli::target::Target;
use crate::cluster::serve::{named, port};
use crate::error::{Error, ErrorKind};
use crate::ray::{ApplicationStatus, DEFAULT_APPLICATION, Deployment, Replica, Requests};

/// The shares of requests whose times are shown.
const HALF: f64 = 0.5;
const MOST: f64 = 0.95;

/// The arguments of `serve status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Only this application
    name: Option<String>,
}

pub(crate) async fn status(app: &App, args: &StatusArgs) -> anyhow::Result<u8> {
    let opened = Opened::of(app).await?;
    let (served, client) = (opened.served(), &opened.client);
    let serving = client.serving().await?;
    if let Some(name) = &args.name {
        named(&serving, name)?;
    }
    let nodes = client.nodes().await?;
    let node = |replica: &Replica| {
        let found = nodes.iter().find(|node| replica.node_id.as_ref() == Some(&node.node_id));
        found.map_or_else(|| "nowhere yet".to_owned(), |node| node.name().to_owned())
    };
    let is_shown = |name: &String| args.name.as_ref().is_none_or(|one| one == name);
    let mut shown = Vec::new();
    for (name, application) in serving.applications.iter().filter(|(name, _)| is_shown(name)) {
        // What does not fit says more than Ray, which says nothing of it for 30 s. A failure costs only that.
        let unmet = served.unmet(application).await.ok().flatten().map(|unmet| unmet.why);
        let why = || application.why().filter(|_| application.status != ApplicationStatus::Running);
        shown.push((name, application, unmet.or_else(why)));
    }
    let requests = if shown.is_empty() { None } else { served.requests().await };
    if app.json() {
        for (name, application, why) in &shown {
            let deployments = application.deployments.iter().map(|(name, deployment)| {
                let replicas = deployment.replicas.iter().map(|replica| {
                    json!({"id": replica.replica_id, "state": replica.state, "node": node(replica), "pid": replica.pid})
                });
                json!({"name": name, "status": deployment.status, "wanted": deployment.target_num_replicas,
                       "resources": deployment.required_resources, "replicas": replicas.collect::<Vec<_>>()})
            });
            let requests = requests.as_ref().map(|all| all.get(*name).cloned().unwrap_or_default());
            app.ui.json(&json!({
                "v": 1, "type": "application", "name": name, "status": application.status,
                "route_prefix": application.route_prefix, "reason": why,
                "deployments": deployments.collect::<Vec<_>>(),
                "requests": requests.map(|requests| json!({
                    "all": requests.all, "failed": requests.failed, "p50_ms": requests.within(HALF),
                    "p95_ms": requests.within(MOST),
                })),
            }));
        }
        return Ok(exit_code::DONE);
    }
    if shown.is_empty() {
        app.ui.status("Serve has no applications; `gpucl serve deploy MODULE:VARIABLE` makes one");
        return Ok(exit_code::DONE);
    }
    let mut titles = vec!["application", "deployment", "status", "replicas", "each takes", "on"];
    if requests.is_some() {
        titles.extend(["requests", "failed", "half within", "95 % within"]);
    }
    let mut table = Table::new(&titles);
    for (name, application, _) in &shown {
        let of_requests = requests.as_ref().map(|all| all.get(*name).cloned().unwrap_or_default());
        let mut of_requests = of_requests.map(|requests| columns(&requests)).unwrap_or_default();
        if application.deployments.is_empty() {
            let mut row = vec![String::new(); 6];
            (row[0], row[2]) = ((*name).clone(), word(application.status));
            row.append(&mut of_requests);
            table.row(row);
        }
        for (deployment_name, deployment) in &application.deployments {
            let mut on: Vec<String> = deployment.replicas.iter().map(node).collect();
            on.sort();
            on.dedup();
            let mut row = vec![
                (*name).clone(),
                deployment_name.clone(),
                deployment.status.to_lowercase(),
                format!("{} of {}", deployment.running(), deployment.target_num_replicas),
                takes(deployment),
                on.join(", "),
            ];
            // They are of the whole application: once.
            row.append(&mut of_requests);
            row.resize(titles.len(), String::new());
            table.row(row);
        }
    }
    app.ui.data(table);
    for (name, _, why) in shown {
        if let Some(why) = why {
            app.ui.data(format_args!("{name}: {why}"));
        }
    }
    Ok(exit_code::DONE)
}

/// The columns with requests and their times.
fn columns(requests: &Requests) -> Vec<String> {
    let time = |share: f64| requests.within(share).map(|time| format!("{time:.0} ms")).unwrap_or_default();
    vec![requests.all.to_string(), requests.failed.to_string(), time(HALF), time(MOST)]
}

fn word(status: ApplicationStatus) -> String {
    let text = serde_json::to_value(status).ok();
    text.as_ref().and_then(|text| text.as_str()).unwrap_or_default().to_lowercase().replace('_', " ")
}

/// What each replica takes: `1 CPU, 1 GPU`.
fn takes(deployment: &Deployment) -> String {
    let all = deployment.required_resources.iter().filter(|(_, amount)| **amount > 0.0);
    all.map(|(name, amount)| format!("{amount} {name}")).collect::<Vec<_>>().join(", ")
}

/// The arguments of `serve logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// The application's name
    #[arg(default_value = DEFAULT_APPLICATION)]
    name: String,
    /// How many lines of each replica
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tail: u32,
}

pub(crate) async fn logs(app: &App, args: &LogsArgs) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    let serving = client.serving().await?;
    let application = named(&serving, &args.name)?;
    let mut found = false;
    for (name, deployment) in &application.deployments {
        // Those that ended say why they did.
        let ended = deployment.recent_dead_replicas.iter().rev().take(1).filter(|_| deployment.running() == 0);
        for replica in ended.chain(&deployment.replicas) {
            match client.replica_log(replica, args.tail as usize).await {
                Ok(text) => {
                    found = true;
                    text.lines().for_each(|line| app.ui.data(format_args!("{name}#{}| {line}", replica.replica_id)));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => app.ui.status(format_args!("warning: failed to {error}")),
            }
        }
    }
    if !found {
        let why = application.why().unwrap_or_else(|| "none of its replicas has begun".to_owned());
        return Err(Error::new(ErrorKind::NotFound, format!("read the logs of {}", args.name)).because(why).into());
    }
    Ok(exit_code::DONE)
}

/// The arguments of `serve url`.
#[derive(Debug, clap::Args)]
pub(crate) struct UrlArgs {
    /// The application's name
    #[arg(default_value = DEFAULT_APPLICATION)]
    name: String,
}

pub(crate) async fn url(app: &App, args: &UrlArgs) -> anyhow::Result<u8> {
    let opened = Opened::of(app).await?;
    let serving = opened.client.serving().await?;
    let prefix = named(&serving, &args.name)?.route_prefix.clone().unwrap_or_default();
    let mut ends = Ends::listen()?;
    let (way, key) = (opened.served().way().await?, opened.served().key());
    let (address, port) = (format!("{}{prefix}", way.url), port(&opened.target.known.state)?);
    if app.json() {
        app.ui.json(&json!({"v": 1, "type": "serve_url", "url": address, "port": port, "key": key.expose_secret()}));
    } else {
        app.ui.data(format_args!("{address}\nX-Gpucl-Key: {}", key.expose_secret()));
        app.ui.status("send the second line as a header, or the key as a bearer token; Ctrl-C closes the address");
        app.ui
            .status(format_args!("from another local port: gpucl port-forward head:{port} LOCAL{}", cluster_flag(app)));
    }
    ends.wait().await;
    way.close().await;
    Ok(exit_code::DONE)
}
