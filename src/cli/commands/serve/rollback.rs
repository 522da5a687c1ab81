//! `gpucl serve rollback`.

use std::time::Duration;

use super::deploy::{DEFAULT, follow};
use super::open::Opened;
use crate::cli::app::App;

/// The arguments of `serve rollback`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The application's name
    #[arg(default_value = DEFAULT)]
    name: String,
    /// How many seconds it may take until the application serves
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

pub(crate) async fn run(app: &App, args: &Args) -> anyhow::Result<u8> {
    let opened = Opened::of(app).await?;
    let _lock = opened.lock(app, "serve rollback")?;
    let served = opened.served();
    Ok(follow(app, &args.name, served.roll_back(&args.name, Duration::from_secs(args.timeout))).await?)
}
