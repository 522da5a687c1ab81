//! `gpucl example`.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::render::{copy_example, examples};
use crate::util::folder::Goal;

/// The commands below `example`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the examples, and what each shows
    List,
    /// Copy an example into a folder; existing files are not overwritten
    Copy {
        /// The example, as `gpucl example list` shows it
        #[arg(value_name = "NAME")]
        name: String,
        /// The folder for its files, which is created if needed; default: ./NAME
        #[arg(value_name = "DIR")]
        to: Option<PathBuf>,
    },
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::List => list(app),
        Command::Copy { name, to } => {
            let goal = match &to {
                Some(folder) => Goal::named(folder),
                None => Goal::chosen(Path::new(""), Path::new(&name)),
            };
            for path in copy_example(&name, &goal)? {
                if app.json() {
                    app.ui.json(&serde_json::json!({ "v": 1, "type": "file", "path": path }));
                } else {
                    app.ui.data(path.display());
                }
            }
        }
    }
    Ok(exit_code::DONE)
}

fn list(app: &App) {
    let mut table = Table::new(&["example", "files", "what it shows"]);
    for example in examples() {
        if app.json() {
            app.ui.json(&serde_json::json!({
                "v": 1, "type": "example", "name": example.name, "files": example.files, "summary": example.summary,
            }));
        } else {
            table.row([example.name, example.files.to_string(), example.summary]);
        }
    }
    if !app.json() {
        app.ui.data(table);
    }
}
