//! `gpucl man`.

use std::path::{Path, PathBuf};

use crate::cli::app::App;
use crate::cli::command_error::nothing_written;
use crate::cli::exit_code;
use crate::error::{Doing as _, ErrorKind};
use crate::util::folder::{Existing, Goal};

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
            let mut command = command.disable_help_subcommand(true);
            command.build();
            let mut pages = Vec::new();
            collect(command, &mut pages).doing(ErrorKind::Internal, doing)?;
            let names = pages.iter().map(|(name, _)| Path::new(name));
            let folder = Goal::named(&folder).open(names, Existing::Replaced);
            let folder = folder.doing(ErrorKind::State, doing).map_err(nothing_written)?;
            for (name, text) in &pages {
                folder.write(Path::new(name), text).doing(ErrorKind::State, doing)?;
            }
        }
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text).doing(ErrorKind::Internal, doing)?;
            app.ui.verbatim(&String::from_utf8_lossy(&text));
        }
    }
    Ok(exit_code::DONE)
}

/// Renders the pages of a command and of all below it, by the names of their files.
fn collect(command: clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        collect(below, pages)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((page.get_filename(), text));
    Ok(())
}
