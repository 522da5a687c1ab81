//! `gpucl secret`: values for jobs, kept in the keyring or in a private file.

use std::io::{IsTerminal as _, Read as _};

use secrecy::SecretString;
use serde_json::json;

use super::login::{asked_secret, vault};
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::Store;
use crate::util::near;

/// How the vault's accounts for jobs begin.
const ACCOUNTS: &str = "secret ";
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
    #[arg(value_name = "NAME", value_parser = variable)]
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
    let store = vault.put(&format!("{ACCOUNTS}{name}"), &value)?;
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
    let names = names(app)?;
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
    if !vault(app).remove(&format!("{ACCOUNTS}{name}"))? {
        return Err(with_near(app, Error::new(ErrorKind::NotFound, format!("delete the secret {name}")), name));
    }
    if app.json() {
        app.ui.json(&json!({"v": 1, "type": "secret_removed", "name": name}));
    } else {
        app.ui.status(format_args!("deleted {name}"));
    }
    Ok(exit_code::DONE)
}

fn names(app: &App) -> Result<Vec<String>> {
    let accounts = vault(app).list(ACCOUNTS)?;
    Ok(accounts.iter().filter_map(|account| account.strip_prefix(ACCOUNTS)).map(str::to_owned).collect())
}

/// The value of a stored secret, for a job.
///
/// # Errors
/// When there is none of that name.
pub(super) fn value(app: &App, name: &str) -> Result<SecretString> {
    match vault(app).get(&format!("{ACCOUNTS}{name}"))? {
        Some(value) => Ok(value),
        None => Err(with_near(app, usage(format!("read the secret {name}"), "none of that name is stored"), name)
            .hint(format!("store it: gpucl secret set {name}"))),
    }
}

fn with_near(app: &App, error: Error, name: &str) -> Error {
    let names = names(app).unwrap_or_default();
    match near::nearest(name, names.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// The name of an environment variable.
pub(super) fn variable(text: &str) -> std::result::Result<String, String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let begins = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    if begins && text.len() <= 128 && text.chars().all(is_letter) {
        return Ok(text.to_owned());
    }
    Err("a name has letters, digits and `_`, and begins with no digit".to_owned())
}

#[cfg(test)]
mod tests {
    use super::variable;

    #[test]
    fn a_name_is_one_of_a_variable() {
        for name in ["HF_TOKEN", "_x", "a1"] {
            assert!(variable(name).is_ok(), "{name}");
        }
        for name in ["", "1a", "a-b", "a b", "a=b", "\u{e9}"] {
            assert!(variable(name).is_err(), "{name}");
        }
    }
}
