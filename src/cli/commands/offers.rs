//! `gpucl offers`.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::{Table, gantt};
use crate::cli::reserving::ProviderArgs;
use crate::cluster::sites::{Answers, OpenSite, SiteFailure, Sites};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{CalendarRow, HostFilter, Offer};
use crate::providers;
use crate::state::LeaseSource;
use crate::util::{human, when};

/// How far ahead to search for free time.
const HORIZON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Selects hosts.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// A host by name; repeatable
    #[arg(long = "node", value_name = "NAME")]
    pub(crate) nodes: Vec<String>,
    /// The provider's host type, such as `compute_liqid`
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Part of the GPU's name, such as a100
    #[arg(long, value_name = "MODEL")]
    pub(crate) gpu: Option<String>,
    /// At least this many GPUs per host
    #[arg(long, value_name = "N")]
    pub(crate) gpus: Option<u32>,
}

impl FilterArgs {
    /// The filter in the provider's terms.
    pub(crate) fn filter(&self) -> HostFilter {
        HostFilter { nodes: self.nodes.clone(), kind: self.kind.clone(), gpu: self.gpu.clone(), gpus: self.gpus }
    }

    /// No filter was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.filter() == HostFilter::default()
    }
}

/// The arguments of `offers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// Same as --gpus
    #[arg(long, value_name = "N", conflicts_with = "gpus")]
    count: Option<u32>,
    /// At most this price per hour, in the provider's unit: dollars or service units
    #[arg(long, value_name = "PRICE")]
    max_price: Option<f64>,
    /// Only this region or site
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Also say when this many of the hosts are free at the same time
    #[arg(long, value_name = "N")]
    hosts: Option<usize>,
    /// Also show hosts without GPUs and offers that are not available now
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    provider: ProviderArgs,
}

impl Args {
    fn filter(&self) -> HostFilter {
        HostFilter { gpus: self.filter.gpus.or(self.count), ..self.filter.filter() }
    }

    /// Whether a row passes the filters that providers do not apply: price and region.
    fn passes(&self, row: &CalendarRow) -> bool {
        let most = self.max_price.map(|most| most * 1e6);
        let price = row.price_per_hour.map(|price| price.0.micros as f64);
        most.is_none_or(|most| price.is_some_and(|price| price <= most))
            && self.region.as_deref().is_none_or(|region| row.place.eq_ignore_ascii_case(region))
    }
}

/// An offer, or the site that did not answer.
struct OfferOrFailure {
    provider: String,
    row: std::result::Result<CalendarRow, SiteFailure>,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let filter = args.filter();
    let is_narrow = filter != HostFilter::default() || args.max_price.is_some() || args.region.is_some();
    let now = Timestamp::now();
    let zone = when::zone(app.variable("TZ"));
    let sites = sites(app, &args.provider)?;
    let Answers { found, mut failed } = sites.ask(async |site| rows_of(site, &filter, now).await).await;
    let of_provider = |(site, rows): (&OpenSite, Vec<CalendarRow>)| {
        let provider = site.source.provider.clone();
        rows.into_iter().map(move |row| (provider.clone(), row))
    };
    let mut rows: Vec<(String, CalendarRow)> = found.into_iter().flat_map(of_provider).collect();
    // The failure of the only site is the command's error; of several, each failure is a row.
    if rows.is_empty()
        && let Some(failure) = failed.pop_if(|_| sites.len() == 1)
    {
        return Err(failure.error.into());
    }
    rows.retain(|(_, row)| args.passes(row));
    let before = rows.len();
    if !args.all && !is_narrow && rows.iter().any(|(_, row)| !row.gpus.is_empty()) {
        rows.retain(|(_, row)| !row.gpus.is_empty() && row.closed.is_none());
    }
    let left_out = before - rows.len();
    if failed.is_empty() {
        let only: Vec<CalendarRow> = rows.iter().map(|(_, row)| row.clone()).collect();
        none_is_an_error(&only, &args.filter)?;
        if only.is_empty() && is_narrow {
            return Err(none_like_that().into());
        }
    }
    // Soonest free first, then cheapest, then free for longest; closed hosts last.
    rows.sort_by_cached_key(|(_, row)| {
        let (from, until) = gantt::free_from(row, now);
        let price = row.price_per_hour.map_or((u64::MAX, None), |price| (price.0.micros, Some(price.0.unit)));
        (
            row.closed.is_some(),
            from.max(now),
            price,
            std::cmp::Reverse(until.unwrap_or(Timestamp::MAX)),
            human::natural(&row.name),
            row.place.clone(),
        )
    });
    let only: Vec<CalendarRow> = rows.iter().map(|(_, row)| row.clone()).collect();
    let nobody_answered = failed.len() == sites.len();
    let found = rows.into_iter().map(|(provider, row)| OfferOrFailure { provider, row: Ok(row) });
    let failed = failed.into_iter();
    let found = found
        .chain(failed.map(|failure| OfferOrFailure { provider: failure.source.provider.clone(), row: Err(failure) }));
    describe(app, found.collect(), now, &zone);
    if !app.json() {
        if let Some(from) = only.iter().find_map(|row| row.gpus_from.as_ref()) {
            app.ui.status(format!("*: the service does not report GPUs; these are from {from}"));
        }
        report_left_out(app, left_out);
        if let Some(count) = args.hosts {
            app.ui.status(together(&only, count, now, &zone));
        }
    }
    Ok(if nobody_answered { exit_code::FAILED } else { exit_code::DONE })
}

