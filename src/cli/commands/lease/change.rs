//! `gpucl lease extend`, `delete` and `wait`.

use jiff::Timestamp;

use super::{LeaseCommand, reservations, title};
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::reserving::ProviderArgs;
use crate::cluster::lease as standalone;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{EndAsk, Lease, LeaseState};
use crate::state::Store;
use crate::util::when;

/// The arguments of `lease extend`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExtendArgs {
    /// The lease, by name or id
    name: String,
    /// How much longer than now: 3 or 2.5 (hours), 90m, 1h30m or 2d after its current end
    #[arg(long, value_name = "HOURS", conflicts_with = "until", required_unless_present = "until")]
    hours: Option<String>,
    /// The new end: 16:50 or "2026-11-22 16:50" in local time, or a time with its zone
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Accept an earlier end: than the current one, or than the requested one
    #[arg(long)]
    shorten: bool,
    #[command(flatten)]
    pub(super) provider: ProviderArgs,
}

/// The arguments of `lease delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// The lease, by name or id
    name: String,
    #[command(flatten)]
    pub(super) provider: ProviderArgs,
}

/// The arguments of `lease wait`.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// The lease, by name or id
    pub(super) name: String,
    #[command(flatten)]
    pub(super) provider: ProviderArgs,
}

impl LeaseCommand<'_> {
    pub(super) async fn extend(&self, args: ExtendArgs) -> Result<u8> {
        self.recover_if_free().await?;
        let (site, lease) = self.find(&args.name).await?;
        self.only_ours(&lease, "extend")?;
        let end = match (&args.hours, &args.until) {
            (Some(hours), _) => EndAsk::After(when::parse_length(hours).map_err(|why| usage("read --hours", why))?),
            (None, Some(until)) => {
                // A time of day means today, or the day on which the lease begins. A time before its end is refused,
                // not taken as that of the next day: nobody means to add a day.
                let after = Timestamp::now().max(lease.start);
                EndAsk::At(when::parse(until, after, &self.zone).map_err(|why| usage("read --until", why))?)
            }
            (None, None) => return Err(usage("extend a lease", "neither --hours nor --until was given")),
        };
        let extended = reservations(site)?.extend(&lease.id, end, args.shorten).await?;
        standalone::moved(&self.settings, &extended.id, extended.end).await?;
        if self.app.json() {
            self.app.ui.json(&self.json(&extended));
            return Ok(exit_code::DONE);
        }
        self.app.ui.data(format!(
            "lease {} ends at {} now, {} left; it was {}",
            title(&extended),
            when::both(extended.end, &self.zone),
            when::length(super::left(&extended, Timestamp::now())),
            when::both(lease.end, &self.zone)
        ));
        Ok(exit_code::DONE)
    }

    pub(super) async fn delete(&self, args: DeleteArgs) -> Result<u8> {
        self.recover_if_free().await?;
        let (site, lease) = self.find(&args.name).await?;
        self.only_ours(&lease, "delete")?;
        self.of_no_cluster(&lease)?;
        if !self.app.yes {
            let what = match lease.state {
                LeaseState::Active => format!(
                    "it is active on {} with {} left, and what runs there ends",
                    lease.hosts.join(", "),
                    when::length(super::left(&lease, Timestamp::now()))
                ),
                _ => format!("{} {}", lease.hosts.join(", "), when::span(lease.start, lease.end, &self.zone)),
            };
            self.app.ui.status(format!("lease {} at {}: {what}", title(&lease), lease.place));
        }
        self.confirm("delete this lease?", "delete a lease")?;
        standalone::delete(&self.settings, reservations(site)?, &lease.id).await?;
        if self.app.json() {
            self.app
                .ui
                .json(&serde_json::json!({ "v": 1, "type": "lease_deleted", "id": lease.id, "name": lease.name, "place": lease.place }));
        } else {
            self.app.ui.data(format!("lease {} is gone ({})", title(&lease), lease.id));
        }
        Ok(exit_code::DONE)
    }

    pub(super) async fn wait(&self, name: &str) -> Result<u8> {
        self.recover_if_free().await?;
        let (site, lease) = self.find(name).await?;
        let until = when::between(Timestamp::now(), lease.start);
        if lease.state == LeaseState::Pending && until.is_positive() {
            self.app.ui.status(format!(
                "lease {} begins at {}, in {}",
                title(&lease),
                when::both(lease.start, &self.zone),
                when::length(until)
            ));
        }
        let lease = self.wait_active(site, &lease).await?;
        if self.app.json() {
            self.app.ui.json(&self.json(&lease));
            return Ok(exit_code::DONE);
        }
        self.app.ui.data(format!(
            "lease {} is active: {} until {}, {} left",
            title(&lease),
            lease.hosts.join(", "),
            when::both(lease.end, &self.zone),
            when::length(super::left(&lease, Timestamp::now()))
        ));
        Ok(exit_code::DONE)
    }

    /// Rejects leases of others, although the service would allow changes to them.
    fn only_ours(&self, lease: &Lease, verb: &str) -> Result<()> {
        if lease.ours {
            return Ok(());
        }
        let whose = match &lease.tag {
            Some(tag) => format!("another user of the project made it (gpucl's owner {})", tag.owner),
            None => "another user of the project made it".to_owned(),
        };
        Err(Error::new(ErrorKind::Usage, format!("{verb} the lease {}", title(lease)))
            .because(whose)
            .because("only your own leases can be changed; nothing was done")
            .hint(format!("gpucl lease list{}   # shows yours", self.flags)))
    }

    /// Rejects a lease that a cluster uses: `down` deletes it with the cluster.
    fn of_no_cluster(&self, lease: &Lease) -> Result<()> {
        let Some(tag) = &lease.tag else { return Ok(()) };
        let known = !tag.cluster.is_reserved()
            && tag.owner == self.settings.owner
            && Store::open(&self.settings.paths, &tag.cluster)?.is_some();
        if !known {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Usage, format!("delete the lease {}", title(lease)))
            .because(format!("the cluster {} was brought up with it and still exists", tag.cluster))
            .hint(format!("gpucl down -c {}   # removes both", tag.cluster)))
    }
}
