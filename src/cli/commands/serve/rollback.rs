//! `gpucl serve rollback`.

use std::time::Duration;

use super::deploy::{follow, values};
use super::open::Opened;
use crate::cli::app::App;
use crate::ray::DEFAULT_APPLICATION;

/// The arguments of `serve rollback`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The application's name
    #[arg(default_value = DEFAULT_APPLICATION)]
    name: String,
    /// How many seconds it may take until the application serves
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

pub(crate) async fn run(app: &App, args: &Args) -> anyhow::Result<u8> {
    let opened = Opened::of(app).await?;
    let _lock = opened.lock(app, "serve rollback")?;
    let served = opened.served();
    let names = served.secrets_to_roll_back(&args.name).await?;
    let secrets = values(app, names.iter().map(|(variable, name)| (name, variable)))?;
    let limit = Duration::from_secs(args.timeout);
    Ok(follow(app, &args.name, served.roll_back(&args.name, &secrets, limit)).await?)
}
