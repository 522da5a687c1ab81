//! `gpucl owner`.

use serde_json::json;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Owner;
use crate::state::{self, Store};

/// The commands below `owner`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print the owner of this machine's clusters, and check that it belongs to this machine
    Show,
    /// Take over an owner that belongs to another machine, which is gone, or is this one under another name
    Move,
    /// Make a new owner for this machine; resources of the old owner stay with the other machine
    New,
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
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
        .because(format!("there is no owner in {}", app.paths.owner().display()))
        .hint("the first `gpucl up` makes one")
}

/// With a new owner, `down` could not find the resources of clusters with state here.
fn refuse_with_clusters(app: &App) -> Result<()> {
    let names: Vec<String> = Store::names(&app.paths)?.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return Ok(());
    }
    let folder = app.paths.clusters();
    Err(Error::new(ErrorKind::Usage, "make another owner")
        .because(format!("clusters of the current owner have state here: {}; nothing was changed", names.join(", ")))
        .hint("gpucl down -c NAME   # on the machine that they belong to, or here after `gpucl owner move`")
        .hint(format!("if they belong to the other machine and must stay: rm -r {}", folder.display())))
}

fn say(app: &App, owner: &Owner, said: &str) {
    if app.json() {
        app.ui.json(&json!({ "v": 1, "type": "owner", "owner": owner }));
    } else {
        app.ui.data(format!("{owner} {said}"));
    }
}
