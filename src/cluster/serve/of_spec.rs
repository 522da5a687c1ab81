//! The applications of a spec: planned, deployed by `up`, and asked by its checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::secrets::{id_of_values, values_of};
use super::{History, SecretValues, Served, Way};
use crate::cluster::access::access;
use crate::cluster::checks::Checks;
use crate::cluster::errors::not_running;
use crate::cluster::machines::Machines;
use crate::cluster::outcome::Verified;
use crate::cluster::settings::Settings;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::CheckOutcome;
use crate::host::SECRETS;
use crate::ray::{Application, ApplicationStatus, Package, RuntimeEnv, ServeApplication, Serving};
use crate::spec::{ServeRequest, ServeSpec, Spec};
use crate::state::ClusterState;
use crate::util::http::body;
use crate::util::human;

/// How long the applications of a spec may take until they serve: models are loaded.
const SERVE_WITHIN: Duration = Duration::from_secs(20 * 60);
/// How long the requests in flight of one that is deleted may take.
const END_WITHIN: Duration = Duration::from_secs(120);
/// The timeout of the request of a check: the first one may compile a model.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// The most that is read of the answer to a check, in bytes.
const ANSWER_LIMIT: usize = 8 * 1024 * 1024;

/// What `up` did for the applications of a spec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::cluster) struct OfSpec {
    /// How many were deployed or deleted.
    pub(in crate::cluster) changed: usize,
    /// How many checks of them passed.
    pub(in crate::cluster) passed: usize,
}

/// An application of a spec, as it is to be deployed.
struct Wanted {
    configuration: Value,
    /// Its folder, packed.
    package: Option<Package>,
    secrets: SecretValues,
}

impl Wanted {
    /// Has it find its secrets by this id.
    fn set_secrets(&mut self, id: String) {
        self.configuration["runtime_env"]["env_vars"][SECRETS] = Value::String(id);
    }
}

/// Brings a cluster that is ready to the applications of its spec, and checks them.
///
/// # Errors
/// [`ErrorKind::NotReady`] if one does not serve, or answers otherwise than the spec says.
pub(in crate::cluster) async fn bring_of_spec(
    settings: &Settings,
    state: &ClusterState,
    folder: &Path,
    spec: &Spec,
) -> Result<OfSpec> {
    let mut history = History::read(folder)?;
    if spec.serve.is_empty() && history.of_spec().is_empty() {
        return Ok(OfSpec::default());
    }
    let mut wanted = wanted(settings, spec).await?;
    let open = Open::of(settings, state, folder).await?;
    let served = open.served(settings, state, folder);
    let serving = served.client.serving().await?;
    let gone = gone(&history, &serving, &wanted);
    if !gone.is_empty() {
        served.delete(&gone, END_WITHIN).await?;
        gone.iter().for_each(|name| settings.events.note(format!("{name} is deleted: the spec has it no longer")));
    }
    // Before they are deployed: what fails is of the spec, too.
    history.set_of_spec(wanted.keys().cloned().collect())?;
    for one in wanted.values_mut() {
        // Also where it serves already: a host may have been added.
        if !one.secrets.is_empty() {
            let id = served.give_secrets(&one.secrets).await?;
            one.set_secrets(id);
        }
        if let Some(package) = &one.package {
            served.client.upload(package, None).await?;
            served.keep(package)?;
        }
    }
    let configurations = wanted.into_iter().map(|(name, one)| (name, one.configuration)).collect();
    let brought = served.bring(&configurations, SERVE_WITHIN).await?;
    for name in &brought.deployed {
        settings.events.note(format!("{name} serves ({})", human::short_duration(brought.took)));
    }
    let passed = check(settings, spec, &served).await?.passed;
    Ok(OfSpec { changed: gone.len() + brought.deployed.len(), passed })
}

