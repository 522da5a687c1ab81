//! `gpucl env`.

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::ray::Shell;

/// The arguments of `env`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to print for; default: the one that SHELL names
    #[arg(long, value_enum, value_name = "SHELL")]
    shell: Option<ShellName>,
    /// Print the commands that unset the variables
    #[arg(long)]
    unset: bool,
}

/// The supported shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellName {
    /// Also sh, zsh, dash and ksh
    #[value(alias = "sh", alias = "zsh", alias = "dash", alias = "ksh")]
    Bash,
    /// fish
    Fish,
    /// Also tcsh
    #[value(alias = "tcsh")]
    Csh,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let access = target.access()?;
    let path = app.variable("PATH");
    let settings = if args.unset { access.unsettings(path) } else { access.settings(path) };
    if !args.unset && target.is_remote() {
        app.ui.status(format_args!(
            "these addresses work while this runs in another terminal: gpucl dashboard -c {}",
            target.name
        ));
    }
    if app.json() {
        let variables: Map<String, Value> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        app.ui.json(&json!({"v": 1, "type": "env", "variables": variables}));
        return Ok(exit_code::DONE);
    }
    let shell = match args.shell.unwrap_or_else(|| guessed(app.variable("SHELL"))) {
        ShellName::Bash => Shell::Bash,
        ShellName::Fish => Shell::Fish,
        ShellName::Csh => Shell::Csh,
    };
    app.ui.verbatim(&shell.render(&settings));
    Ok(exit_code::DONE)
}

fn guessed(shell: Option<&str>) -> ShellName {
    match shell.and_then(|path| path.rsplit('/').next()) {
        Some("fish") => ShellName::Fish,
        Some("csh" | "tcsh") => ShellName::Csh,
        _ => ShellName::Bash,
    }
}
