//! `gpucl sandbox`.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::Ends;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::sandbox::CONTROL_HEADER;
use crate::util::fs::{remove_tree, write_atomic};
use crate::util::runtime_dir::make_runtime_dir;
use crate::util::text::quoted;

pub(crate) mod chameleon;
pub(crate) mod lambda;

/// The stand-ins.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Serve a Chameleon site on the loopback, until Ctrl-C; its hosts are simulated and accept no logins
    ///
    /// In one terminal: gpucl sandbox chameleon
    /// In another: run the line that it prints, which sets the credential; then gpucl lease --node liqid01 --hours 3
    #[command(verbatim_doc_comment)]
    Chameleon(chameleon::Args),
    /// Serve Lambda's cloud on the loopback, until Ctrl-C; its instances are logins of yours, each with its own home
    ///
    /// In one terminal: gpucl sandbox lambda
    /// In another: run the line that it prints, which sets the key; then gpucl offers --provider lambda
    #[command(verbatim_doc_comment)]
    Lambda(lambda::Args),
}

/// Where a stand-in listens.
#[derive(Debug, clap::Args)]
pub(crate) struct Listen {
    /// The port on the loopback; default: any free port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// The variables of [`Served`] that are credentials. They go into a file readable only by this user, never to output:
/// printed text ends up in files that others may read, and a key of the Lambda stand-in logs in as this user.
const CREDENTIALS: [&str; 2] = ["LAMBDA_API_KEY", "OS_APPLICATION_CREDENTIAL_SECRET"];

/// The description of a running stand-in.
struct Served {
    /// Its name and port, unique on this machine.
    name: String,
    /// The environment variables that its users set.
    variables: Vec<(String, String)>,
    /// The URL of its control interface.
    control: String,
    /// The secret that control requests carry.
    control_secret: String,
    /// Lines that describe it to the user.
    what: Vec<String>,
}

/// Serves one of the stand-ins.
pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Chameleon(args) => chameleon::run(app, args).await,
        Command::Lambda(args) => lambda::run(app, args).await,
    }
}

/// Prints how to use the stand-in, waits for Ctrl-C, and prints the result of `end`.
async fn serve(app: &App, served: Served, end: impl AsyncFnOnce() -> Result<String>) -> anyhow::Result<u8> {
    let mut ends = Ends::listen()?;
    let files = Files::write(&app.paths.runtime, &served)?;
    if app.json() {
        let is_public = |(name, _): &&(String, String)| !CREDENTIALS.contains(&name.as_str());
        let variables: serde_json::Map<String, serde_json::Value> =
            served.variables.iter().filter(is_public).map(|(name, value)| (name.clone(), json!(value))).collect();
        app.ui.json(&json!({
            "v": 1, "type": "sandbox", "variables": variables, "env_file": files.env(), "control": served.control,
            "control_file": files.control(), "stand_in": true,
        }));
    } else {
        app.ui.data(format_args!(". {}", quoted(&files.env().display().to_string())));
    }
    served.what.iter().for_each(|line| app.ui.status(line));
    let header = quoted(&format!("@{}", files.control().display()));
    app.ui.status(format_args!("its resources: curl -H {header} {}/snapshot", served.control));
    app.ui.status("serving until Ctrl-C");
    ends.wait().await;
    app.ui.status(end().await?);
    Ok(exit_code::DONE)
}

/// The secrets of a stand-in, in a private folder that is removed with it.
struct Files(PathBuf);

impl Files {
    fn write(runtime: &Path, served: &Served) -> Result<Self> {
        let doing = || format!("write the credentials of the stand-in to {}", runtime.display());
        make_runtime_dir(runtime)?;
        let files = Self(runtime.join(&served.name));
        make_runtime_dir(&files.0)?;
        let exports: String =
            served.variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
        let header = format!("{CONTROL_HEADER}: {}\n", served.control_secret);
        for (path, text) in [(files.env(), exports), (files.control(), header)] {
            write_atomic(&path, text.as_bytes(), 0o600).doing(ErrorKind::Internal, doing)?;
        }
        Ok(files)
    }

    /// The file that a shell sources: the variables.
    fn env(&self) -> PathBuf {
        self.0.join("env")
    }

    /// The header of control requests, as `curl -H @FILE` reads it.
    fn control(&self) -> PathBuf {
        self.0.join("control")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The secrets are useless once the stand-in has stopped.
        let _ = remove_tree(&self.0);
    }
}