/// Checks the applications of a spec: each serves, and answers its request as the spec says.
///
/// # Errors
/// [`ErrorKind::NotReady`] if one does not.
pub(in crate::cluster) async fn check_of_spec(
    settings: &Settings,
    state: &ClusterState,
    folder: &Path,
    spec: &Spec,
) -> Result<Verified> {
    if spec.serve.is_empty() {
        return Ok(Verified::default());
    }
    let open = Open::of(settings, state, folder).await?;
    check(settings, spec, &open.served(settings, state, folder)).await
}

/// What `up` would do for the applications of a spec, one sentence each.
pub(in crate::cluster) async fn plan_of_spec(
    settings: &Settings,
    state: &ClusterState,
    folder: &Path,
    spec: &Spec,
    starts_head: impl Future<Output = Result<bool>>,
) -> Result<Vec<String>> {
    let history = History::read(folder)?;
    if spec.serve.is_empty() && history.of_spec().is_empty() {
        return Ok(Vec::new());
    }
    let mut wanted = wanted(settings, spec).await?;
    for one in wanted.values_mut().filter(|one| !one.secrets.is_empty()) {
        one.set_secrets(id_of_values(folder, &one.secrets)?);
    }
    // What cannot be asked does not serve.
    let serving = match access(&settings.paths, state) {
        Ok(_) if !starts_head.await? => Open::of(settings, state, folder).await?.client.serving().await?,
        _ => Serving::default(),
    };
    let mut all = Vec::new();
    for application in &spec.serve {
        let Some(one) = wanted.get(&application.name) else { continue };
        if super::bring::serves(&serving, &application.name, &one.configuration) {
            continue;
        }
        let verb = if serving.applications.contains_key(&application.name) { "update" } else { "deploy" };
        let ServeSpec { name, import_path, route_prefix, .. } = application;
        all.push(format!("{verb} the application {name}: {import_path} at {route_prefix}"));
    }
    all.extend(gone(&history, &serving, &wanted).iter().map(|name| format!("delete the application {name}")));
    Ok(all)
}

/// The applications that were in the spec, are not any more, and are still there.
fn gone(history: &History, serving: &Serving, wanted: &BTreeMap<String, Wanted>) -> Vec<String> {
    let gone = history.of_spec().iter().filter(|name| !wanted.contains_key(*name));
    gone.filter(|name| serving.applications.get(*name).is_some_and(Application::is_declared)).cloned().collect()
}

/// The applications of a spec by their names, with their folders packed.
async fn wanted(settings: &Settings, spec: &Spec) -> Result<BTreeMap<String, Wanted>> {
    let mut all = BTreeMap::new();
    for application in &spec.serve {
        all.insert(application.name.clone(), wanted_one(settings, application).await?);
    }
    Ok(all)
}

async fn wanted_one(settings: &Settings, spec: &ServeSpec) -> Result<Wanted> {
    let secrets = values_of(settings, spec)?;
    let mut environment = RuntimeEnv::default();
    environment.add_packages(&spec.pip)?;
    for (name, value) in &spec.env {
        environment.set_variable(name, value)?;
    }
    let package = match spec.source.as_deref().map(PathBuf::from) {
        Some(folder) => {
            // Folders such as `.ssh` and `.aws` are not for nodes, wherever the spec is.
            let packing =
                tokio::task::spawn_blocking(move || Package::of_folder(&folder, &["**/.*/".to_owned()])).await;
            Some(packing.map_err(|error| {
                Error::new(ErrorKind::Internal, format!("pack the folder of {}", spec.name)).caused_by(&error)
            })??)
        }
        None => None,
    };
    if let Some(package) = &package {
        environment.set_working_dir(package.uri());
    }
    let mut application = ServeApplication::new(&spec.name, &spec.route_prefix, &spec.import_path, environment)?;
    if !spec.args.is_empty() {
        application = application.with("args", json!(spec.args));
    }
    if !spec.deployments.is_empty() {
        application = application.with("deployments", json!(spec.deployments));
    }
    Ok(Wanted { configuration: application.into_configuration(), package, secrets })
}

