//! `gpucl serve deploy` and `gpucl serve delete`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::history::History;
use super::way::{Way, key, listens};
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::commands::job::cluster_flag;
use crate::cli::commands::job::upload::{pack, upload};
use crate::cli::exit_code;
use crate::cli::target::{RayClient, Target};
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{self, Application, ApplicationStatus, HttpOptions, RuntimeEnv, Serving};
use crate::state::Lock;
use crate::util::fence::Fence;
use crate::util::{human, near};

/// The name of an application that has none, as with Serve.
pub(super) const DEFAULT: &str = "default";
/// How often Serve is asked how a deployment goes.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Where applications come from that were deployed by a configuration.
const DECLARATIVE: &str = "declarative";

/// The arguments of `serve deploy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The application: MODULE:VARIABLE, such as app:food
    #[arg(value_name = "IMPORT_PATH")]
    import_path: String,
    /// The application's name
    #[arg(long, default_value = DEFAULT)]
    name: String,
    /// Where its URLs begin
    #[arg(long, value_name = "PATH", default_value = "/")]
    route_prefix: String,
    /// The folder with the module; it is packed and uploaded; or the URL of a package
    #[arg(long, value_name = "DIR", default_value = ".")]
    working_dir: PathBuf,
    /// The runtime environment: a YAML or JSON file, or inline JSON
    #[arg(long, value_name = "FILE_OR_JSON")]
    runtime_env: Option<String>,
    /// An environment variable of the application; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = crate::cli::commands::job::ray_flags::pair)]
    env: Vec<(String, String)>,
    /// How many seconds it may take until the application serves
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let Some((module, variable)) = args.import_path.split_once(':').filter(|(module, variable)| {
        let is_name =
            |text: &str| !text.is_empty() && text.chars().all(|it| it.is_alphanumeric() || it == '_' || it == '.');
        is_name(module) && is_name(variable)
    }) else {
        return Err(usage("deploy", format!("`{}` is not MODULE:VARIABLE, such as app:food", args.import_path)).into());
    };
    if !args.route_prefix.starts_with('/') {
        return Err(usage("deploy", "--route-prefix begins with /, such as /food").into());
    }
    let here = &app.here;
    let fence = Fence::new(here, "the working folder", &[])?.sparing(&app.user_environment().home);
    let mut environment = match &args.runtime_env {
        Some(text_or_path) => RuntimeEnv::read(text_or_path, &fence)?,
        None => RuntimeEnv::default(),
    };
    for (name, value) in &args.env {
        environment.set_variable(name, value)?;
    }
    let chosen = (!environment.has_working_dir()).then_some(args.working_dir.as_path());
    let folder = environment.take_working_dir(chosen, here)?;
    let modules = environment.local_modules(here)?;
    if let Some(ray::WorkingDir::Folder(folder, _)) = &folder {
        let file = module.split('.').next().unwrap_or_default();
        if !folder.join(format!("{file}.py")).exists() && !folder.join(file).is_dir() {
            app.ui.status(format_args!(
                "note: {} has no {file}.py; `{variable}` is found where the nodes have a module {module}",
                folder.display()
            ));
        }
    }
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    let _lock = Lock::take(&app.paths, &target.name, "serve deploy")?;
    for packed in pack(app, folder, modules).await? {
        let uri = upload(app, &client, &packed).await?;
        match packed.module {
            Some(at) => environment.set_module(at, uri),
            None => environment.set_working_dir(uri),
        }
    }
    let wanted = ray::application(&args.name, &args.route_prefix, &args.import_path, environment.into_fields());
    let limit = Duration::from_secs(args.timeout);
    Ok(bring(app, &target, &client, &args.name, &wanted, limit).await?)
}

/// Brings an application to this configuration, and waits until it serves.
pub(super) async fn bring(
    app: &App,
    target: &Target,
    client: &RayClient,
    name: &str,
    wanted: &Value,
    limit: Duration,
) -> Result<u8> {
    let listens = listens(target)?;
    let before = client.serving().await?;
    let runs = before.applications.get(name);
    let is_new = runs.is_none_or(|it| it.deployed_app_config.as_ref() != Some(wanted));
    if !is_new && runs.is_some_and(|it| it.status == ApplicationStatus::Running) {
        app.ui.data(format_args!("{name} serves this already; nothing was changed"));
        return Ok(exit_code::DONE);
    }
    refuse_another_port(&before, &listens)?;
    let mut all = declared(&before);
    all.insert(name.to_owned(), wanted.clone());
    let begun = Instant::now();
    client.serve(&all.into_values().collect::<Vec<_>>(), &listens).await?;
    let application = until_over(app, client, name, limit).await?;
    let mut history = History::read(target.folder())?;
    if application.status != ApplicationStatus::Running {
        let flag = cluster_flag(app);
        let why = application.why().unwrap_or_else(|| "Serve does not say why".to_owned());
        let mut error = Error::new(ErrorKind::NotReady, format!("deploy {name}")).because(why);
        error = error.hint(format!("gpucl serve logs {name}{flag}"));
        if history.before(name, Some(wanted)).is_some() {
            error = error.hint(format!("gpucl serve rollback {name}{flag}   # to what served before"));
        }
        return Err(error);
    }
    let way = Way::open(app, target).await?;
    let closed = way.check(&key(target)?).await;
    way.close().await;
    if let Err(error) = closed {
        // Open to everybody is worse than not there.
        client.end_serving().await?;
        return Err(error.because("Serve was ended"));
    }
    history.add(name, wanted)?;
    if app.json() {
        app.ui.json(&json!({"v": 1, "type": "serve_deployed", "application": name, "milliseconds": begun.elapsed().as_millis()}));
    } else {
        app.ui.data(format_args!("{name} serves ({})", human::short_duration(begun.elapsed())));
        app.ui.status(format_args!("ask it: gpucl serve url{}", cluster_flag(app)));
    }
    Ok(exit_code::DONE)
}

