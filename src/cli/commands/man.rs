//! `gpucl man`.

use std::path::PathBuf;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::error::{Doing as _, ErrorKind};

/// The arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write a page for every command into this folder, which is created if needed
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

pub(crate) async fn run(app: &App, args: Args, command: clap::Command) -> anyhow::Result<u8> {
    let doing = || "write the man pages".to_owned();
    match args.to {
        Some(folder) => {
            fs_err::create_dir_all(&folder).doing(ErrorKind::State, doing)?;
            clap_mangen::generate_to(command, &folder).doing(ErrorKind::State, doing)?;
        }
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text).doing(ErrorKind::Internal, doing)?;
            app.ui.verbatim(&String::from_utf8_lossy(&text));
        }
    }
    Ok(exit_code::DONE)
}
