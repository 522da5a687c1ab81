//! `gpucl serve delete`.

use std::time::Duration;

use super::open::Opened;
use crate::cli::app::App;
use crate::cli::exit_code;

/// The arguments of `serve delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The application's name
    name: Option<String>,
    /// How many seconds its requests in flight may take
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
}

pub(crate) async fn run(app: &App, args: &Args) -> anyhow::Result<u8> {
    let opened = Opened::of(app).await?;
    let _lock = opened.lock(app, "serve delete")?;
    let Some(name) = &args.name else {
        opened.served().end().await?;
        app.ui.data("Serve has ended: no application is left");
        return Ok(exit_code::DONE);
    };
    opened.served().delete(std::slice::from_ref(name), Duration::from_secs(args.timeout)).await?;
    app.ui.data(format_args!("{name} is deleted"));
    Ok(exit_code::DONE)
}
