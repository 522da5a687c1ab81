//! `gpucl port-forward`.

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::target::ANSWER;
use crate::cli::target::Target;
use crate::cluster;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::Tunnel;

/// The arguments of `port-forward`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A host, by its name or a node's on it, and a port of its loopback: head:8265
    #[arg(value_name = "HOST:PORT")]
    there: String,
    /// The port on this machine's loopback; the same number when it is free, else any
    #[arg(value_name = "LOCAL", value_parser = clap::value_parser!(u16).range(1..))]
    local: Option<u16>,
}

/// Listens on the loopback until Ctrl-C, and makes the connection anew when it is lost.
pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let doing = || format!("forward {}", args.there);
    let (name, port) =
        args.there.rsplit_once(':').ok_or_else(|| usage(doing(), "it takes HOST:PORT, such as head:8265"))?;
    let port: u16 =
        port.parse().ok().filter(|port| *port > 0).ok_or_else(|| usage(doing(), format!("`{port}` is no port")))?;
    let target = Target::choose(app)?;
    let remote = cluster::connections(&app.paths, &target.known.state, app.provider_context(app.plain_events()))
        .await?
        .ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, doing())
                .because(format!("the hosts of {} are this machine", target.name))
                .hint(format!("port {port} of this machine's loopback is that port"))
        })?;
    let listen = |kind| signal(kind).doing(ErrorKind::Internal, || "listen for Ctrl-C".to_owned());
    let (mut interrupted, mut terminated, mut hung_up) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let host = remote.host(name)?;
    let ssh = remote.connections.connect(host.name(), host.home(), ANSWER, std::future::pending()).await?;
    let tunnel = match args.local {
        Some(local) => Tunnel::open(&ssh, port, local).await?,
        None => match Tunnel::open(&ssh, port, port).await {
            Ok(tunnel) => tunnel,
            Err(_) => Tunnel::open(&ssh, port, 0).await?,
        },
    };
    let local = tunnel.local();
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "forward", "host": host.name(), "port": port, "local": local.to_string(),
        }));
    } else {
        app.ui.data(format_args!("{local}"));
        app.ui.status(format_args!("port {port} of {} answers at http://{local}; Ctrl-C closes it", host.name()));
    }
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        _ = hung_up.recv() => {}
    }
    tunnel.close().await;
    ssh.close().await;
    app.ui.status("closed: no listener is left");
    Ok(exit_code::DONE)
}
