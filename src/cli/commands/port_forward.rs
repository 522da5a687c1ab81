//! `gpucl port-forward`.

use std::net::SocketAddr;

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::signals::Ends;
use crate::cli::target::Target;

/// The arguments of `port-forward`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A host, named directly or by a node on it, and a port on its loopback, such as head:8265
    #[arg(value_name = "HOST:PORT")]
    there: String,
    /// The local loopback port; default: the same number if it is free, else any free port
    #[arg(value_name = "LOCAL", value_parser = clap::value_parser!(u16).range(1..))]
    local: Option<u16>,
}

/// Listens on the loopback until Ctrl-C, and reconnects when the connection is lost.
pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let doing = || format!("forward {}", args.there);
    let (name, port) =
        args.there.rsplit_once(':').ok_or_else(|| usage(doing(), "expected HOST:PORT, such as head:8265"))?;
    let port: u16 =
        port.parse().ok().filter(|port| *port > 0).ok_or_else(|| usage(doing(), format!("`{port}` is not a port")))?;
    let target = Target::choose(app)?;
    let mut ends = Ends::listen()?;
    let forward = target.machines(app).await?.forward(name, port, args.local).await?;
    report(app, forward.machine(), port, forward.local());
    ends.wait().await;
    forward.close().await;
    app.ui.status("closed: no listener is left");
    Ok(exit_code::DONE)
}

fn report(app: &App, name: &str, port: u16, local: SocketAddr) {
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "forward", "host": name, "port": port, "local": local.to_string(),
        }));
    } else {
        app.ui.data(format_args!("{local}"));
        app.ui.status(format_args!("port {port} of {name} answers at http://{local}; Ctrl-C closes it"));
    }
}
