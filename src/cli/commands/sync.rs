//! `gpucl sync`.

use super::cp::{Side, warn_left_out};
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::output::BytesBar;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Differences, End, Excludes, Here, SyncOptions, Synced, compare};
use crate::util::human;
use crate::util::text::printable_line;

/// The arguments of `sync`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also delete what only the destination has
    #[arg(long)]
    delete: bool,
    /// Show what would be done, and do nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Compare the contents of files, not their size and time
    #[arg(long)]
    checksum: bool,
    /// Neither send nor delete what matches, in the form of a line of `.gitignore`; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Read and write on the host as root; in the data folder, its owner always does
    #[arg(long)]
    root: bool,
    /// A folder, whose contents are sent, or a file: a local path or HOST:PATH, as with `cp`
    #[arg(value_name = "SRC")]
    from: String,
    /// Where they go: the other of a local path and HOST:PATH; folders that are missing are made
    #[arg(value_name = "DST")]
    to: String,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let (from, to) = (Side::of(&args.from), Side::of(&args.to));
    let host = match (&from, &to) {
        (Side::There { .. }, Side::There { .. }) => {
            return Err(usage("sync", "both sides are on a host; sync to this machine first").into());
        }
        (Side::There { host, .. }, _) | (_, Side::There { host, .. }) => host,
        _ => {
            return Err(usage("sync", "neither side is on a host")
                .hint("a path on a host is HOST:PATH, such as head:sets/")
                .into());
        }
    };
    let excludes = Excludes::new(&args.exclude)?;
    let options = SyncOptions { delete: args.delete, checksum: args.checksum, excludes, ..SyncOptions::default() };
    let target = Target::choose(app)?;
    let machine = target.machines(app).await?.named(host).await?;
    let end = async |side: &Side<'_>| match side {
        Side::Here(path) => Ok(End::Here(Here { path: path.into() })),
        Side::There { path, .. } => machine.end(path, args.root).await,
    };
    let differences = compare(&end(&from).await?, &end(&to).await?, options).await?;
    if args.dry_run {
        show(app, &differences);
        return Ok(exit_code::DONE);
    }
    confirm(app, &differences, &args.to)?;
    let bar = BytesBar::new(&app.ui);
    let synced = differences.carry_out(&mut |progress| bar.set(progress.done, progress.all)).await?;
    drop(bar);
    report(app, &synced)?;
    Ok(exit_code::DONE)
}

/// Asks before everything in the destination is deleted because the source is empty.
fn confirm(app: &App, differences: &Differences<'_>, to: &str) -> Result<()> {
    if !differences.empties() || app.yes {
        return Ok(());
    }
    let what = format!("the source is empty; {} of {to}", human::count(differences.deletes(), "entry"));
    if !app.json() && app.ui.asks() {
        let answer = app.ui.ask(&format!("{what} will be deleted: everything there. Delete it? [y/N] "));
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        return Err(usage("sync", "not confirmed; nothing was changed"));
    }
    Err(usage("sync", format!("{what} would be deleted")).hint("`--yes` deletes them"))
}

/// Shows what would be done.
fn show(app: &App, differences: &Differences<'_>) {
    for (what, path) in differences.lines() {
        if app.json() {
            app.ui.json(&serde_json::json!({ "v": 1, "type": "would", "do": what, "path": path }));
        } else {
            app.ui.data(format_args!("{what} {}", printable_line(&path)));
        }
    }
    if !app.json() {
        let bytes = human::bytes(differences.bytes());
        app.ui.status(format_args!("nothing was done; {bytes} would be sent"));
    }
}

/// Reports what was done.
///
/// # Errors
/// When something could not be read.
fn report(app: &App, synced: &Synced) -> Result<()> {
    let Synced { sent, bytes, resumed, deleted, unchanged, left_out, unread } = synced;
    warn_left_out(app, left_out);
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "synced", "sent": sent, "bytes": bytes, "resumed": resumed, "deleted": deleted,
            "unchanged": unchanged, "left_out": left_out.named, "left_out_count": left_out.count, "unread": unread,
        }));
    } else {
        let mut line = format!("synced: {} sent, {}", human::count(*sent, "file"), human::bytes(*bytes));
        if *resumed > 0 {
            line += &format!(" (resumed after {})", human::bytes(*resumed));
        }
        line += &format!(", {unchanged} unchanged");
        if *deleted > 0 {
            line += &format!(", {deleted} deleted");
        }
        app.ui.status(line);
    }
    if unread.is_empty() {
        return Ok(());
    }
    let mut error = Error::new(ErrorKind::Host, "sync everything");
    for path in unread.iter().take(5) {
        error = error.because(format!("{} was gone, or could not be read", printable_line(path)));
    }
    if unread.len() > 5 {
        error = error.because(format!("and {} more", unread.len() - 5));
    }
    Err(error.because("everything else was sent"))
}
