//! `gpucl agent`: started by `up`, not by people.

use crate::agent::{AgentConfig, serve};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::target;
use crate::error::Result;
use crate::name::Scope;

/// The arguments of `agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> Result<u8> {
    let scope = Scope { owner: crate::state::owner(&app.paths)?, cluster: target::name(app)? };
    serve(AgentConfig { paths: app.paths.clone(), scope }).await?;
    Ok(exit_code::DONE)
}
