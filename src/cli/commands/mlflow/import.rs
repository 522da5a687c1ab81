//! `gpucl mlflow import`.

use std::path::PathBuf;

use super::progress::{Direction, Progress};
use super::way::Way;
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::Ends;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind};
use crate::mlflow::{self, ImportOptions};
use crate::state::Lock;

/// The arguments of `mlflow import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder that `mlflow export` made
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Give a new number to each version whose number another version of that model has there
    #[arg(long)]
    add_versions: bool,
}

pub(super) async fn run(app: &App, args: &Args) -> anyhow::Result<u8> {
    let mut ends = Ends::listen()?;
    let target = Target::choose(app)?;
    // Two imports at once would each make what both found missing.
    let _lock = Lock::take(&app.paths, &target.name, "mlflow import")?;
    let way = Way::open(app, &target).await?;
    let progress = Progress::new(app);
    let options = ImportOptions { add_versions: args.add_versions };
    let from = app.here.join(&args.from);
    let done = ends.unless(mlflow::import(&way.server, &from, options, &progress)).await;
    way.close().await;
    let Some(done) = done else {
        return Err(Error::new(ErrorKind::Cancelled, format!("import {}", args.from.display()))
            .because("it was interrupted")
            .hint("run it again: it goes on where it ended")
            .into());
    };
    progress.end(Direction::Import, &args.from, &done?);
    Ok(exit_code::DONE)
}
