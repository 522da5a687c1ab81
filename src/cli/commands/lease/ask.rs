//! `gpucl lease`: requests a new lease.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::LeaseCommand;
use crate::cli::command_error::usage;
use crate::cli::commands::offers::FilterArgs;
use crate::cli::exit_code;
use crate::cli::reserving::ProviderArgs;
use crate::cluster::lease as standalone;
use crate::cluster::sites::OpenSite;
use crate::error::Result;
use crate::provider::{EndAsk, Lease, LeaseAsk, LeaseState, Proposal, StartAsk};
use crate::util::when;

/// The arguments of a new lease.
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    /// How many hosts, if none is named; default: 1
    #[arg(long, value_name = "N", conflicts_with = "nodes")]
    pub(super) count: Option<u32>,
    /// The length: 3 or 2.5 (hours), 90m, 1h30m or 2d
    #[arg(long, value_name = "HOURS", conflicts_with = "until")]
    pub(super) hours: Option<String>,
    /// The end: 16:50 or "2026-11-22 16:50" in local time, or a time with its zone
    #[arg(long, value_name = "TIME")]
    pub(super) until: Option<String>,
    /// The start: now, next (as soon as all hosts are free for long enough) or a time
    #[arg(long, value_name = "WHEN", default_value = "next")]
    pub(super) start: String,
    /// Its name; default: made of your name, the host and the time
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Accept less time than requested, rather than none
    #[arg(long)]
    pub(super) shorten: bool,
    /// Show what would be requested, and request nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) provider: ProviderArgs,
}

const DOING: &str = "request a lease";

impl AskArgs {
    /// Rejects incomplete arguments before the provider is contacted.
    pub(super) fn check(&self) -> Result<()> {
        if self.filter.is_empty() {
            return Err(usage(DOING, "no host was named or described")
                .hint("gpucl lease --node liqid01 --hours 3")
                .hint("gpucl lease --gpu a100 --gpus 2 --hours 3   # any host with two of them")
                .hint("gpucl offers   # shows what is available"));
        }
        if self.hours.is_none() && self.until.is_none() {
            return Err(usage(DOING, "neither a length nor an end was given").hint("add --hours 3, or --until 16:50"));
        }
        if self.count == Some(0) {
            return Err(usage(DOING, "--count takes 1 or more"));
        }
        Ok(())
    }

    /// Rejects flags of a new lease before a subcommand, which would ignore them.
    pub(super) fn none_before(&self, word: &str) -> Result<()> {
        let given = !self.filter.is_empty()
            || self.count.is_some()
            || self.hours.is_some()
            || self.until.is_some()
            || self.name.is_some()
            || self.start != "next"
            || self.shorten
            || self.dry_run
            || !self.provider.flags().is_empty();
        if !given {
            return Ok(());
        }
        Err(usage(format!("run `gpucl lease {word}`"), format!("the flags before `{word}` apply to a new lease"))
            .hint(format!("put its flags after `{word}`: gpucl lease {word} --help")))
    }

    /// The request in the provider's terms.
    pub(super) fn lease_ask(&self, now: Timestamp, zone: &jiff::tz::TimeZone) -> Result<LeaseAsk> {
        let time = |flag: &str, text: &str, after: Timestamp| {
            when::parse(text, after, zone).map_err(|why| usage(format!("read {flag}"), why))
        };
        let start = match self.start.as_str() {
            "now" => StartAsk::Now,
            "next" => StartAsk::Next,
            text => StartAsk::At(time("--start", text, now)?),
        };
        // A time of day means the first one after the start.
        let after = if let StartAsk::At(at) = start { at } else { now };
        let end = match (&self.hours, &self.until) {
            (Some(hours), _) => EndAsk::After(when::parse_length(hours).map_err(|why| usage("read --hours", why))?),
            (None, Some(until)) => EndAsk::At(time("--until", until, after)?),
            (None, None) => return Err(usage(DOING, "neither --hours nor --until was given")),
        };
        Ok(LeaseAsk {
            hosts: self.filter.filter(),
            count: self.count.unwrap_or(1),
            start,
            end,
            name: self.name.clone(),
            shorten: self.shorten,
        })
    }
}

