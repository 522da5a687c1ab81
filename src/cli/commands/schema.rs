//! `gpucl schema`.

use anyhow::Context as _;

use crate::cli::app::App;
use crate::cli::exit_code;

/// The arguments of `schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> anyhow::Result<u8> {
    let schema = crate::spec::schema(crate::providers::all())?;
    if app.json() {
        app.ui.json(&schema);
    } else {
        let text = serde_json::to_string_pretty(&schema).context("write the schema")?;
        app.ui.data(text);
    }
    Ok(exit_code::DONE)
}
