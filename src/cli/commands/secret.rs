//! `gpucl secret`: values for jobs, kept in the keyring or in a private file.

use std::io::{IsTerminal as _, Read as _};

use secrecy::SecretString;
use serde_json::json;

use super::login::{asked_secret, vault};
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::error::Result;
use crate::secret::Store;
use crate::util::variable;

/// The longest value, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The commands below `secret`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Store a value for jobs: typed at the terminal, without echo, or read from stdin
    Set(NameArgs),
    /// List the names of the stored values
    List(ListArgs),
    /// Delete a stored value
    Rm(NameArgs),
}

/// The arguments of `secret set` and `secret rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    /// Its name, which is also the environment variable that jobs get by default: letters, digits and `_`
    #[arg(value_name = "NAME", value_parser = variable::name)]
    name: String,
}

/// The arguments of `secret list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

pub(crate) fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Set(args) => Ok(set(app, &args.name)?),
        Command::List(ListArgs {}) => Ok(list(app)?),
        Command::Rm(args) => Ok(remove(app, &args.name)?),
    }
}

fn set(app: &App, name: &str) -> Result<u8> {
    let doing = format!("store the secret {name}");
    let value = if std::io::stdin().is_terminal() {
        asked_secret(&app.ui, &doing, &format!("value of {name} (not shown): "))?
    } else {
        of_stdin(&doing)?
    };
    let vault = vault(app);
    let store = vault.put_secret(name, &value)?;
    if app.json() {
        let store = if store == Store::Keyring { "keyring" } else { "file" };
        app.ui.json(&json!({"v": 1, "type": "secret", "name": name, "store": store}));
        return Ok(exit_code::DONE);
    }
    let place = match store {
        Store::Keyring => "your desktop's keyring".to_owned(),
        Store::File => format!("{}, readable only by you", vault.file().display()),
    };
    app.ui.status(format_args!(
        "stored {name} in {place}\n  a job gets it with: gpucl job submit --secret {name} -- COMMAND"
    ));
    Ok(exit_code::DONE)
}

/// Reads a value from stdin, without the newline at its end.
fn of_stdin(doing: &str) -> Result<SecretString> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| usage(doing, format!("stdin cannot be read: {error}")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(usage(doing, format!("it is longer than {LONGEST} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| usage(doing, "it is not text"))?;
    let value = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if value.is_empty() || value.contains('\0') {
        return Err(usage(doing, "no variable can have this value: it is empty or has a NUL"));
    }
    Ok(SecretString::from(value.to_owned()))
}

fn list(app: &App) -> Result<u8> {
    let names = vault(app).secrets()?;
    if names.is_empty() && !app.json() {
        app.ui.status("no secret is stored; `gpucl secret set NAME` stores one");
    }
    for name in names {
        if app.json() {
            app.ui.json(&json!({"v": 1, "type": "secret", "name": name}));
        } else {
            app.ui.data(name);
        }
    }
    Ok(exit_code::DONE)
}

fn remove(app: &App, name: &str) -> Result<u8> {
    vault(app).remove_secret(name)?;
    if app.json() {
        app.ui.json(&json!({"v": 1, "type": "secret_removed", "name": name}));
    } else {
        app.ui.status(format_args!("deleted {name}"));
    }
    Ok(exit_code::DONE)
}
