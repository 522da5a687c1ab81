//! `gpucl gc`.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::reserving::{self, ProviderArgs};
use crate::cluster::sites::{OpenSite, SiteFailure, Sites};
use crate::cluster::{Gc, GcOptions, Settings, Standing, TaggedResource};
use crate::engine::Cancel;
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::Owner;
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
        let sites = self.sites()?;
        let asked = sites.ask(async |site| self.gc(site).find().await).await;
        let (asked, mut silent) = match self.args.provider.is_open() {
            true => (asked.found, asked.failed),
            false => {
                let asked = asked.or_none("find what is left")?;
                (asked.found, asked.failed)
            }
        };
        let all = || asked.iter().flat_map(|(site, found)| found.iter().map(|one| (*site, one)));
        self.show(&all().collect::<Vec<_>>());
        // A provider that was never set up holds nothing of ours.
        let is_not_set_up = |failure: &SiteFailure| {
            matches!(failure.error.kind(), ErrorKind::Usage | ErrorKind::Spec | ErrorKind::Unsupported)
        };
        for failure in silent.extract_if(.., |failure| is_not_set_up(failure)) {
            self.app.ui.status(format!("warning: `{}` was not queried: {}", failure.name(), failure.error));
        }
        reserving::report(self.app, &silent);
        self.refuse(&all().map(|(_, one)| one).collect::<Vec<_>>(), &silent)?;
        let going = all().filter(|(_, one)| one.standing.goes()).count();
        let failed = |silent: &[SiteFailure]| if silent.is_empty() { exit_code::DONE } else { exit_code::FAILED };
        let not_asked = |silent: &[SiteFailure]| match silent {
            [] => String::new(),
            silent => {
                let names: Vec<&str> = silent.iter().map(SiteFailure::name).collect();
                format!("; not asked, so something may be left there: {}", names.join(", "))
            }
        };
        let name_of = |site: &OpenSite| match (&site.source.provider, site.name()) {
            (provider, name) if provider == name => name.to_owned(),
            (provider, name) => format!("{provider} ({name})"),
        };
        let names = || asked.iter().map(|(site, _)| name_of(site)).collect::<Vec<_>>().join(", ");
        if going == 0 {
            self.end(&format!("nothing to delete at {}{}", names(), not_asked(&silent)), 0);
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
        for (site, found) in asked.iter().filter(|(_, found)| found.iter().any(|one| one.standing.goes())) {
            errors.extend(self.gc(site).delete(found).await);
            match self.gc(site).left().await {
                Ok(still) => left.extend(still),
                Err(error) if sites.len() > 1 => silent.push(SiteFailure { source: site.source.clone(), error }),
                Err(error) => return Err(error),
            }
        }
        if !left.is_empty() {
            return Err(self.left_behind(&left, errors));
        }
        // A failed deletion does not matter if the resource is gone anyway.
        let is_left = match silent.as_slice() {
            [] => ": nothing is left".to_owned(),
            silent => not_asked(silent),
        };
        self.end(&format!("deleted {}; queried {} again{is_left}", resources(going), names()), going);
        Ok(failed(&silent))
    }

    fn gc<'b>(&'b self, site: &'b OpenSite) -> Gc<'b> {
        Gc {
            settings: self.settings,
            owner: self.owner.clone(),
            name: site.source.provider.clone(),
            site: Some(site.name().to_owned()).filter(|name| *name != site.source.provider),
            provider: site.provider.as_ref(),
            options: self.options.clone(),
        }
    }

    /// The sites of the selected provider; without one, of all providers.
    fn sites(&self) -> Result<Sites> {
        if !self.args.provider.is_open() {
            return self.args.provider.sites(self.app, self.settings.events.clone());
        }
        let context = self.app.provider_context(self.settings.events.clone());
        let mut all = Sites::default();
        for name in providers::names() {
            let source =
                LeaseSource { provider: name, settings: Value::Object(serde_json::Map::new()), place: String::new() };
            match Sites::of(&source, &context) {
                Ok(sites) => all.extend(sites),
                Err(error) => all.fail(source, error),
            }
        }
        Ok(all)
    }

    /// Shows all findings, sorted by cluster.
    fn show(&self, found: &[(&OpenSite, &TaggedResource)]) {
        let mut sorted = found.to_vec();
        sorted.sort_by_key(|(site, one)| (one.tag.owner.clone(), one.tag.cluster.clone(), site.name().to_owned()));
        let mut table = Table::new(&["cluster", "where", "kind", "key", "id", "until", "note"]);
        for (site, one) in &sorted {
            if self.app.json() {
                self.app.ui.json(&line(site, one));
            }
            let resource = &one.resource;
            table.row([
                if one.tag.cluster.is_reserved() { "-".to_owned() } else { one.tag.cluster.to_string() },
                site.name().to_owned(),
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
    fn refuse(&self, found: &[&TaggedResource], silent: &[SiteFailure]) -> Result<()> {
        for id in &self.options.ids {
            let Some(one) = found.iter().find(|one| one.resource.id == *id) else {
                let error = Error::new(ErrorKind::NotFound, format!("find {id}"))
                    .because("no resource with that id has a gpucl tag and was made by your user; nothing was deleted");
                let error = silent.iter().fold(error, |error, failure| {
                    error.because(format!("{} did not answer, and may have it", failure.name()))
                });
                return Err(error.hint("gpucl gc   # lists what is yours"));
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
fn line(site: &OpenSite, one: &TaggedResource) -> Value {
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
        "v": 1, "type": "gc_item", "provider": site.source.provider, "place": site.name(), "owner": one.tag.owner, "cluster": one.tag.cluster,
        "key": one.tag.key, "kind": resource.kind, "id": resource.id, "until": resource.until,
        "detail": resource.detail, "standing": standing,
    })
}