/// Checks each application of a spec.
async fn check(settings: &Settings, spec: &Spec, served: &Served<'_>) -> Result<Verified> {
    if spec.serve.is_empty() {
        return Ok(Verified::default());
    }
    let mut checks = Checks::new(&settings.events);
    let mut broken = Vec::new();
    let serving = served.client.serving().await?;
    let way = served.way().await?;
    for application in &spec.serve {
        let (name, is) = (&application.name, serving.applications.get(&application.name));
        let serves = is.is_some_and(|is| is.status == ApplicationStatus::Running);
        let saw = match is {
            Some(is) if serves => human::count(is.running_replicas(), "replica"),
            Some(is) => is.why().unwrap_or_else(|| "it does not serve".to_owned()),
            None => "it is not there".to_owned(),
        };
        checks.passed("application", name, serves, saw.as_str());
        if !serves {
            broken.push(format!("{name}: {saw}"));
        }
        let Some(request) = application.request.as_ref().filter(|_| serves) else { continue };
        let (outcome, saw) = match ask(&way, served, &application.route_prefix, request).await {
            Ok(saw) => (CheckOutcome::Passed, saw),
            Err(why) => {
                broken.push(format!("{name}: {why}"));
                (CheckOutcome::Failed, why)
            }
        };
        checks.report("request", name, outcome, saw);
    }
    way.close().await;
    checks.finish(&spec.name, Vec::new(), &broken)
}

/// Sends a request of a spec; what was seen, or what is wrong with the answer.
async fn ask(way: &Way, served: &Served<'_>, prefix: &str, wanted: &ServeRequest) -> Result<String, String> {
    let sent = format!("{} {}{}", wanted.method(), prefix.trim_end_matches('/'), wanted.path);
    let answer = async {
        let doing = || format!("ask {sent}");
        let client = crate::util::http::built(crate::util::http::loopback_client(), doing)?;
        let method = wanted.method().parse().doing(ErrorKind::Internal, doing)?;
        let url = format!("{}{}{}", way.url, prefix.trim_end_matches('/'), wanted.path);
        let request = client.request(method, url).timeout(REQUEST_LIMIT).bearer_auth(served.key().expose_secret());
        let request = match &wanted.body {
            None => request,
            Some(Value::String(text)) => request.body(text.clone()),
            Some(value) => request.json(value),
        };
        let mut answer = request.send().await.doing(ErrorKind::NotReady, doing)?;
        let status = answer.status().as_u16();
        let text = body(&mut answer, ANSWER_LIMIT).await;
        let text =
            text.map_err(|_| Error::new(ErrorKind::NotReady, doing()).because("the answer broke off or is too long"))?;
        Ok::<_, Error>((status, String::from_utf8_lossy(&text).into_owned()))
    };
    match answer.await {
        Ok((status, text)) => match wanted.expect.fault(status, &text) {
            None => Ok(format!("{sent}: {status}")),
            Some(why) => Err(format!("{sent}: {why}: {}", crate::util::text::shortened(text.trim()))),
        },
        Err(error) => Err(format!("{sent}: {}", error.causes().last().map_or("no answer", String::as_str))),
    }
}

/// What the applications of a cluster are reached by.
struct Open {
    machines: Arc<Machines>,
    client: crate::cluster::machines::RayClient,
    token: secrecy::SecretString,
}

impl Open {
    async fn of(settings: &Settings, state: &ClusterState, folder: &Path) -> Result<Self> {
        let access = access(&settings.paths, state);
        let environment = settings.environment.clone();
        let machines = Arc::new(Machines::of(&settings.paths, state, &settings.context(), environment, access).await?);
        let token = crate::secret::ray_token(folder)?.ok_or_else(|| not_running(state))?;
        let client = machines.ray(state, token.clone()).await?;
        Ok(Self { machines, client, token })
    }

    fn served<'a>(&'a self, settings: &'a Settings, state: &'a ClusterState, folder: &'a Path) -> Served<'a> {
        let (client, machines, events) = (&self.client, &self.machines, &settings.events);
        Served { state, folder, token: self.token.clone(), client, machines, events }
    }
}