/// The sites of the selected provider, or of all that the user is logged in to.
fn sites(app: &App, args: &ProviderArgs) -> Result<Sites> {
    if !args.is_open() {
        return args.sites(app, app.plain_events());
    }
    let context = app.provider_context(app.plain_events());
    let (mut found, mut known) = (Sites::default(), Vec::new());
    for factory in providers::all() {
        let (Some(login), manifest) = (factory.login(), factory.manifest()?) else { continue };
        let source = |settings| LeaseSource { provider: manifest.name.clone(), settings, place: String::new() };
        match login.sources(&context) {
            Ok(each) => each.into_iter().for_each(|settings| found.add(source(settings), &context)),
            Err(error) => found.fail(source(json!({})), error),
        }
        known.push(manifest.name.clone());
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let error = Error::new(ErrorKind::Usage, "find offers")
        .because(format!("you are not logged in to any provider: {}", known.join(", ")));
    Err(known.iter().fold(error, |error, name| error.hint(format!("gpucl login {name}"))))
}

/// The offers of one site.
async fn rows_of(site: &OpenSite, filter: &HostFilter, now: Timestamp) -> Result<Vec<CalendarRow>> {
    if let Some(reservations) = site.provider.reservations() {
        return reservations.calendar(filter, when::later(now, HORIZON)).await;
    }
    let rows = site.provider.offers().await?.into_iter().map(row_of);
    Ok(rows.filter(|row| is_meant(row, filter)).collect())
}

/// An offer of a provider without reservations, as a row.
fn row_of(offer: Offer) -> CalendarRow {
    CalendarRow {
        id: String::new(),
        place: offer.place,
        kind: offer.name.clone(),
        name: offer.name,
        cpus: offer.cpus,
        memory: offer.memory,
        gpus: offer.gpus,
        gpus_from: None,
        price_per_hour: offer.price_per_hour,
        closed: (offer.free != "now").then_some(offer.free),
        bookings: Vec::new(),
    }
}

fn is_meant(row: &CalendarRow, filter: &HostFilter) -> bool {
    let holds = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
    let of_gpu = |part: &String| row.gpus.iter().any(|gpu| holds(&gpu.model, part)) || holds(&row.name, part);
    (filter.nodes.is_empty() || filter.nodes.contains(&row.name))
        && filter.kind.as_ref().is_none_or(|kind| *kind == row.kind)
        && filter.gpu.as_ref().is_none_or(of_gpu)
        && filter.gpus.is_none_or(|least| row.gpus.iter().any(|gpu| gpu.count.unwrap_or(1) >= least))
}

/// Prints what was found.
fn describe(app: &App, found: Vec<OfferOrFailure>, now: Timestamp, zone: &TimeZone) {
    let mut table = Table::new(&["provider", "name", "where", "type", "GPUs", "CPUs", "memory", "price/h", "free"]);
    for OfferOrFailure { provider, row } in found {
        match (app.json(), row) {
            (true, Ok(row)) => {
                let (from, until) = gantt::free_from(&row, now);
                app.ui.json(&json!({
                    "v": 1, "type": "offer", "provider": provider, "name": row.name, "place": row.place, "kind": row.kind,
                    "gpus": row.gpus, "gpus_from": row.gpus_from, "cpus": row.cpus, "memory": row.memory,
                    "price_per_hour": row.price_per_hour, "closed": row.closed,
                    "free_from": row.closed.is_none().then_some(from), "free_until": until,
                }));
            }
            (true, Err(failure)) => app.ui.json(&json!({
                "v": 1, "type": "offers_failed", "provider": provider, "place": failure.name(),
                "error": failure.error.to_string(), "hints": failure.error.hints(),
            })),
            (false, Ok(row)) => table.row(cells(&provider, &row, now, zone)),
            (false, Err(failure)) => {
                let dash = || "-".to_owned();
                let text = format!("failed: {}", failure.error);
                let place = if failure.name() == provider { dash() } else { failure.name().to_owned() };
                table.row([provider, dash(), place, dash(), dash(), dash(), dash(), dash(), text]);
                for hint in failure.error.hints() {
                    app.ui.status(format!("hint: {hint}"));
                }
            }
        }
    }
    if !app.json() {
        app.ui.data(table);
    }
}

fn cells(provider: &str, row: &CalendarRow, now: Timestamp, zone: &TimeZone) -> [String; 9] {
    let unknown = |text: String, known: bool| if known { text } else { "-".to_owned() };
    let mark = if row.gpus_from.is_some() { "*" } else { "" };
    let gpus: Vec<String> = row
        .gpus
        .iter()
        .map(|gpu| {
            let count = gpu.count.map_or_else(|| "?".to_owned(), |count| count.to_string());
            format!("{count}x {}{mark}", gpu.model)
        })
        .collect();
    [
        provider.to_owned(),
        row.name.clone(),
        row.place.clone(),
        // If only the type has a name, it is shown once.
        unknown(row.kind.clone(), !row.kind.is_empty() && row.kind != row.name),
        unknown(gpus.join(", "), !gpus.is_empty()),
        unknown(row.cpus.to_string(), row.cpus > 0),
        unknown(human::bytes(row.memory), row.memory > 0),
        unknown(row.price_per_hour.map(|price| price.to_string()).unwrap_or_default(), row.price_per_hour.is_some()),
        free(row, now, zone),
    ]
}

/// `now, for 3 h`, or `from Sun 22 Nov 14:50 CST (20:50 UTC), in 2 h, for 3 h`, or why it is not available.
fn free(row: &CalendarRow, now: Timestamp, zone: &TimeZone) -> String {
    if let Some(why) = &row.closed {
        return why.clone();
    }
    let (from, until) = gantt::free_from(row, now);
    let how_long = until.map(|until| format!(", for {}", when::length(when::between(from, until)))).unwrap_or_default();
    if from <= now {
        return format!("now{how_long}");
    }
    format!("from {}, in {}{how_long}", when::both(from, zone), when::length(when::between(now, from)))
}

/// When and where `count` of these are free at the same time: one lease is at one site.
fn together(rows: &[CalendarRow], count: usize, now: Timestamp, zone: &TimeZone) -> String {
    let mut places: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.closed.is_none()) {
        places.entry(&row.place).or_default().push(gantt::free_from(row, now).0.max(now));
    }
    places.values_mut().for_each(|times| times.sort());
    let at = |place: &str| if places.len() > 1 { format!(" at {place}") } else { String::new() };
    let enough = places.iter().filter_map(|(place, times)| Some((times.get(count.saturating_sub(1))?, place, times)));
    match enough.min_by_key(|(at, ..)| **at) {
        Some((from, place, times)) if *from == now => {
            let free = times.iter().filter(|at| **at == now).count();
            format!("{free} of these are free now{}", at(place))
        }
        Some((from, place, _)) => format!(
            "{count} of these are free from about {}{}; `gpucl lease --count {count} --dry-run` shows the exact time",
            when::both(*from, zone),
            at(place)
        ),
        None => {
            let most = places.values().map(Vec::len).max().unwrap_or(0);
            let where_ = if places.len() > 1 { " at any one site" } else { "" };
            format!("there are fewer than {count} of these{where_}: only {}", human::count(most, "host"))
        }
    }
}

