//! `gpucl lease`.

mod ask;
mod change;
mod find;
mod show;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::cli::app::App;
use crate::cli::reserving::{self, ProviderArgs};
use crate::cluster::Settings;
use crate::cluster::lease as standalone;
use crate::cluster::lease::Recovery;
use crate::cluster::sites::{OpenSite, Sites};
use crate::engine::Cancel;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{Lease, LeaseState, Reservations};
use crate::state::LeaseSource;
use crate::util::when;

/// The arguments of `lease`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    ask: ask::AskArgs,
}

/// The commands below `lease`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List your leases, or all leases of the project
    List(show::ListArgs),
    /// Show one lease
    Show(show::ShowArgs),
    /// Move the end of a lease: later, or earlier with --shorten
    Extend(change::ExtendArgs),
    /// Delete one of your leases; its hosts are released at once
    Delete(change::DeleteArgs),
    /// Wait until the hosts of a lease can be used
    Wait(change::WaitArgs),
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let source = match &args.command {
        None => args.ask.provider.source()?,
        Some(Command::List(args)) => args.provider.source()?,
        Some(Command::Show(args)) => args.provider.source()?,
        Some(Command::Extend(args)) => args.provider.source()?,
        Some(Command::Delete(args)) => args.provider.source()?,
        Some(Command::Wait(args)) => args.provider.source()?,
    };
    match &args.command {
        None => args.ask.check()?,
        Some(command) => args.ask.none_before(command.word())?,
    }
    let events = app.plain_events();
    let sites = Sites::of(&source, &app.provider_context(events.clone()))?;
    // Without an owner, no lease can have been made; only a command that makes a lease makes an owner.
    let (_handle, cancel) = Cancel::new();
    let makes = args.command.is_none() && !args.ask.dry_run;
    let settings = if makes { app.settings(events, cancel)? } else { app.settings_to_inspect(events, cancel)? };
    let reopen = |source: &LeaseSource| standalone::open_source(source, &settings.context());
    let flags = match &args.command {
        None => args.ask.provider.flags(),
        Some(command) => command.provider().flags(),
    };
    let command = LeaseCommand {
        app,
        settings: settings.clone(),
        source,
        sites,
        reopen: &reopen,
        zone: when::zone(app.variable("TZ")),
        flags,
    };
    Ok(command.run(args).await?)
}

impl Command {
    fn word(&self) -> &'static str {
        match self {
            Self::List(_) => "list",
            Self::Show(_) => "show",
            Self::Extend(_) => "extend",
            Self::Delete(_) => "delete",
            Self::Wait(_) => "wait",
        }
    }

    fn provider(&self) -> &ProviderArgs {
        match self {
            Self::List(args) => &args.provider,
            Self::Show(args) => &args.provider,
            Self::Extend(args) => &args.provider,
            Self::Delete(args) => &args.provider,
            Self::Wait(args) => &args.provider,
        }
    }
}

/// The context of every lease command.
struct LeaseCommand<'a> {
    app: &'a App,
    settings: Settings,
    /// The provider, as the flags select it.
    source: LeaseSource,
    /// The sites that the flags and the login leave open.
    sites: Sites,
    /// Opens the provider that an earlier command used.
    reopen: standalone::Opener<'a>,
    zone: TimeZone,
    /// The provider's flags, for commands in hints.
    flags: String,
}