/// The configurations of all applications that were deployed by one: those that are not sent again are deleted.
fn declared(serving: &Serving) -> BTreeMap<String, Value> {
    let declared = serving.applications.iter().filter(|(_, it)| it.source == DECLARATIVE);
    declared.filter_map(|(name, it)| Some((name.clone(), it.deployed_app_config.clone()?))).collect()
}

/// Serve listens where its first configuration said, and takes another port without a word.
fn refuse_another_port(serving: &Serving, listens: &HttpOptions) -> Result<()> {
    let Some(options) = serving.http_options.as_ref().filter(|_| !serving.applications.is_empty()) else {
        return Ok(());
    };
    if options == listens {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, "deploy")
        .because(format!("Serve was started by a job, and listens at {}:{}", options.host, options.port))
        .hint("gpucl serve delete   # ends it and its applications; then deploy again"))
}

/// Waits until an application serves or has failed.
async fn until_over(app: &App, client: &RayClient, name: &str, limit: Duration) -> Result<Application> {
    let (begun, mut said) = (Instant::now(), String::new());
    loop {
        let serving = client.serving().await?;
        let application = serving.applications.get(name);
        if let Some(application) = application.filter(|it| it.is_over()) {
            return Ok(application.clone());
        }
        let why = application.and_then(Application::why).unwrap_or_default();
        if !why.is_empty() && why != said {
            app.ui.status(format_args!("{name}: {why}"));
            said.clone_from(&why);
        }
        if begun.elapsed() > limit {
            let error = Error::new(ErrorKind::NotReady, format!("deploy {name}"))
                .because(format!("it does not serve after {}", human::short_duration(limit)))
                .hint("gpucl serve status");
            return Err(if why.is_empty() { error } else { error.because(why) });
        }
        tokio::select! {
            () = tokio::time::sleep(ASK_EVERY) => {}
            Ok(()) = tokio::signal::ctrl_c() => {
                return Err(Error::new(ErrorKind::Cancelled, format!("wait for {name}"))
                    .because("Ctrl-C; the deployment goes on")
                    .hint("gpucl serve status"));
            }
        }
    }
}

/// The arguments of `serve delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// The application's name
    name: Option<String>,
    /// How many seconds its requests in flight may take
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
}

pub(crate) async fn delete(app: &App, args: &DeleteArgs) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    let _lock = Lock::take(&app.paths, &target.name, "serve delete")?;
    let serving = client.serving().await?;
    let Some(name) = &args.name else {
        client.end_serving().await?;
        app.ui.data("Serve has ended: no application is left");
        return Ok(exit_code::DONE);
    };
    let application = named(&serving, name)?;
    if application.source != DECLARATIVE {
        return Err(Error::new(ErrorKind::Unsupported, format!("delete {name}"))
            .because("a job deployed it with serve.run; a job can delete it: serve.delete")
            .into());
    }
    let mut all = declared(&serving);
    all.remove(name);
    client.serve(&all.into_values().collect::<Vec<_>>(), &listens(&target)?).await?;
    let (begun, limit) = (Instant::now(), Duration::from_secs(args.timeout));
    while client.serving().await?.applications.contains_key(name) {
        if begun.elapsed() > limit {
            return Err(Error::new(ErrorKind::LeftBehind, format!("delete {name}"))
                .because(format!("it still ends after {}", human::short_duration(limit)))
                .into());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    app.ui.data(format_args!("{name} is deleted"));
    Ok(exit_code::DONE)
}

/// The application of this name.
///
/// # Errors
/// If there is none; a near name is said.
pub(super) fn named<'a>(serving: &'a Serving, name: &str) -> Result<&'a Application> {
    serving.applications.get(name).ok_or_else(|| {
        let error = Error::new(ErrorKind::NotFound, format!("find the application {name}"));
        match near::nearest(name, serving.applications.keys().map(String::as_str)) {
            Some(near) => error.because("Serve has none of that name").hint(format!("did you mean `{near}`?")),
            None if serving.applications.is_empty() => error.because("Serve has no applications"),
            None => {
                let names: Vec<&str> = serving.applications.keys().map(String::as_str).collect();
                error.because(format!("there are: {}", names.join(", ")))
            }
        }
    })
}
