//! `gpucl offers`.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::{Table, gantt};
use crate::cli::reserving::{self, ProviderArgs};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{CalendarRow, HostFilter};
use crate::util::{human, when};

/// How far ahead free time is looked for.
const HORIZON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Which hosts are meant.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// A host by its name; more than one with several --node
    #[arg(long = "node", value_name = "NAME")]
    pub(crate) nodes: Vec<String>,
    /// The provider's type of host, such as `compute_liqid`
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// A part of the GPU's name, such as a100
    #[arg(long, value_name = "MODEL")]
    pub(crate) gpu: Option<String>,
    /// At least this many GPUs on a host
    #[arg(long, value_name = "N")]
    pub(crate) gpus: Option<u32>,
}

impl FilterArgs {
    /// As the provider is asked.
    pub(crate) fn filter(&self) -> HostFilter {
        HostFilter { nodes: self.nodes.clone(), kind: self.kind.clone(), gpu: self.gpu.clone(), gpus: self.gpus }
    }

    /// Nothing narrows it.
    pub(crate) fn is_empty(&self) -> bool {
        self.filter() == HostFilter::default()
    }
}

/// The arguments of `offers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// So many hosts that are free at the same time
    #[arg(long, value_name = "N")]
    count: Option<usize>,
    /// Hosts without GPUs, and hosts that cannot be reserved, as well
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    provider: ProviderArgs,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let source = args.provider.source()?;
    let provider = reserving::open(app, &source, app.plain_events())?;
    let reservations = reserving::reservations(provider.as_ref(), &source.provider)?;
    let now = Timestamp::now();
    let zone = when::zone(app.variable("TZ"));
    let mut rows = reservations.calendar(&args.filter.filter(), when::later(now, HORIZON)).await?;
    let left_out = narrow(&mut rows, args.all || !args.filter.is_empty());
    none_is_an_error(&rows, &args.filter)?;
    // What is free first comes first; of two that are free, the one that stays free for longer.
    rows.sort_by_cached_key(|row| {
        let (from, until) = gantt::free_from(row, now);
        (row.closed.is_some(), from, std::cmp::Reverse(until.unwrap_or(Timestamp::MAX)), human::natural(&row.name))
    });
    if app.json() {
        for row in &rows {
            let (from, until) = gantt::free_from(row, now);
            app.ui.json(&json!({
                "v": 1, "type": "offer", "name": row.name, "place": row.place, "kind": row.kind, "gpus": row.gpus,
                "gpus_from": row.gpus_from, "cpus": row.cpus, "memory": row.memory, "price_per_hour": row.price_per_hour,
                "closed": row.closed, "free_from": row.closed.is_none().then_some(from), "free_until": until,
            }));
        }
        return Ok(exit_code::DONE);
    }
    let mut table = Table::new(&["name", "site", "type", "GPUs", "CPUs", "memory", "price/h", "free"]);
    for row in &rows {
        table.row(cells(row, now, &zone));
    }
    app.ui.data(table);
    if rows.iter().any(|row| row.gpus_from.is_some()) {
        let from = rows.iter().find_map(|row| row.gpus_from.clone()).unwrap_or_default();
        app.ui.status(format!("*: the service does not tell the GPUs; they are from {from}"));
    }
    told_left_out(app, left_out);
    if let Some(count) = args.count {
        app.ui.status(together(&rows, count, now, &zone));
    }
    Ok(exit_code::DONE)
}

fn cells(row: &CalendarRow, now: Timestamp, zone: &TimeZone) -> [String; 8] {
    let unknown = |text: String, known: bool| if known { text } else { "-".to_owned() };
    let mark = if row.gpus_from.is_some() { "*" } else { "" };
    let gpus: Vec<String> = row.gpus.iter().map(|gpu| format!("{}x {}{mark}", gpu.count, gpu.model)).collect();
    [
        row.name.clone(),
        row.place.clone(),
        unknown(row.kind.clone(), !row.kind.is_empty()),
        unknown(gpus.join(", "), !gpus.is_empty()),
        unknown(row.cpus.to_string(), row.cpus > 0),
        unknown(human::bytes(row.memory), row.memory > 0),
        unknown(row.price_per_hour.map(|price| price.to_string()).unwrap_or_default(), row.price_per_hour.is_some()),
        free(row, now, zone),
    ]
}

/// `now, for 3 h`, or `from Sun 22 Nov 14:50 CST (in 2 h), for 3 h`, or why not.
fn free(row: &CalendarRow, now: Timestamp, zone: &TimeZone) -> String {
    if let Some(why) = &row.closed {
        return why.clone();
    }
    let (from, until) = gantt::free_from(row, now);
    let how_long = until.map(|until| format!(", for {}", when::length(when::between(from, until)))).unwrap_or_default();
    if from <= now {
        return format!("now{how_long}");
    }
    format!("from {} (in {}){how_long}", when::local(from, zone), when::length(when::between(now, from)))
}

/// When so many are free at the same time.
fn together(rows: &[CalendarRow], count: usize, now: Timestamp, zone: &TimeZone) -> String {
    let mut times: Vec<Timestamp> =
        rows.iter().filter(|row| row.closed.is_none()).map(|row| gantt::free_from(row, now).0).collect();
    times.sort();
    match times.get(count.saturating_sub(1)) {
        Some(at) if *at <= now => format!("{} of these are free now", times.iter().filter(|at| **at <= now).count()),
        Some(at) => format!(
            "{count} of these are free from about {} on; `gpucl lease --count {count} --dry-run` tells it exactly",
            when::both(*at, zone)
        ),
        None => format!("there are not {count} of these: only {}", human::count(times.len(), "host")),
    }
}

/// Leaves out what nobody asks for who does not ask for it; says how many.
pub(crate) fn narrow(rows: &mut Vec<CalendarRow>, all: bool) -> usize {
    let before = rows.len();
    if !all && rows.iter().any(|row| !row.gpus.is_empty()) {
        rows.retain(|row| !row.gpus.is_empty() && row.closed.is_none());
    }
    before - rows.len()
}

/// Says what was left out.
pub(crate) fn told_left_out(app: &App, left_out: usize) {
    if left_out > 0 {
        app.ui.status(format!(
            "{} without GPUs or not to be reserved left out (--all shows them)",
            human::count(left_out, "host")
        ));
    }
}

/// A filter that nothing passes is probably a mistake.
pub(crate) fn none_is_an_error(rows: &[CalendarRow], filter: &FilterArgs) -> Result<()> {
    if let Some(name) = filter.nodes.iter().find(|name| !rows.iter().any(|row| row.name == **name)) {
        return Err(Error::new(ErrorKind::NotFound, format!("find the host {name}"))
            .because("no host of that name is there, or it is not what else was asked for")
            .hint("gpucl calendar --all   # shows all that there are"));
    }
    if rows.is_empty() && !filter.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "find hosts like that")
            .because("no host is what was asked for")
            .hint("gpucl offers --all   # shows all that there are"));
    }
    Ok(())
}