impl LeaseCommand<'_> {
    async fn run(&self, args: Args) -> Result<u8> {
        match args.command {
            None => self.ask(args.ask).await,
            Some(Command::List(args)) => self.list(args).await,
            Some(Command::Show(args)) => self.show(&args.name).await,
            Some(Command::Extend(args)) => self.extend(args).await,
            Some(Command::Delete(args)) => self.delete(args).await,
            Some(Command::Wait(args)) => self.wait(&args.name).await,
        }
    }

    /// Finds out what became of requests that earlier commands left open, and reports it.
    async fn recover(&self) -> Result<Recovery> {
        let recovery = standalone::recover(&self.settings, self.reopen).await?;
        for name in &recovery.forgotten {
            self.app.ui.status(format!("the lease {name}, requested by an earlier command, was not made"));
        }
        for (name, error) in &recovery.open {
            self.app.ui.status(format!("warning: it is unknown if an earlier command made the lease {name}: {error}"));
        }
        Ok(recovery)
    }

    /// Like `recover`, but skipped if another command holds the journal: that command recovers on its own.
    async fn recover_if_free(&self) -> Result<()> {
        match self.recover().await {
            Ok(recovery) => {
                for found in &recovery.found {
                    self.app.ui.status(format!(
                        "found: an earlier command made the lease {} without reporting it ({})",
                        found.name, found.id
                    ));
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Locked => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks for confirmation; an error if it is refused. No question without a terminal, or with `--yes` or JSON.
    fn confirm(&self, question: &str, doing: &str) -> Result<()> {
        if self.app.yes || self.app.json() || !self.app.ui.asks() {
            return Ok(());
        }
        let answer = self.app.ui.ask(&format!("{question} [y/N] "));
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        Err(crate::cli::command_error::usage(doing, "not confirmed; nothing was changed"))
    }

    /// Waits until a lease is active. Ctrl-C ends the wait, not the lease.
    async fn wait_active(&self, site: &OpenSite, lease: &Lease) -> Result<Lease> {
        let stopped = || {
            let name = argument(lease);
            Error::new(ErrorKind::Cancelled, format!("wait for the lease {name}"))
                .because("it was stopped; the lease stays")
                .hint(format!("gpucl lease wait {name}{}", self.flags))
                .hint(format!("gpucl lease delete {name}{}", self.flags))
        };
        tokio::select! {
            active = reservations(site)?.wait_active(&lease.id) => active,
            Ok(()) = tokio::signal::ctrl_c() => Err(stopped()),
        }
    }

    /// A lease as JSON: `docs/reference/json.md`.
    fn json(&self, lease: &Lease) -> Value {
        let mut line = json!({ "v": 1, "type": "lease" });
        if let (Some(line), Ok(Value::Object(lease))) = (line.as_object_mut(), serde_json::to_value(lease)) {
            line.extend(lease);
        }
        line["title"] = json!(title(lease));
        line["left_seconds"] = json!(left(lease, Timestamp::now()).as_secs());
        line
    }
}

/// The reservations of a site.
fn reservations(site: &OpenSite) -> Result<&dyn Reservations> {
    reserving::reservations(site.provider.as_ref(), &site.source.provider)
}

/// Its name without the gpucl tag at the end.
fn title(lease: &Lease) -> &str {
    let tag = lease.tag.as_ref().map(ToString::to_string).unwrap_or_default();
    let bare = lease.name.strip_suffix(&tag).unwrap_or(&lease.name).trim_end_matches([' ', '-']);
    if bare.is_empty() { &lease.name } else { bare }
}

/// Its name as a command argument; the id if the name would need quoting.
fn argument(lease: &Lease) -> String {
    let title = title(lease);
    let is_plain = title.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.@:".contains(letter));
    // A name may contain anything; an id is always plain.
    if is_plain && !title.starts_with('-') { title.to_owned() } else { lease.id.clone() }
}

/// The time that is left; zero once it has ended.
fn left(lease: &Lease, now: Timestamp) -> jiff::SignedDuration {
    match lease.state {
        LeaseState::Ended => jiff::SignedDuration::ZERO,
        _ => when::between(now.max(lease.start), lease.end).max(jiff::SignedDuration::ZERO),
    }
}

/// The state as shown: `active`, `pending`, ...
fn word(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Pending => "pending",
        LeaseState::Changing => "changing",
        LeaseState::Active => "active",
        LeaseState::Ended => "ended",
        LeaseState::Failed => "failed",
    }
}
