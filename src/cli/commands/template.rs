//! `gpucl template`.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::own_files::DATA_FOLDER;
use crate::error::Result;
use crate::render::{eject, templates};
use crate::util::folder::Goal;
use crate::util::human;

/// The commands below `template`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the templates, and which of their files come from your own folders
    List,
    /// Copy a built-in template to a data folder, where it takes precedence; existing files are not overwritten
    Eject {
        /// The template, as `gpucl template list` shows it
        #[arg(value_name = "NAME")]
        name: String,
        /// The data folder to copy into, as for --data-dir; default: ./.gpucl
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::List => list(app)?,
        Command::Eject { name, to } => {
            let goal = match &to {
                Some(folder) => Goal::named(folder),
                None => Goal::chosen(Path::new(""), Path::new(DATA_FOLDER)),
            };
            for path in eject(&name, &goal)? {
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

fn list(app: &App) -> Result<()> {
    let mut table = Table::new(&["template", "files", "yours"]);
    for template in templates(&app.library())? {
        if app.json() {
            app.ui.json(&serde_json::json!({
                "v": 1, "type": "template", "name": template.name, "files": template.files, "changed": template.changed,
            }));
            continue;
        }
        let folder = template.changed.first().and_then(|path| path.parent());
        let own = folder.map_or_else(
            || "-".to_owned(),
            |folder| format!("{} in {}", human::count(template.changed.len(), "file"), folder.display()),
        );
        table.row([template.name, template.files.to_string(), own]);
    }
    if !app.json() {
        app.ui.data(table);
    }
    Ok(())
}
