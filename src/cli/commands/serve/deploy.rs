//! `gpucl serve deploy`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::open::Opened;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::commands::job::cluster_flag;
use crate::cli::commands::job::ray_flags::pair;
use crate::cli::commands::job::upload::{Packed, pack, upload};
use crate::cli::commands::login::vault;
use crate::cli::exit_code;
use crate::cluster::serve::{Brought, SecretValues, Served};
use crate::error::{Error, ErrorKind, Result};
use crate::host::SECRETS;
use crate::ray::{DEFAULT_APPLICATION, RuntimeEnv, ServeApplication, ServeFile, WorkingDir, is_import_path};
use crate::util::fence::Fence;
use crate::util::{human, variable};

/// The arguments of `serve deploy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The application, as MODULE:VARIABLE such as app:food; or a config file of Serve with several, such as serve.yaml
    #[arg(value_name = "IMPORT_PATH")]
    what: String,
    /// The application's name; default: `default`, or as the file says
    #[arg(long)]
    name: Option<String>,
    /// Where its URLs begin; default: /, or as the file says
    #[arg(long, value_name = "PATH")]
    route_prefix: Option<String>,
    /// The folder with the module; it is packed and uploaded; or the URL of a package
    #[arg(long, value_name = "DIR", default_value = ".")]
    working_dir: PathBuf,
    /// The runtime environment: a YAML or JSON file, or inline JSON
    #[arg(long, value_name = "FILE_OR_JSON")]
    runtime_env: Option<String>,
    /// A package of the application's own, as pip takes it; repeatable
    #[arg(long, value_name = "PACKAGE")]
    pip: Vec<String>,
    /// An environment variable of the application; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// A value stored by `gpucl secret set`, as an environment variable of the application; Ray stores only a random id;
    /// repeatable
    #[arg(long, value_name = "NAME[=ENV_NAME]", value_parser = variable::secret)]
    secret: Vec<(String, String)>,
    /// How many seconds it may take until the application serves
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    // Everything that can be wrong on this machine, before the cluster is contacted.
    let mut applications = described(app, &args)?;
    let secrets = values(app, args.secret.iter().map(|(name, variable)| (name, variable)))?;
    let mut parts = Vec::new();
    for application in &mut applications {
        for (name, value) in &args.env {
            application.environment.set_variable(name, value)?;
        }
        if let Some(variable) = secrets.keys().find(|name| application.environment.has_variable(name)) {
            return Err(usage("deploy", format!("the variable {variable} is set twice")).into());
        }
        application.environment.add_packages(&args.pip)?;
        let chosen = (!application.environment.has_working_dir()).then_some(args.working_dir.as_path());
        let folder = application.environment.take_working_dir(chosen, &app.here)?;
        let modules = application.environment.local_modules(&app.here)?;
        note_missing_module(app, application, folder.as_ref());
        parts.push(pack(app, folder, modules).await?);
    }
    let opened = Opened::of(app).await?;
    let _lock = opened.lock(app, "serve deploy")?;
    let served = opened.served();
    let id = if secrets.is_empty() { None } else { Some(served.give_secrets(&secrets).await?) };
    let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
    for (mut application, packed) in applications.into_iter().zip(parts) {
        upload_parts(app, &served, &mut application.environment, &packed).await?;
        if let Some(id) = &id {
            application.environment.set_variable(SECRETS, id)?;
        }
        wanted.insert(application.name.clone(), application.into_configuration());
    }
    let names = wanted.keys().cloned().collect::<Vec<_>>().join(", ");
    Ok(follow(app, &names, served.bring(&wanted, Duration::from_secs(args.timeout))).await?)
}

/// The applications that the arguments describe.
fn described(app: &App, args: &Args) -> Result<Vec<ServeApplication>> {
    let fence = Fence::new(&app.here, "the working folder", &[])?.sparing(&app.user_environment().home);
    let is_file =
        Path::new(&args.what).extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|one| end == *one));
    if !is_file && !is_import_path(&args.what) {
        let why = format!("`{}` is not MODULE:VARIABLE, such as app:food, and not a config file of Serve", args.what);
        return Err(usage("deploy", why));
    }
    if !is_file {
        let environment = match &args.runtime_env {
            Some(text_or_path) => RuntimeEnv::read(text_or_path, &fence)?,
            None => RuntimeEnv::default(),
        };
        let name = args.name.as_deref().unwrap_or(DEFAULT_APPLICATION);
        let prefix = args.route_prefix.as_deref().unwrap_or("/");
        return Ok(vec![ServeApplication::new(name, prefix, &args.what, environment)?]);
    }
    let of_one = [
        ("--name", args.name.is_some()),
        ("--route-prefix", args.route_prefix.is_some()),
        ("--runtime-env", args.runtime_env.is_some()),
    ];
    if let Some((flag, _)) = of_one.iter().find(|(_, is_given)| *is_given) {
        return Err(usage("deploy", format!("{} says it for each application: leave {flag} out", args.what)));
    }
    let file = ServeFile::read(Path::new(&args.what), &fence)?;
    file.notes.iter().for_each(|note| app.ui.status(format_args!("note: {note}")));
    Ok(file.applications)
}

/// Says if the folder has not the module that is to be imported.
fn note_missing_module(app: &App, application: &ServeApplication, folder: Option<&WorkingDir>) {
    let (Some(WorkingDir::Folder(folder, _)), module) = (folder, application.module()) else { return };
    if !folder.join(format!("{module}.py")).exists() && !folder.join(module).is_dir() {
        app.ui.status(format_args!(
            "note: {} has no {module}.py; {} starts where the nodes have a module {module}",
            folder.display(),
            application.name
        ));
    }
}

/// Uploads the folder and the modules of an application.
async fn upload_parts(app: &App, served: &Served<'_>, environment: &mut RuntimeEnv, packed: &[Packed]) -> Result<()> {
    for packed in packed {
        let uri = upload(app, served.client, packed).await?;
        served.keep(&packed.package)?;
        match packed.module {
            Some(at) => environment.set_module(at, uri),
            None => environment.set_working_dir(uri),
        }
    }
    Ok(())
}

/// Reads secrets, pairs of a name and the variable that it becomes.
pub(super) fn values<'a>(app: &App, wanted: impl Iterator<Item = (&'a String, &'a String)>) -> Result<SecretValues> {
    let mut values = SecretValues::new();
    for (name, variable) in wanted {
        if values.insert(variable.clone(), (name.clone(), vault(app).secret(name)?)).is_some() {
            return Err(usage("deploy", format!("the variable {variable} is set twice")));
        }
    }
    Ok(values)
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
