//! Logs of pods, through their platform.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{Args, Shown};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::ctrl_c;
use crate::cluster::{PodHost, Pods};
use crate::error::Result;
use crate::host::Host as _;
use crate::provider::platform::LogOptions;

/// Prints the logs of all pods or of one; lines of several are interleaved as they arrive.
pub(super) async fn run(app: &App, args: &Args, pods: &Arc<Pods>) -> anyhow::Result<u8> {
    let mut interrupt = ctrl_c()?;
    let chosen = match &args.node {
        Some(name) => vec![pods.named(name).await?],
        None => pods.members().await?,
    };
    let shown = Shown { program: app.ui.program(args.raw), labelled: chosen.len() > 1 };
    let tail = args.tail.map(|lines| u32::try_from(lines).unwrap_or(u32::MAX));
    let options = LogOptions { tail, follow: args.follow, previous: args.previous };
    let platform = pods.platform()?;
    let shows = chosen.iter().map(|member| {
        let (host, options, shown) = (PodHost::new(pods, member), &options, &shown);
        async move { platform.logs(host.member(), options, &mut |line| shown.line(app, host.name(), line)).await }
    });
    let ends = tokio::select! {
        ends = join_all(shows) => ends,
        _ = interrupt.recv() => return Ok(exit_code::INTERRUPTED),
    };
    ends.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(exit_code::DONE)
}
