//! Messages and questions about cost, deadlines and cost limits.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use super::app::App;
use super::command_error::usage;
use super::output::Ui;
use crate::agent::credential::{kept_secrets, secrets_file};
use crate::cluster::{self, Approval, Ask, LimitsReport, StatusReport};
use crate::error::Result;
use crate::provider::platform::Site;
use crate::spec::{Amount, Spec};
use crate::util::human;

/// `status` warns about a deadline or cost limit that is nearer than this.
const SOON: Duration = Duration::from_secs(15 * 60);

/// The approval for expensive clusters: asks the user before anything is made, unless `--yes` was given. `with_yes` is
/// the command that does.
pub(crate) fn approval(app: &App, spec: &Path, with_yes: String) -> Approval {
    if app.yes {
        return Approval::default();
    }
    let (ui, json, spec) = (app.ui, app.json(), spec.display().to_string());
    Approval::by(move |ask| {
        let (price, above) = match ask {
            Ask::Price { price, above } => (price, above),
            Ask::Place(site) => return place(ui, json, site, &with_yes),
        };
        let above = format!("more than {} an hour needs confirmation (`ask_above`)", above.0);
        if json || !ui.asks() {
            return Err(usage(format!("bring up {spec}: it costs {price}"), above)
                .because("there is no terminal to ask at; nothing was made")
                .hint(format!("{with_yes}   # to accept the price"))
                .hint(format!(
                    "--ask-above '{}'   # or GPUCL_ASK_ABOVE: asks only above that price",
                    describe_price_above(price)
                )));
        }
        let answer = ui.ask(&format!("it costs {price}; bring it up? [y/N] "));
        yes(&answer, "bring it up")
    })
}

/// The user's own limit of the price an hour, from the environment.
pub(crate) fn ask_above(app: &App) -> Result<Option<Amount>> {
    let given = app.variable("GPUCL_ASK_ABOVE").filter(|text| !text.is_empty());
    given.map(|text| text.parse().map_err(|why: String| usage("read GPUCL_ASK_ABOVE", why))).transpose()
}

/// Asks whether a place is the right one for a first cluster.
fn place(ui: Ui, json: bool, site: &Site, with_yes: &str) -> Result<()> {
    let Site { server, place, user } = site;
    let what = format!("the first cluster at {place}: {server}, as {user}");
    if json || !ui.asks() {
        return Err(usage(format!("bring up {what}"), "a first cluster at a place needs confirmation")
            .because("there is no terminal to ask at; nothing was made")
            .hint(format!("{with_yes} --at {place}   # if that is where it shall run")));
    }
    yes(&ui.ask(&format!("this is {what}; bring it up there? [y/N] ")), "bring it up")
}

/// The hourly price, in the form that `--ask-above` takes.
fn describe_price_above(price: &crate::plan::Price) -> String {
    price.per_hour.first().map(ToString::to_string).unwrap_or_default()
}

/// The credentials that the deadline agent needs a copy of; asks before they are first written.
pub(crate) fn secrets_to_keep(app: &App, spec: &Spec, with_yes: &str) -> Result<BTreeMap<String, SecretString>> {
    if !cluster::has_limits(spec) {
        return Ok(BTreeMap::new());
    }
    let secrets = cluster::secrets_of(spec, &app.user_environment().variables)?;
    let folder = app.paths.cluster(&spec.name);
    let kept = kept_secrets(&folder);
    let is_kept = |(name, secret): (&String, &SecretString)| {
        kept.get(name).is_some_and(|kept| kept.expose_secret() == secret.expose_secret())
    };
    if app.yes || secrets.iter().all(is_kept) {
        return Ok(secrets);
    }
    let names = secrets.keys().cloned().collect::<Vec<_>>().join(", ");
    let what = format!("to take the cluster down at its end, gpucl keeps a copy of {names}");
    let place = secrets_file(&folder);
    if app.json() || !app.ui.asks() {
        return Err(usage(format!("bring up {}", spec.name), what)
            .because(format!("it would be stored in {}, readable only by you, until `gpucl down`", place.display()))
            .because("there is no terminal to ask at; nothing was made")
            .hint(format!("{with_yes}   # if you agree"))
            .hint(format!(
                "gpucl login {}   # stores the credential permanently; then leave the variables unset",
                spec.provider.name()
            )));
    }
    let answer = app.ui.ask(&format!("{what}\nin {} (0600), until `gpucl down`; agreed? [y/N] ", place.display()));
    yes(&answer, &format!("bring up {}", spec.name)).map(|()| secrets)
}

fn yes(answer: &str, doing: &str) -> Result<()> {
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(usage(doing, "not confirmed; nothing was made")),
    }
}

/// A cluster's cost, end, deadline and cost limit, as lines of `status`.
pub(crate) fn lines(report: &StatusReport) -> Vec<String> {
    let mut lines = Vec::new();
    if !report.cost.is_none() {
        lines.push(format!("costs {}", report.cost.describe()));
    }
    lines.extend(report.end.iter().flat_map(|end| end.lines(Timestamp::now())));
    let Some(limits) = &report.deadline else { return lines };
    if let Some(at) = limits.at {
        lines.push(format!("deadline: {}; then it is taken down{}", human::in_time(at), by(limits)));
    } else if limits.is_unlimited {
        lines.push(format!("its end is seen to{}", by(limits)));
    } else if limits.max_cost.is_none() {
        lines.push(format!("deadline: counts from its first host{}", by(limits)));
    }
    if let Some(cost) = limits.max_cost {
        let when =
            limits.cost_reached_at.map(|at| format!(", reached about {}", human::in_time(at))).unwrap_or_default();
        lines.push(format!("max_cost: {cost}{when}; then it is taken down{}", by(limits)));
    }
    lines.extend(warnings(limits));
    lines
}

fn by(limits: &LimitsReport) -> String {
    match limits.pid {
        Some(pid) => format!(" by process {pid}, unless this machine is off or asleep"),
        // This command has restarted the agent, or has printed why it could not.
        None => ", once its agent runs again".to_owned(),
    }
}

/// Warnings: a limit is near or reached, or taking the cluster down failed.
fn warnings(limits: &LimitsReport) -> Vec<String> {
    let mut lines = Vec::new();
    let first = [limits.at, limits.cost_reached_at].into_iter().flatten().min();
    if limits.acts {
        lines.push("warning: it is being taken down: its end has come".to_owned());
    } else if let Some(left) = first.map(|at| at.duration_since(Timestamp::now())).filter(|left| left.is_positive())
        && left.unsigned_abs() < SOON
    {
        lines.push(format!("warning: it will be taken down in {}", human::short_duration(left.unsigned_abs())));
    }
    if limits.failed > 0 {
        let why = limits.last_error.clone().unwrap_or_default();
        let next = limits.next.map(|at| format!("; next attempt {}", human::in_time(at))).unwrap_or_default();
        lines.push(format!(
            "warning: taking it down failed {}: {why}{next}",
            human::count(limits.failed as usize, "time")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (answer, is_yes) in [("y\n", true), ("yes", true), ("Y", true), ("", false), ("n", false), ("yep", false)] {
            let result = yes(answer, "bring it up");
            assert_eq!(result.is_ok(), is_yes, "{answer}");
        }
    }
}
