//! `gpucl provider`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::commands::sandbox;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::provider::conformance::{Case, CaseResult, Outcome, Subject, count, run_until};
use crate::provider::{Context, FieldError, Offer, ProviderKind, UserEnvironment};
use crate::providers;
use crate::sandbox::{chameleon, lambda};
use crate::spec;
use crate::util::human::short_duration;
use anyhow::Context as _;

/// The commands below `provider`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the providers
    List,
    /// Run the conformance checks on a provider, case by case
    Check(CheckArgs),
}

/// The arguments of `provider check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The provider's name
    name: String,
    /// Acquire resources that cost money
    #[arg(long)]
    spend: bool,
    /// Check against the provider's stand-in instead of the real service
    #[arg(long, conflicts_with = "spend")]
    sandbox: bool,
    /// The provider's settings as JSON: the content of `provider:` in a spec
    #[arg(long, value_name = "JSON", default_value = "{}")]
    settings: String,
    /// The host to request as JSON: an entry of `hosts:` in a spec; default: the provider's example
    #[arg(long, value_name = "JSON")]
    host: Option<String>,
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::List => Ok(list(app)?),
        Command::Check(args) => check(app, args).await,
    }
}

fn list(app: &App) -> Result<u8> {
    let mut table = Table::new(&["name", "kind", "costs money", "runtimes", "summary"]);
    for factory in providers::all() {
        let (manifest, capability) = (factory.manifest()?, factory.capability());
        if app.json() {
            app.ui.json(&json!({
                "v": 1, "type": "provider", "name": manifest.name, "summary": manifest.summary,
                "secrets": manifest.secrets, "docs": manifest.docs, "capability": capability,
            }));
        }
        let kind = match capability.kind {
            ProviderKind::Host => "host",
            ProviderKind::Platform => "platform",
        };
        let runtimes = capability.runtimes.iter().map(|runtime| runtime.name()).collect::<Vec<_>>().join(", ");
        let money = if capability.costs_money { "yes" } else { "no" };
        table.row([&manifest.name, kind, money, &runtimes, &manifest.summary]);
    }
    if !app.json() {
        app.ui.data(table);
    }
    Ok(exit_code::DONE)
}

async fn check(app: &App, args: CheckArgs) -> anyhow::Result<u8> {
    let doing = format!("check the provider `{}`", args.name);
    let factory = providers::find(&args.name)?;
    let settings = parsed(&args.settings, "--settings")?;
    let host = args.host.as_deref().map_or_else(|| Ok(factory.example_host()), |host| parsed(host, "--host"))?;
    if let Some(error) = spec::check_settings(factory, &settings, std::slice::from_ref(&host)).first() {
        return Err(wrong_field(&doing, error).into());
    }
    let events = app.plain_events();
    // The suite's clusters have no state; their host keys must not lie beside those of real clusters.
    let folder = tempfile::tempdir().context("make a folder for the check")?;
    let context = Context { clusters_dir: folder.path().to_owned(), ..app.provider_context(events) };
    let stand_in = match args.sandbox {
        true => Some(StandIn::start(&args.name, &doing).await?),
        false => None,
    };
    let context = match &stand_in {
        Some(sandbox) => isolated(context, folder.path(), sandbox),
        None => context,
    };
    let provider = factory.open(&settings, &context)?;
    if provider.capability().costs_money && stand_in.is_none() {
        app.ui.status(consent(&args.name, &provider.offers().await?, args.spend)?);
    }

    let mut subject = Subject { host, ..Subject::new(provider.as_ref())? };
    if stand_in.is_some() {
        (subject.consistency_delay, subject.patience) = STAND_IN_WAITS;
    }
    app.ui.status(format!(
        "checking {}; resources it makes are named gpucl-{}-… and gpucl-{}-…, and are removed",
        args.name, subject.owner, subject.stranger
    ));
    let ui = app.ui;
    let json = app.json();
    let mut report = |result: &CaseResult| {
        if json { ui.json(&case_json(result)) } else { ui.data(case_line(result)) }
    };
    let stopped = AtomicBool::new(false);
    let stop = async {
        interrupted().await;
        stopped.store(true, Ordering::Relaxed);
        ui.status("stopping: no further case is tried, and what was made is removed; Ctrl-C again leaves it in place");
    };
    let run = run_until(&subject, stop, &mut report);
    let results = tokio::select! {
        results = run => results,
        () = interrupted_twice() => return Err(abandoned(&doing, &subject).into()),
    };
    let (passed, failed, other) = count(&results);
    let untried = Case::ALL.len() - results.len();
    if json {
        ui.json(&json!({
            "v": 1, "type": "conformance_summary", "provider": args.name, "passed": passed, "failed": failed,
            "not_applicable": other, "not_tried": untried,
        }));
    } else {
        let rest = if untried == 0 { String::new() } else { format!(", {untried} not tried") };
        ui.data(format!(
            "conformance of {}: {passed} passed, {failed} failed, {other} not applicable{rest}",
            args.name
        ));
    }
    if stopped.into_inner() {
        return Ok(exit_code::INTERRUPTED);
    }
    Ok(if failed == 0 { exit_code::DONE } else { exit_code::FAILED })
}

fn parsed(text: &str, flag: &str) -> Result<Value> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| usage(format!("read {flag}"), error).hint(format!("write it like {flag} '{{\"key\": 1}}'")))?;
    if value.is_object() { Ok(value) } else { Err(usage(format!("read {flag}"), "it is not a JSON object")) }
}

