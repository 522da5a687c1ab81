//! `gpucl stop`.

use crate::cli::app::App;
use crate::error::{Error, ErrorKind, Result};

/// The arguments of `stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_app: &App, _args: Args) -> Result<u8> {
    Err(Error::new(ErrorKind::Internal, "run `stop`").because("not written yet"))
}
