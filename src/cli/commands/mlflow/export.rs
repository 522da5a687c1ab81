//! `gpucl mlflow export`.

use std::path::PathBuf;

use super::progress::{Direction, Progress};
use super::way::Way;
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::Ends;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind};
use crate::mlflow;

/// The arguments of `mlflow export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder to make
    #[arg(value_name = "DIR")]
    to: PathBuf,
}

pub(super) async fn run(app: &App, args: &Args) -> anyhow::Result<u8> {
    let mut ends = Ends::listen()?;
    let target = Target::choose(app)?;
    let way = Way::open(app, &target).await?;
    let progress = Progress::new(app);
    let to = app.here.join(&args.to);
    let work = mlflow::export(&way.server, &to, target.name.as_str(), &progress);
    let done = ends.unless(work).await;
    way.close().await;
    let Some(done) = done else {
        return Err(Error::new(ErrorKind::Cancelled, format!("export to {}", args.to.display()))
            .because("it was interrupted; nothing is left of it")
            .into());
    };
    progress.end(Direction::Export, &args.to, &done?);
    Ok(exit_code::DONE)
}