fn wrong_field(doing: &str, error: &FieldError) -> Error {
    let place = if error.path.is_empty() { String::new() } else { format!("`{}`: ", error.path) };
    let wrong = usage(doing, format!("{place}{}", error.message));
    if error.known.is_empty() { wrong } else { wrong.hint(format!("known here: {}", error.known.join(", "))) }
}

/// Consistency delay and patience for a stand-in: its effects are visible as soon as it answers.
const STAND_IN_WAITS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A provider's stand-in, in this process.
enum StandIn {
    Chameleon(chameleon::Sandbox),
    Lambda(lambda::Sandbox),
}

impl StandIn {
    async fn start(name: &str, doing: &str) -> Result<Self> {
        Ok(match name {
            "chameleon" => Self::Chameleon(chameleon::Sandbox::start(sandbox::chameleon::prompt()).await?),
            "lambda" => Self::Lambda(lambda::Sandbox::start(lambda::Config::prompt()).await?),
            _ => {
                return Err(Error::new(ErrorKind::Unsupported, doing)
                    .because(format!("`{name}` has no stand-in"))
                    .hint(format!("gpucl provider check {name}")));
            }
        })
    }

    /// The environment variables that its users set.
    fn variables(&self) -> Vec<(String, String)> {
        match self {
            Self::Chameleon(site) => sandbox::chameleon::variables(site, chameleon::User::Alice),
            Self::Lambda(cloud) => {
                let mut variables = sandbox::lambda::variables(cloud, lambda::User::Alice);
                // It has no rate limits that would require Lambda's pace.
                variables.push(("GPUCL_LAMBDA_PACE".to_owned(), "0.001".to_owned()));
                variables
            }
        }
    }
}

/// A context whose user environment has the stand-in and nothing of the user's.
fn isolated(context: Context, folder: &Path, sandbox: &StandIn) -> Context {
    let user_environment = UserEnvironment {
        variables: sandbox.variables().into_iter().collect(),
        home: folder.to_owned(),
        config_home: folder.join("config"),
        config_dir: folder.join("config/gpucl"),
        here: folder.to_owned(),
    };
    Context { user_environment, clusters_dir: folder.join("clusters"), ..context }
}

/// Describes what a check acquires and at what price; an error with that text unless `spend` is set.
fn consent(name: &str, offers: &[Offer], spend: bool) -> Result<String> {
    let offers: Vec<String> = offers
        .iter()
        .map(|offer| {
            let price = offer.price_per_hour.map_or_else(|| "nothing".to_owned(), |price| price.to_string());
            format!("{} at {}: {price} an hour", offer.name, offer.place)
        })
        .collect();
    let offers = if offers.is_empty() { "nothing now".to_owned() } else { offers.join("; ") };
    let price =
        format!("the check acquires its host about a dozen times, at most three at once; {name} offers {offers}");
    if spend {
        return Ok(price);
    }
    Err(usage(format!("check the provider `{name}`"), "it costs money, and --spend was not given")
        .because(price)
        .hint(format!("gpucl provider check {name} --spend")))
}

fn abandoned(doing: &str, subject: &Subject<'_>) -> Error {
    Error::new(ErrorKind::Cancelled, doing).because("it was stopped before everything was removed").left(
        LeftBehind::Remaining(vec![
            format!("resources named gpucl-{}-…", subject.owner),
            format!("resources named gpucl-{}-…", subject.stranger),
        ]),
    )
}

/// Resolves at the first Ctrl-C.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Resolves at the second Ctrl-C.
async fn interrupted_twice() {
    interrupted().await;
    interrupted().await;
}

fn case_line(result: &CaseResult) -> String {
    let name = result.case.name();
    match &result.outcome {
        Outcome::Passed => format!("passed  {name} ({})", short_duration(result.elapsed)),
        Outcome::NotApplicable(capability) => format!("n/a     {name}: {capability}"),
        Outcome::Failed(what) => {
            format!(
                "FAILED  {name} ({})\n        {}\n        {what}",
                short_duration(result.elapsed),
                result.case.obligation()
            )
        }
    }
}

fn case_json(result: &CaseResult) -> Value {
    let (outcome, detail) = match &result.outcome {
        Outcome::Passed => ("passed", None),
        Outcome::NotApplicable(capability) => ("not_applicable", Some(*capability)),
        Outcome::Failed(what) => ("failed", Some(what.as_str())),
    };
    json!({
        "v": 1, "type": "conformance_case", "case": result.case.name(), "outcome": outcome, "detail": detail,
        "milliseconds": u64::try_from(result.elapsed.as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_spent_only_with_the_flag() {
        let offer = Offer {
            name: "gpu_1x_a10".to_owned(),
            place: "us-east-1".to_owned(),
            cpus: 30,
            memory: 200 << 30,
            gpus: Vec::new(),
            price_per_hour: Some(crate::money::HourlyPrice::cents(129)),
            free: "now".to_owned(),
        };
        let error = consent("lambda", std::slice::from_ref(&offer), false).unwrap_err();
        assert_eq!(exit_code::of(error.kind()), exit_code::USAGE);
        assert!(error.to_string().contains("gpu_1x_a10 at us-east-1: 1.29 USD an hour"), "{error}");
        assert_eq!(error.hints(), ["gpucl provider check lambda --spend"]);
        assert!(consent("lambda", &[offer], true).unwrap().contains("1.29 USD"));
    }
}
