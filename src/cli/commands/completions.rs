//! `gpucl completions`.

use clap_complete::Shell;

use crate::cli::app::App;
use crate::cli::exit_code;

/// The arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for
    shell: Shell,
}

pub(crate) async fn run(app: &App, args: Args, mut command: clap::Command) -> anyhow::Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "gpucl", &mut text);
    app.ui.verbatim(&String::from_utf8_lossy(&text));
    Ok(exit_code::DONE)
}