impl LeaseCommand<'_> {
    pub(super) async fn ask(&self, args: AskArgs) -> Result<u8> {
        let ask = args.lease_ask(Timestamp::now(), &self.zone)?;
        if !args.dry_run {
            let recovery = self.recover().await?;
            for found in &recovery.found {
                if found.is(&self.source, &ask) {
                    self.app.ui.status(format!(
                        "an earlier command requested the same and lost the answer: it made the lease {}",
                        found.name
                    ));
                    let (site, lease) = self.find(&found.id).await?;
                    return self.made(site, lease, false).await;
                }
                self.app.ui.status(format!(
                    "an earlier command made the lease {} without reporting it: gpucl lease show {}{}",
                    found.name, found.id, self.flags
                ));
            }
        }
        let key = standalone::new_key()?;
        let (site, proposal) = self.propose(&key, &ask).await?;
        if self.app.json() {
            self.app.ui.json(&proposal_json(&proposal, args.dry_run));
        } else {
            for line in self.proposal_lines(&proposal) {
                if args.dry_run { self.app.ui.data(line) } else { self.app.ui.status(line) }
            }
        }
        if args.dry_run {
            self.app.ui.status("nothing was requested (--dry-run)");
            return Ok(exit_code::DONE);
        }
        self.confirm("make this lease?", DOING)?;
        let id = standalone::acquire(&self.settings, &self.source, site.provider.as_ref(), &ask, &proposal).await?;
        self.made(site, super::reservations(site)?.lease(&id).await?, proposal.now).await
    }

    /// Shows a new lease; waits for it first if it begins within a minute. `now`: it was requested to begin at once,
    /// whatever the service's clock shows.
    async fn made(&self, site: &OpenSite, lease: Lease, now: bool) -> Result<u8> {
        let begins_later = !now && when::between(Timestamp::now(), lease.start) > jiff::SignedDuration::from_mins(1);
        let lease = match lease.state {
            LeaseState::Active => lease,
            LeaseState::Pending if begins_later => lease,
            _ => self.wait_active(site, &lease).await?,
        };
        if self.app.json() {
            self.app.ui.json(&self.json(&lease));
            return Ok(exit_code::DONE);
        }
        let hosts = lease.hosts.join(", ");
        let (name, argument) = (super::title(&lease), super::argument(&lease));
        if lease.state == LeaseState::Active {
            self.app.ui.data(format!(
                "lease {name} is active: {hosts} until {}, {} left",
                when::both(lease.end, &self.zone),
                when::length(super::left(&lease, Timestamp::now()))
            ));
        } else {
            self.app
                .ui
                .data(format!("lease {name} is made: {hosts} {}", when::span(lease.start, lease.end, &self.zone)));
            self.app.ui.data(format!("  it begins in {}", when::length(when::between(Timestamp::now(), lease.start))));
            self.app.ui.data(format!("  wait     gpucl lease wait {argument}{}", self.flags));
        }
        self.app.ui.data(format!("  id       {}", lease.id));
        self.app
            .ui
            .data(format!("  use      `lease: {argument}` in the spec, or name the host there; then `gpucl up`"));
        self.app.ui.data(format!("  end      gpucl lease delete {argument}{}", self.flags));
        Ok(exit_code::DONE)
    }

    fn proposal_lines(&self, proposal: &Proposal) -> Vec<String> {
        let now = if proposal.now { "now, " } else { "" };
        let mut lines = vec![
            format!("lease {} at {}", proposal.name, proposal.place),
            format!("  hosts  {}", proposal.hosts.join(", ")),
            format!("  when   {now}{}", when::span(proposal.start, proposal.end, &self.zone)),
            format!("  long   {}", when::length(when::between(proposal.start, proposal.end))),
        ];
        if !proposal.price.is_empty() {
            lines.push(format!("  price  {}", proposal.price));
        }
        lines.extend(proposal.notes.iter().map(|note| format!("  note   {note}")));
        lines
    }
}

fn proposal_json(proposal: &Proposal, dry_run: bool) -> Value {
    json!({
        "v": 1, "type": "lease_proposal", "name": proposal.name, "place": proposal.place, "hosts": proposal.hosts,
        "start": proposal.start, "end": proposal.end, "now": proposal.now, "price": proposal.price,
        "notes": proposal.notes, "dry_run": dry_run,
    })
}
