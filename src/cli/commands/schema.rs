//! `gpucl schema`.

use crate::cli::app::App;
use crate::cli::command_error::internal;
use crate::cli::exit_code;
use crate::error::Result;

/// The arguments of `schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> Result<u8> {
    let schema = crate::spec::schema(crate::providers::all())?;
    if app.json() {
        app.ui.json(&schema);
    } else {
        let text = serde_json::to_string_pretty(&schema).map_err(|error| internal("write the schema", &error))?;
        app.ui.data(text);
    }
    Ok(exit_code::DONE)
}
