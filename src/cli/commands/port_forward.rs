//! `gpucl port-forward`.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::signals::Ends;
use crate::cli::target::Target;
use crate::cluster::{Bridge, Machines, PodHost, Pods, RemotePort};
use crate::error::{Error, ErrorKind};
use crate::host::{Host as _, Tunnel};

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
    let remote = match target.machines(app).await?.as_ref() {
        Machines::Pods(pods) => return in_pod(app, pods, name, port, args.local).await,
        Machines::Ssh(remote) => remote,
        Machines::Here { .. } => {
            return Err(Error::new(ErrorKind::Unsupported, doing())
                .because(format!("the hosts of {} are this machine", target.name))
                .hint(format!("use port {port} of this machine's loopback directly"))
                .into());
        }
    };
    let mut ends = Ends::listen()?;
    let host = remote.host(name)?;
    let ssh = remote.connect(host).await?;
    let tunnel = match args.local {
        Some(local) => Tunnel::open(ssh, port, local).await?,
        None => match Tunnel::open(ssh, port, port).await {
            Ok(tunnel) => tunnel,
            Err(_) => Tunnel::open(ssh, port, 0).await?,
        },
    };
    report(app, host.name(), port, tunnel.local());
    ends.wait().await;
    tunnel.close().await;
    app.ui.status("closed: no listener is left");
    Ok(exit_code::DONE)
}

/// Forwards a port of a pod through its platform until Ctrl-C. A head that is made again is found again.
async fn in_pod(app: &App, pods: &Arc<Pods>, name: &str, port: u16, local: Option<u16>) -> anyhow::Result<u8> {
    let mut ends = Ends::listen()?;
    let member = pods.named(name).await?;
    let far = RemotePort { member: (!member.is_head).then(|| member.name.clone()), port };
    let bridge = match local {
        Some(local) => Bridge::open(Arc::clone(pods), far, local).await?,
        None => match Bridge::open(Arc::clone(pods), far.clone(), port).await {
            Ok(bridge) => bridge,
            Err(_) => Bridge::open(Arc::clone(pods), far, 0).await?,
        },
    };
    report(app, PodHost::new(pods, &member).name(), port, bridge.local());
    ends.wait().await;
    drop(bridge);
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
