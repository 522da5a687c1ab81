//! `gpucl serve rollback`.

use std::time::Duration;

use super::deploy::{DEFAULT, bring};
use super::history::History;
use crate::cli::app::App;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind};
use crate::state::Lock;

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
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    let _lock = Lock::take(&app.paths, &target.name, "serve rollback")?;
    let name = &args.name;
    let serving = client.serving().await?;
    let current = serving.applications.get(name).and_then(|it| it.deployed_app_config.as_ref());
    let mut history = History::read(target.folder())?;
    let before = history.before(name, current).cloned().ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("go back with {name}"))
            .because("nothing else of it served before, as far as this machine knows")
    })?;
    let code = bring(app, &target, &client, name, &before, Duration::from_secs(args.timeout)).await?;
    history.go_back_to(name, &before)?;
    Ok(code)
}
