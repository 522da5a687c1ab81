//! `gpucl lease list` and `show`.

use jiff::Timestamp;

use super::{LeaseCommand, left, reservations, title, word};
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::reserving::{self, ProviderArgs};
use crate::error::Result;
use crate::provider::{Lease, LeaseState};
use crate::util::when;

/// The arguments of `lease list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Also show leases of others in the project, and leases that have ended
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    pub(super) provider: ProviderArgs,
}

/// The arguments of `lease show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The lease, by name or id
    pub(super) name: String,
    #[command(flatten)]
    pub(super) provider: ProviderArgs,
}

impl LeaseCommand<'_> {
    pub(super) async fn list(&self, args: ListArgs) -> Result<u8> {
        self.recover_if_free().await?;
        let asked = self.sites.ask(async |site| reservations(site)?.leases().await).await.or_none("list leases")?;
        reserving::report(self.app, &asked.failed);
        let mut leases: Vec<Lease> = asked.found.into_iter().flat_map(|(_, leases)| leases).collect();
        let all = leases.len();
        leases.retain(|lease| args.all || (lease.ours && lease.state != LeaseState::Ended));
        leases.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        if self.app.json() {
            for lease in &leases {
                self.app.ui.json(&self.json(lease));
            }
            return Ok(exit_code::DONE);
        }
        if leases.is_empty() && asked.failed.is_empty() {
            self.app.ui.status("you have no leases; `gpucl lease --node NAME --hours 3` makes one");
        } else {
            let mut table = Table::new(&["name", "state", "where", "hosts", "when", "left", "note"]);
            for lease in &leases {
                table.row([
                    title(lease).to_owned(),
                    word(lease.state).to_owned(),
                    lease.place.clone(),
                    lease.hosts.join(", "),
                    when::span(lease.start, lease.end, &self.zone),
                    when::length(left(lease, Timestamp::now())),
                    self.note(lease),
                ]);
            }
            self.app.ui.data(table);
        }
        if leases.len() < all {
            self.app.ui.status(format!("{} more, of others or ended (--all shows them)", all - leases.len()));
        }
        Ok(exit_code::DONE)
    }

    pub(super) async fn show(&self, name: &str) -> Result<u8> {
        self.recover_if_free().await?;
        let (_, lease) = self.find(name).await?;
        if self.app.json() {
            self.app.ui.json(&self.json(&lease));
            return Ok(exit_code::DONE);
        }
        let now = Timestamp::now();
        self.app.ui.data(format!("lease {}", title(&lease)));
        self.app.ui.data(format!("  id     {}", lease.id));
        self.app.ui.data(format!("  name   {}", lease.name));
        self.app.ui.data(format!("  state  {} ({})", word(lease.state), lease.status));
        self.app.ui.data(format!("  hosts  {} at {}", lease.hosts.join(", "), lease.place));
        self.app.ui.data(format!("  when   {}", when::span(lease.start, lease.end, &self.zone)));
        let left = when::length(left(&lease, now));
        match lease.state {
            LeaseState::Pending => {
                let until = when::length(when::between(now, lease.start));
                self.app.ui.data(format!("  left   begins in {until}, for {left}"));
            }
            LeaseState::Ended => {}
            _ => self.app.ui.data(format!("  left   {left}")),
        }
        let note = self.note(&lease);
        if !note.is_empty() {
            self.app.ui.data(format!("  note   {note}"));
        }
        Ok(exit_code::DONE)
    }

    /// Whose it is, the cluster it belongs to, and whether it is degraded.
    pub(super) fn note(&self, lease: &Lease) -> String {
        let mut notes = Vec::new();
        match &lease.tag {
            _ if !lease.ours => notes.push("another user's".to_owned()),
            None => notes.push("not made by gpucl".to_owned()),
            Some(tag) if tag.owner != self.settings.owner => {
                notes.push(format!("made by gpucl on another machine, owner {}", tag.owner))
            }
            Some(tag) if !tag.cluster.is_reserved() => notes.push(format!("of the cluster {}", tag.cluster)),
            Some(_) => {}
        }
        if lease.degraded {
            notes.push("degraded: some of its hosts have failed".to_owned());
        }
        notes.join(", ")
    }
}
