//! `gpucl sandbox`.

use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::sandbox::CONTROL_HEADER;
use crate::util::fs::{remove_tree, write_atomic};
use crate::util::runtime_dir::make_runtime_dir;

pub(crate) mod chameleon;
pub(crate) mod lambda;

/// The stand-ins there are.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// A Chameleon site on the loopback, until Ctrl-C; its hosts are none, nobody can log in to them
    ///
    /// In one terminal: gpucl sandbox chameleon
    /// In another: the line that it prints, which sets the credential; then gpucl lease --node liqid01 --hours 3
    #[command(verbatim_doc_comment)]
    Chameleon(chameleon::Args),
    /// Lambda's cloud on the loopback, until Ctrl-C; its instances are logins of yours, each with a home of its own
    ///
    /// In one terminal: gpucl sandbox lambda
    /// In another: the line that it prints, which sets the key; then gpucl offers --provider lambda
    #[command(verbatim_doc_comment)]
    Lambda(lambda::Args),
}

/// Where a stand-in listens.
#[derive(Debug, clap::Args)]
pub(crate) struct Listen {
    /// The port on the loopback; any when absent
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// Variables of [`Served`] that are credentials: they are in a file of this user's alone, and are not printed. What is printed ends up in
/// files that others may read, and whoever has a key of the stand-in of Lambda can log in to its instances, which is as this user.
const CREDENTIALS: [&str; 2] = ["LAMBDA_API_KEY", "OS_APPLICATION_CREDENTIAL_SECRET"];

/// What a stand-in that serves says of itself.
struct Served {
    /// Its name and port: no other on this machine has them now.
    name: String,
    /// What its users set in the environment.
    variables: Vec<(String, String)>,
    /// Where it is steered.
    control: String,
    /// What a request there carries.
    control_secret: String,
    /// What it is, for people.
    what: Vec<String>,
}

/// Serves one of them.
pub(crate) async fn run(app: &App, command: Command) -> Result<u8> {
    match command {
        Command::Chameleon(args) => chameleon::run(app, args).await,
        Command::Lambda(args) => lambda::run(app, args).await,
    }
}

/// Says what serves, waits for Ctrl-C, and ends it; what `end` gives is said last.
async fn serve(app: &App, served: Served, end: impl AsyncFnOnce() -> Result<String>) -> Result<u8> {
    let listen = |kind| signal(kind).doing(ErrorKind::Internal, || "listen for Ctrl-C".to_owned());
    let (mut interrupted, mut terminated, mut hung_up) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let files = Files::write(&app.paths.runtime, &served)?;
    if app.json() {
        let is_told = |(name, _): &&(String, String)| !CREDENTIALS.contains(&name.as_str());
        let variables: serde_json::Map<String, serde_json::Value> =
            served.variables.iter().filter(is_told).map(|(name, value)| (name.clone(), json!(value))).collect();
        app.ui.json(&json!({
            "v": 1, "type": "sandbox", "variables": variables, "env_file": files.env(), "control": served.control,
            "control_file": files.control(), "stand_in": true,
        }));
    } else {
        app.ui.data(format_args!(". {}", word(&files.env().display().to_string())));
    }
    served.what.iter().for_each(|line| app.ui.status(line));
    let header = word(&format!("@{}", files.control().display()));
    app.ui.status(format_args!("what it holds: curl -H {header} {}/snapshot", served.control));
    app.ui.status("serving until Ctrl-C");
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        _ = hung_up.recv() => {}
    }
    app.ui.status(end().await?);
    Ok(exit_code::DONE)
}

/// What only this user may know of a stand-in, in a folder that goes with it.
struct Files(PathBuf);

impl Files {
    fn write(runtime: &Path, served: &Served) -> Result<Self> {
        let doing = || format!("write the credentials of the stand-in to {}", runtime.display());
        make_runtime_dir(runtime)?;
        let files = Self(runtime.join(&served.name));
        make_runtime_dir(&files.0)?;
        let exports: String =
            served.variables.iter().map(|(name, value)| format!("export {name}={}\n", word(value))).collect();
        let header = format!("{CONTROL_HEADER}: {}\n", served.control_secret);
        for (path, text) in [(files.env(), exports), (files.control(), header)] {
            write_atomic(&path, text.as_bytes(), 0o600).doing(ErrorKind::Internal, doing)?;
        }
        Ok(files)
    }

    /// What a shell reads: the variables.
    fn env(&self) -> PathBuf {
        self.0.join("env")
    }

    /// The header of requests for the control, as `curl -H @FILE` reads it.
    fn control(&self) -> PathBuf {
        self.0.join("control")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // They are worth nothing once nobody serves.
        let _ = remove_tree(&self.0);
    }
}

/// Any text as one word of a shell.
fn word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