/// Removes hosts without GPUs and closed hosts, unless `all` is set; returns how many.
pub(crate) fn narrow(rows: &mut Vec<CalendarRow>, all: bool) -> usize {
    let before = rows.len();
    if !all && rows.iter().any(|row| !row.gpus.is_empty()) {
        rows.retain(|row| !row.gpus.is_empty() && row.closed.is_none());
    }
    before - rows.len()
}

/// Prints how many hosts were left out.
pub(crate) fn report_left_out(app: &App, left_out: usize) {
    if left_out > 0 {
        app.ui.status(format!(
            "{} without GPUs or unavailable left out (--all shows them)",
            human::count(left_out, "host")
        ));
    }
}

/// An error if no host passes the filter, which is probably a mistake.
pub(crate) fn none_is_an_error(rows: &[CalendarRow], filter: &FilterArgs) -> Result<()> {
    if let Some(name) = filter.nodes.iter().find(|name| !rows.iter().any(|row| row.name == **name)) {
        return Err(Error::new(ErrorKind::NotFound, format!("find the host {name}"))
            .because("there is no host of that name, or it does not match the other filters")
            .hint("gpucl calendar --all   # shows all hosts"));
    }
    if rows.is_empty() && !filter.is_empty() {
        return Err(none_like_that());
    }
    Ok(())
}

fn none_like_that() -> Error {
    Error::new(ErrorKind::NotFound, "find matching hosts")
        .because("no host matches the filters")
        .hint("gpucl offers --all   # shows all offers")
}
