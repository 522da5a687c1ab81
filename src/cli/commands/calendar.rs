//! `gpucl calendar`.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::offers::{FilterArgs, narrow, none_is_an_error, report_left_out};
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::output::gantt::Chart;
use crate::cli::reserving::{self, ProviderArgs};
use crate::provider::CalendarRow;
use crate::util::{human, when};

/// The most days that can be shown: nothing is booked further ahead.
const MOST_DAYS: i64 = 60;
/// Up to this many bookings are also listed as text.
const MOST_LISTED: usize = 12;

/// The arguments of `calendar`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// How many days to show, 1 to 60
    #[arg(long, value_name = "N", default_value_t = 7)]
    days: i64,
    /// Also show hosts without GPUs and hosts that cannot be reserved
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    provider: ProviderArgs,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    if !(1..=MOST_DAYS).contains(&args.days) {
        return Err(usage("show the calendar", format!("--days takes 1 to {MOST_DAYS}")).into());
    }
    let sites = args.provider.sites(app, app.plain_events())?;
    let now = Timestamp::now();
    let until = when::later(now, SignedDuration::from_hours(24 * args.days));
    let filter = args.filter.filter();
    let asked = sites.ask(async |site| {
        let reservations = reserving::reservations(site.provider.as_ref(), &site.source.provider)?;
        reservations.calendar(&filter, until).await
    });
    let asked = asked.await.or_none("show the calendar")?;
    let mut rows: Vec<CalendarRow> = asked.found.into_iter().flat_map(|(_, rows)| rows).collect();
    let left_out = narrow(&mut rows, args.all || !args.filter.is_empty());
    reserving::report(app, &asked.failed);
    if asked.failed.is_empty() {
        none_is_an_error(&rows, &args.filter)?;
    }
    rows.sort_by_cached_key(|row| (row.place.clone(), human::natural(&row.name)));
    if app.json() {
        for row in &rows {
            let mut line = json!({ "v": 1, "type": "calendar_row" });
            if let (Some(line), Ok(serde_json::Value::Object(row))) = (line.as_object_mut(), serde_json::to_value(row))
            {
                line.extend(row);
            }
            app.ui.json(&line);
        }
        return Ok(exit_code::DONE);
    }
    if rows.is_empty() {
        app.ui.status("no host can be reserved here");
        return Ok(exit_code::DONE);
    }
    let zone = when::zone(app.variable("TZ"));
    let rows: Vec<&CalendarRow> = rows.iter().collect();
    let chart = Chart { rows, now, days: args.days, zone, style: app.chart_style() };
    for line in chart.lines() {
        app.ui.drawn(&line);
    }
    for line in describe(&chart, until) {
        app.ui.data(line);
    }
    report_left_out(app, left_out);
    Ok(exit_code::DONE)
}

/// The bookings as text; only our own if there are more than `MOST_LISTED`.
fn describe(chart: &Chart<'_>, until: Timestamp) -> Vec<String> {
    let mut all: Vec<(&CalendarRow, &crate::provider::Booking)> = Vec::new();
    for row in &chart.rows {
        let shown = row.bookings.iter().filter(|booking| booking.end > chart.now && booking.start < until);
        all.extend(shown.map(|booking| (*row, booking)));
    }
    let count = all.len();
    if count > MOST_LISTED {
        all.retain(|(_, booking)| booking.ours);
    }
    all.sort_by_key(|(_, booking)| booking.start);
    let several = chart.rows.iter().any(|row| row.place != chart.rows[0].place);
    let name_of = |row: &CalendarRow| match several {
        true => format!("{} at {}", row.name, row.place),
        false => row.name.clone(),
    };
    let name = chart.rows.iter().map(|row| name_of(row).chars().count()).max().unwrap_or(0);
    let line = |(row, booking): &(&CalendarRow, &crate::provider::Booking)| {
        let host = name_of(row);
        let who = match (booking.holder.as_deref(), booking.ours) {
            (Some(holder), true) => format!("yours, {holder}"),
            (Some(holder), false) => holder.to_owned(),
            (None, true) => "yours".to_owned(),
            (None, false) => "taken".to_owned(),
        };
        format!("{host:<name$}  {}  {who}", when::span(booking.start, booking.end, &chart.zone))
    };
    let mut lines: Vec<String> = all.iter().take(MOST_LISTED).map(line).collect();
    if lines.len() < count {
        let left = count - lines.len();
        lines.push(format!("and {} more (--node NAME lists those of one host)", human::count(left, "booking")));
    }
    lines
}
