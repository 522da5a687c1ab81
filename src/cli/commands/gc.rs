//! `gpucl gc`.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::reserving::{self, ProviderArgs};
use crate::cluster::{Gc, GcOptions, Settings, Standing, TaggedResource};
use crate::engine::Cancel;
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::Owner;
use crate::provider::Provider;
use crate::providers;
use crate::state::LeaseSource;
use crate::state::{check_here, known_owner};
use crate::util::{human, when};

/// The arguments of `gc`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also delete leases that belong to no cluster
    #[arg(long)]
    leases: bool,
    /// Delete only the resource with this id, whatever owner its tag names, if your user made it; repeatable
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    provider: ProviderArgs,
}

/// An open provider.
struct OpenProvider {
    name: String,
    provider: Box<dyn Provider>,
}

/// Providers that could not be queried, and why.
type Silent = Vec<(String, Error)>;

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings_to_inspect(app.plain_events(), cancel)?;
    // No owner is created: a new one would own nothing.
    let owner = known_owner(&app.paths)?;
    let options = GcOptions { leases: args.leases, ids: args.ids.clone() };
    let command =
        GcCommand { app, settings: &settings, owner, options, zone: when::zone(app.variable("TZ")), args: &args };
    Ok(command.run().await?)
}

struct GcCommand<'a> {
    app: &'a App,
    settings: &'a Settings,
    owner: Option<Owner>,
    options: GcOptions,
    zone: TimeZone,
    args: &'a Args,
}

