//! `gpucl owner`.

use serde_json::json;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Owner;
use crate::state::{self, Store};

/// What `owner` does.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print the owner of this machine's clusters, and whether it belongs to this machine
    Show,
    /// Bring an owner here that belongs to another machine: that machine is gone, or is this one under another name
    Move,
    /// Make another owner for this machine: what the other machine has stays the other's
    New,
}

pub(crate) async fn run(app: &App, command: Command) -> Result<u8> {
    let (owner, said) = match command {
        Command::Show => {
            let owner = state::known_owner(&app.paths)?.ok_or_else(|| none(app))?;
            state::check_here(&app.paths)?;
            (owner, "belongs to this machine")
        }
        Command::Move => (state::move_owner(&app.paths)?, "belongs to this machine from now on"),
        Command::New => {
            refuse_with_clusters(app)?;
            (state::new_owner(&app.paths)?, "is the owner on this machine from now on")
        }
    };
    say(app, &owner, said);
    Ok(exit_code::DONE)
}

fn none(app: &App) -> Error {
    Error::new(ErrorKind::NotFound, "find the owner")
        .because(format!("there is none in {}", app.paths.owner().display()))
        .hint("the first `gpucl up` makes one")
}

/// With another owner, `down` would not find what the clusters that are known here have.
fn refuse_with_clusters(app: &App) -> Result<()> {
    let names: Vec<String> = Store::names(&app.paths)?.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return Ok(());
    }
    let folder = app.paths.clusters();
    Err(Error::new(ErrorKind::Usage, "make another owner")
        .because(format!(
            "clusters of the one that is there have state here: {}; nothing was changed",
            names.join(", ")
        ))
        .hint("gpucl down -c NAME   # on the machine that they belong to, or here after `gpucl owner move`")
        .hint(format!("if they are the other machine's, and stay: rm -r {}", folder.display())))
}

fn say(app: &App, owner: &Owner, said: &str) {
    if app.json() {
        app.ui.json(&json!({ "v": 1, "type": "owner", "owner": owner }));
    } else {
        app.ui.data(format!("{owner} {said}"));
    }
}
