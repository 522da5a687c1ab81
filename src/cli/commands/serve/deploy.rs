//! `gpucl serve deploy`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::open::Opened;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::commands::job::cluster_flag;
use crate::cli::commands::job::upload::{pack, upload};
use crate::cli::exit_code;
use crate::cluster::serve::Brought;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{self, RuntimeEnv};
use crate::util::fence::Fence;
use crate::util::human;

/// The name of an application that has none, as with Serve.
pub(super) const DEFAULT: &str = "default";

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
    let opened = Opened::of(app).await?;
    let _lock = opened.lock(app, "serve deploy")?;
    for packed in pack(app, folder, modules).await? {
        let uri = upload(app, &opened.client, &packed).await?;
        match packed.module {
            Some(at) => environment.set_module(at, uri),
            None => environment.set_working_dir(uri),
        }
    }
    let wanted = ray::application(&args.name, &args.route_prefix, &args.import_path, environment.into_fields());
    let (served, wanted) = (opened.served(), BTreeMap::from([(args.name.clone(), wanted)]));
    Ok(follow(app, &args.name, served.bring(&wanted, Duration::from_secs(args.timeout))).await?)
}

/// Waits for a deployment, and says how it went; Ctrl-C ends the waiting, and not the deployment.
pub(super) async fn follow(app: &App, what: &str, bringing: impl Future<Output = Result<Brought>>) -> Result<u8> {
    let brought = tokio::select! {
        brought = bringing => brought?,
        Ok(()) = tokio::signal::ctrl_c() => {
            return Err(Error::new(ErrorKind::Cancelled, format!("wait for {what}"))
                .because("Ctrl-C; the deployment goes on")
                .hint(format!("gpucl serve status{}", cluster_flag(app))));
        }
    };
    if brought.deployed.is_empty() {
        app.ui.data(format_args!("{what} serves this already; nothing was changed"));
        return Ok(exit_code::DONE);
    }
    for name in &brought.deployed {
        if app.json() {
            app.ui.json(&json!({
                "v": 1, "type": "serve_deployed", "application": name, "milliseconds": brought.took.as_millis(),
            }));
        } else {
            app.ui.data(format_args!("{name} serves ({})", human::short_duration(brought.took)));
        }
    }
    if !app.json() {
        app.ui.status(format_args!("ask it: gpucl serve url{}", cluster_flag(app)));
    }
    Ok(exit_code::DONE)
}
