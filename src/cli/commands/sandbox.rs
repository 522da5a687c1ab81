//! `gpucl sandbox`.

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::error::{Doing as _, ErrorKind, Result};

pub(crate) mod chameleon;
pub(crate) mod lambda;

/// The stand-ins there are.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// A Chameleon site on the loopback, until Ctrl-C; its hosts are none, nobody can log in to them
    ///
    /// In one terminal: gpucl sandbox chameleon | tee chameleon.env
    /// In another: . ./chameleon.env; gpucl lease --node liqid01 --hours 3
    #[command(verbatim_doc_comment)]
    Chameleon(chameleon::Args),
    /// Lambda's cloud on the loopback, until Ctrl-C; its instances are made up, nobody can log in to them
    ///
    /// In one terminal: gpucl sandbox lambda | tee lambda.env
    /// In another: . ./lambda.env; gpucl offers --provider lambda
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

/// What a stand-in that serves says of itself.
struct Served {
    /// What its users set in the environment.
    variables: Vec<(String, String)>,
    /// Where it is steered.
    control: String,
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
    if app.json() {
        let variables: serde_json::Map<String, serde_json::Value> =
            served.variables.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        app.ui.json(&json!({
            "v": 1, "type": "sandbox", "variables": variables, "control": served.control, "stand_in": true,
        }));
    } else {
        for (name, value) in served.variables {
            app.ui.data(format_args!("export {name}='{value}'"));
        }
    }
    served.what.iter().for_each(|line| app.ui.status(line));
    app.ui.status(format_args!("what it holds: curl {}/snapshot", served.control));
    app.ui.status("serving until Ctrl-C");
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        _ = hung_up.recv() => {}
    }
    app.ui.status(end().await?);
    Ok(exit_code::DONE)
}