impl GcCommand<'_> {
    async fn run(&self) -> Result<u8> {
        let (places, mut silent) = self.places()?;
        let mut asked = Vec::new();
        for place in &places {
            match self.gc(place).find().await {
                Ok(found) => asked.push((place, found)),
                Err(error) if self.args.provider.is_open() => silent.push((place.name.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        let all = || asked.iter().flat_map(|(place, found)| found.iter().map(|one| (place.name.as_str(), one)));
        self.show(&all().collect::<Vec<_>>());
        for (name, error) in &silent {
            self.app.ui.status(format!("warning: `{name}` was not queried: {error}"));
        }
        self.refuse(&all().map(|(_, one)| one).collect::<Vec<_>>())?;
        let going = all().filter(|(_, one)| one.standing.goes()).count();
        let failed = |silent: &[(String, Error)]| if silent.is_empty() { exit_code::DONE } else { exit_code::FAILED };
        // A provider that was never set up holds nothing of ours.
        silent
            .retain(|(_, error)| !matches!(error.kind(), ErrorKind::Usage | ErrorKind::Spec | ErrorKind::Unsupported));
        if going == 0 {
            let names: Vec<&str> = asked.iter().map(|(place, _)| place.name.as_str()).collect();
            self.end(&format!("nothing to delete at {}", names.join(", ")), 0);
            return Ok(failed(&silent));
        }
        if !self.app.yes && (self.app.json() || !self.app.ui.asks()) {
            self.app.ui.status(format!("nothing was deleted; `{} --yes` deletes {}", self.command(), resources(going)));
            return Ok(failed(&silent));
        }
        if !self.app.yes {
            let answer = self.app.ui.ask(&format!("delete {}? [y/N] ", resources(going)));
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                return Err(usage("delete what is left", "not confirmed; nothing was changed"));
            }
        }
        let (mut left, mut errors) = (Vec::new(), Vec::new());
        for (place, found) in &asked {
            if found.iter().any(|one| one.standing.goes()) {
                errors.extend(self.gc(place).delete(found).await);
                left.extend(self.gc(place).left().await?);
            }
        }
        if !left.is_empty() {
            return Err(self.left_behind(&left, errors));
        }
        // A failed deletion does not matter if the resource is gone anyway.
        let names: Vec<&str> = asked.iter().map(|(place, _)| place.name.as_str()).collect();
        self.end(&format!("deleted {}; queried {} again: nothing is left", resources(going), names.join(", ")), going);
        Ok(failed(&silent))
    }

    fn gc<'b>(&'b self, place: &'b OpenProvider) -> Gc<'b> {
        Gc {
            settings: self.settings,
            owner: self.owner.clone(),
            name: place.name.clone(),
            provider: place.provider.as_ref(),
            options: self.options.clone(),
        }
    }

    /// The selected provider; without one, all providers that open, and those that do not.
    fn places(&self) -> Result<(Vec<OpenProvider>, Silent)> {
        let open = |source: &LeaseSource| {
            let provider = reserving::open(self.app, source, self.settings.events.clone())?;
            Ok(OpenProvider { name: source.provider.clone(), provider })
        };
        if !self.args.provider.is_open() {
            return Ok((vec![open(&self.args.provider.source()?)?], Vec::new()));
        }
        let (mut places, mut silent) = (Vec::new(), Vec::new());
        for name in providers::names() {
            let source =
                LeaseSource { provider: name, settings: Value::Object(serde_json::Map::new()), place: String::new() };
            match open(&source) {
                Ok(place) => places.push(place),
                Err(error) => silent.push((source.provider, error)),
            }
        }
        Ok((places, silent))
    }

    /// Shows all findings, sorted by cluster.
    fn show(&self, found: &[(&str, &TaggedResource)]) {
        let mut sorted = found.to_vec();
        sorted.sort_by_key(|(name, one)| (one.tag.owner.clone(), one.tag.cluster.clone(), (*name).to_owned()));
        let mut table = Table::new(&["cluster", "kind", "key", "id", "until", "note"]);
        for (name, one) in &sorted {
            if self.app.json() {
                self.app.ui.json(&line(name, one));
            }
            let resource = &one.resource;
            table.row([
                if one.tag.cluster.is_reserved() { "-".to_owned() } else { one.tag.cluster.to_string() },
                resource.kind.0.clone(),
                one.tag.key.display_name(),
                resource.id.clone(),
                resource.until.map(|until| when::local(until, &self.zone)).unwrap_or_default(),
                self.note(one),
            ]);
        }
        if !self.app.json() && !sorted.is_empty() {
            self.app.ui.data(table);
        }
    }

    /// Why it will or will not be deleted, and other details.
    fn note(&self, one: &TaggedResource) -> String {
        let mut notes: Vec<String> = Vec::new();
        notes.extend(Some(one.resource.detail.clone()).filter(|detail| !detail.is_empty()));
        let cluster = &one.tag.cluster;
        notes.extend(match one.standing {
            Standing::Left | Standing::Named => None,
            Standing::HasState => Some(format!("has state here: gpucl down -c {cluster}")),
            Standing::NeedsDown => Some(format!("only `down` can remove it: gpucl down -c {cluster}")),
            Standing::Lease => Some("belongs to no cluster: kept without --leases".to_owned()),
            Standing::Unknown => Some("unknown if it is yours".to_owned()),
        });
        if self.owner.as_ref() != Some(&one.tag.owner) {
            notes.push(format!("owner {}", one.tag.owner));
        }
        notes.join("; ")
    }

    /// Refuses impossible requests: an unknown id, one that only `down` removes, or no owner.
    fn refuse(&self, found: &[&TaggedResource]) -> Result<()> {
        for id in &self.options.ids {
            let Some(one) = found.iter().find(|one| one.resource.id == *id) else {
                return Err(Error::new(ErrorKind::NotFound, format!("find {id}"))
                    .because("no resource with that id has a gpucl tag and was made by your user; nothing was deleted")
                    .hint("gpucl gc   # lists what is yours"));
            };
            if !one.standing.goes() {
                return Err(usage(
                    format!("delete {}", one.describe()),
                    format!("{}; nothing was deleted", self.note(one)),
                )
                .hint(format!("gpucl down -c {}", one.tag.cluster)));
            }
        }
        if !self.options.ids.is_empty() || found.is_empty() {
            return Ok(());
        }
        if self.owner.is_some() {
            // Resources with the owner's tag may be in use by the machine that the owner belongs to.
            return check_here(&self.app.paths);
        }
        let path = self.app.paths.owner();
        Err(Error::new(ErrorKind::State, "determine which of these resources are yours")
            .because(format!("there is no owner in {}; nothing was deleted", path.display()))
            .hint(format!("if they are yours, restore the eight characters that were in {}", path.display()))
            .hint(format!("gpucl gc{} --id ID   # deletes one that your user made", self.args.provider.flags())))
    }

    fn left_behind(&self, left: &[TaggedResource], errors: Vec<(TaggedResource, Error)>) -> Error {
        let mut error = Error::new(ErrorKind::LeftBehind, "delete what is left");
        for (one, why) in errors {
            error = error.because(format!("{}: {why}", one.describe()));
        }
        error
            .because("queried again, some of it is still there")
            .left(LeftBehind::Remaining(left.iter().map(TaggedResource::describe).collect()))
            .hint(self.command())
    }

    /// This command again, with the same flags.
    fn command(&self) -> String {
        let leases = if self.options.leases { " --leases" } else { "" };
        let ids: String = self.options.ids.iter().map(|id| format!(" --id {id}")).collect();
        format!("gpucl gc{}{leases}{ids}", self.args.provider.flags())
    }

    fn end(&self, summary: &str, deleted: usize) {
        if self.app.json() {
            self.app.ui.json(&json!({ "v": 1, "type": "gc", "deleted": deleted }));
        } else {
            self.app.ui.data(summary);
        }
    }
}

fn resources(count: usize) -> String {
    human::count(count, "resource")
}

/// One finding as JSON: `docs/reference/json.md`.
fn line(provider: &str, one: &TaggedResource) -> Value {
    let standing = match one.standing {
        Standing::Left => "left",
        Standing::Named => "named",
        Standing::HasState => "has_state",
        Standing::NeedsDown => "needs_down",
        Standing::Lease => "lease",
        Standing::Unknown => "unknown",
    };
    let resource = &one.resource;
    json!({
        "v": 1, "type": "gc_item", "provider": provider, "owner": one.tag.owner, "cluster": one.tag.cluster,
        "key": one.tag.key, "kind": resource.kind, "id": resource.id, "until": resource.until,
        "detail": resource.detail, "standing": standing,
    })
}
