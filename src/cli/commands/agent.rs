//! `gpucl agent`.

use crate::cli::app::App;
use crate::error::{Error, ErrorKind, Result};

/// The arguments of `agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_app: &App, _args: Args) -> Result<u8> {
    Err(Error::new(ErrorKind::Internal, "run `agent`").because("not written yet"))
}
