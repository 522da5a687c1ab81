//! `gpucl job`.

use crate::cli::app::App;
use crate::error::{Error, ErrorKind, Result};

/// The commands below `job`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List
    List,
}

pub(crate) async fn run(_app: &App, _command: Command) -> Result<u8> {
    Err(Error::new(ErrorKind::Internal, "run `job`").because("not written yet"))
}
