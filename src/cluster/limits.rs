//! Price and limits in `up`: asks for consent, checks and stores the deadline and cost limit, and starts the agent.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use secrecy::SecretString;

use crate::agent::credential::keep_secrets;
use crate::agent::end::{Cause, End};
use crate::agent::limits::{Limits, Start};
use crate::agent::notice::keep_route;
use crate::agent::watcher;
use crate::cluster::options::{Ask, UpOptions};
use crate::cluster::settings::Settings;
use crate::engine::Urgency;
use crate::error::{Error, ErrorKind, Result};
use crate::money::describe;
use crate::plan::{Goal, Plan, Price};
use crate::spec::{ASK_ABOVE, Amount, Loaded, Spec};
use crate::state::ClusterState;
use crate::util::{human, when};

/// Variables that `gpucl down` may need besides credentials: for the SSH agent, the desktop's keyring and certificates.
const ALSO_NEEDED: &[&str] = &["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What `up` needs for its checks of price and limits.
pub(super) struct PriceAndLimits<'a> {
    pub(super) settings: &'a Settings,
    pub(super) loaded: &'a Loaded,
    pub(super) options: &'a UpOptions,
    pub(super) known: &'a ClusterState,
}

impl PriceAndLimits<'_> {
    fn spec(&self) -> &Spec {
        &self.loaded.spec
    }

    /// Reports the price of a plan, and asks for consent if it is above the limit. Called before anything is acquired.
    pub(super) async fn approve(&self, plan: &Plan) -> Result<()> {
        self.approve_price(plan.price()).await
    }

    /// Reports a price that is known before the plan, and asks for consent if it is above the limit.
    pub(super) async fn approve_price(&self, price: Price) -> Result<()> {
        if price.is_none() {
            return Ok(());
        }
        self.settings.events.note(format!("this costs {price}"));
        // A spec may be a stranger's: it lowers the reader's limit, or adds one in another unit, and never raises it.
        let limits = [Some(self.options.ask_above.unwrap_or(Amount(ASK_ABOVE))), self.spec().ask_above];
        let exceeded = limits.into_iter().flatten().filter(|limit| price.is_above(limit.0)).min_by_key(|limit| limit.0);
        let (Some(above), Some(asks)) = (exceeded, self.options.approval.asked()) else { return Ok(()) };
        let ask = Ask::Price { price, above };
        // The prompt must not block other tasks, nor Ctrl-C.
        let answer = tokio::task::spawn_blocking(move || asks(&ask));
        tokio::select! {
            answer = answer => answer.unwrap_or_else(|error| {
                Err(Error::new(ErrorKind::Internal, "ask about the price").caused_by(&error))
            }),
            () = self.settings.cancel.at_least(Urgency::Finish) => {
                Err(Error::new(ErrorKind::Cancelled, "ask about the price")
                    .because(format!("{}; nothing was changed", self.settings.cancel.by())))
            }
        }
    }

    /// Refuses limits that are already reached or can never be. `start` is when the hosts become available, if later.
    pub(super) fn check(&self, goal: &Goal, start: Option<Timestamp>) -> Result<()> {
        let Some(limits) = self.limits(start)? else { return Ok(()) };
        let now = Timestamp::now();
        if let Some(at) = limits.ends(self.known.begun).filter(|at| *at <= now) {
            return Err(self
                .loaded
                .places
                .error("deadline", format!("is over: it was {}", human::local(at)))
                .hint("give the cluster more time: a later `deadline:` takes effect with `gpucl up`"));
        }
        let Some(limit) = limits.max_cost else { return Ok(()) };
        let wrong = |why: String| self.loaded.places.error("max_cost", why);
        let spending = self.known.spending(now);
        if let Some(spent) = spending.so_far.iter().find(|sum| sum.unit == limit.unit && sum.micros >= limit.micros) {
            return Err(wrong(format!("is reached: it has cost about {spent}"))
                .hint("a higher `max_cost:` takes effect with `gpucl up`"));
        }
        let Goal::Up(desired) = goal else { return Ok(()) };
        let price = Price::of(&desired.resources);
        let has_unit = price.per_hour.iter().chain(&spending.per_hour).any(|sum| sum.unit == limit.unit);
        match has_unit {
            true => Ok(()),
            false if price.is_none() => Err(wrong(format!(
                "cannot be enforced: the provider `{}` reports no price",
                self.spec().provider.name()
            ))
            .hint("`deadline: 3h` ends the cluster by time")),
            false => {
                Err(wrong(format!("is in {}, but the hosts are priced in {}", limit.unit, describe(&price.per_hour))))
            }
        }
    }

    /// Stores the limits and starts the agent that enforces them, or lifts those of an earlier `up`. Called before
    /// anything is acquired.
    pub(super) async fn set_limits(&self, folder: &Path, start: Option<Timestamp>) -> Result<()> {
        crate::agent::Ended::forget(&self.settings.paths, &self.known.name);
        let Some(limits) = self.limits(start)? else { return watcher::lift(folder).await };
        let before = Limits::of(folder).ok().flatten();
        keep_secrets(folder, &self.options.secrets)?;
        keep_route(folder, self.spec().notify.as_ref().and_then(|notify| notify.route.as_ref()))?;
        limits.clone().write(folder)?;
        if watcher::watcher(folder).is_none() {
            watcher::start_watcher(folder, &self.known.name, &limits.start)?;
        }
        let agent = watcher::wait_watched(folder, &self.known.name).await?;
        let is_news = before.is_none_or(|before| before.describe() != limits.describe());
        if is_news && !limits.describe().is_empty() {
            self.settings.events.note(format!(
                "it is taken down {}; process {} enforces that: not while this machine is off or asleep, and at once \
                 when it wakes",
                limits.describe(),
                agent.pid
            ));
        }
        Ok(())
    }

    /// The earliest end that is known; `of_hosts` is when the provider says that hosts end.
    pub(super) fn end(&self, of_hosts: Option<Timestamp>) -> Result<Option<End>> {
        let limits = self.limits(None)?;
        let of_hosts = of_hosts.map(|at| End::of_hosts(self.spec(), at));
        let others = End::all(limits.as_ref(), self.known, Timestamp::now());
        // What the provider says now is newer than what is known.
        let is_older = |end: &End| of_hosts.is_some() && matches!(end.why, Cause::Lease | Cause::WallClock);
        Ok(of_hosts.into_iter().chain(others.into_iter().filter(|end| !is_older(end))).min_by_key(|end| end.at))
    }

    fn limits(&self, start: Option<Timestamp>) -> Result<Option<Limits>> {
        let spec = self.spec();
        // Without an end the agent sends news, and has no credentials for that.
        if !has_limits(spec) && spec.notify.is_none() {
            return Ok(None);
        }
        let base = self.known.begun.or(start).unwrap_or_else(Timestamp::now);
        let variables = &self.settings.user_environment.variables;
        let zone = when::zone(variables.get("TZ").map(String::as_str));
        let (after, at) = match &spec.deadline {
            None => (None, None),
            Some(crate::spec::Deadline::After(time)) => (Some(time.as_secs()), None),
            Some(deadline) => {
                let at = deadline.at(base, &zone).map_err(|why| self.loaded.places.error("deadline", why))?;
                (None, Some(at))
            }
        };
        let own = self.settings.environment.iter();
        let own = own.filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())));
        let also = ALSO_NEEDED.iter().filter_map(|name| Some(((*name).to_owned(), variables.get(*name)?.clone())));
        let start = Start {
            program: self.settings.program.clone(),
            environment: own.chain(also).collect(),
            here: self.settings.user_environment.here.clone(),
        };
        Ok(Some(Limits::new(after, at, spec.max_cost.map(|amount| amount.0), start)))
    }
}

/// Whether a cluster of this spec has an end that the agent looks after.
pub fn has_limits(spec: &Spec) -> bool {
    spec.deadline.is_some() || spec.max_cost.is_some() || spec.end.is_some() || spec.idle.is_some()
}

/// The credentials in this environment that a spec's provider needs, by variable name: the agent needs them to act
/// unattended.
pub fn secrets_of(spec: &Spec, variables: &BTreeMap<String, String>) -> Result<BTreeMap<String, SecretString>> {
    let wanted = crate::providers::find(spec.provider.name())?.manifest()?.secrets;
    let is_wanted = |name: &str| {
        wanted.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == wanted,
        })
    };
    let set = variables.iter().filter(|(name, value)| is_wanted(name) && !value.is_empty());
    Ok(set.map(|(name, value)| (name.clone(), SecretString::from(value.clone()))).collect())
}
