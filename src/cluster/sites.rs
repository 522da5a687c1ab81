//! The sites that a login reaches: all are asked at once, and one that is slow or down costs the others nothing. And the
//! one to which a request goes that names none.

mod choice;
mod stay;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use super::lease::open_source;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::provider::{Context, Provider};
use crate::providers;
use crate::state::LeaseSource;

pub use choice::{SiteOffer, best, why};
pub(super) use stay::{at_its_site, holder, if_several, is_at};

/// The longest that one of several sites may take for its answer: a table is late by no more, whatever is down.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// A provider, opened at one site.
#[derive(Clone)]
pub struct OpenSite {
    /// The provider, and the settings that name the site.
    pub source: LeaseSource,
    /// The provider there.
    pub provider: Arc<dyn Provider>,
}

impl OpenSite {
    /// The site for display, or the provider if it has no sites.
    pub fn name(&self) -> &str {
        name_of(&self.source)
    }
}

/// A site that did not answer, and why.
#[derive(Debug, Clone)]
pub struct SiteFailure {
    /// The provider, and the settings that name the site.
    pub source: LeaseSource,
    /// Why.
    pub error: Error,
}

impl SiteFailure {
    /// The site for display, or the provider if it has no sites.
    pub fn name(&self) -> &str {
        name_of(&self.source)
    }
}

/// The answers of several sites, in the order of the sites.
pub struct Answers<'a, T> {
    /// The sites that answered.
    pub found: Vec<(&'a OpenSite, T)>,
    /// Those that did not.
    pub failed: Vec<SiteFailure>,
}

/// The sites to ask.
#[derive(Default)]
pub struct Sites {
    open: Vec<OpenSite>,
    /// Those that could not even be opened.
    failed: Vec<SiteFailure>,
}

impl Sites {
    /// The sites that this source leaves open.
    ///
    /// # Errors
    /// If its credentials cannot be read, or its settings are wrong. Of several sites, one that cannot be opened is like
    /// one that does not answer.
    pub fn of(source: &LeaseSource, context: &Context) -> Result<Self> {
        let mut sites = Self::default();
        for source in each(source, context)? {
            sites.add(source, context);
        }
        match (sites.open.is_empty(), sites.failed.len()) {
            (true, 1) => Err(sites.failed.remove(0).error),
            _ => Ok(sites),
        }
    }

    /// These providers, each already opened.
    pub fn opened(open: Vec<OpenSite>) -> Self {
        Self { open, failed: Vec::new() }
    }

    /// Opens one more site.
    pub fn add(&mut self, source: LeaseSource, context: &Context) {
        match open_source(&source, context) {
            Ok(provider) => self.open.push(OpenSite { source, provider: Arc::from(provider) }),
            Err(error) => self.failed.push(SiteFailure { source, error }),
        }
    }

    /// Adds the sites of another provider.
    pub fn extend(&mut self, other: Self) {
        self.open.extend(other.open);
        self.failed.extend(other.failed);
    }

    /// Adds what did not answer before it was asked.
    pub fn fail(&mut self, source: LeaseSource, error: Error) {
        self.failed.push(SiteFailure { source, error });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len() + self.failed.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that could be opened.
    pub fn iter(&self) -> impl Iterator<Item = &OpenSite> {
        self.open.iter()
    }

    /// Asks all sites at once, for something that changes nothing. Each of several has [`ANSWER_LIMIT`]; the only one
    /// has the limits of its provider alone.
    pub async fn ask<'a, T>(&'a self, ask: impl AsyncFn(&'a OpenSite) -> Result<T>) -> Answers<'a, T> {
        let is_one = self.len() == 1;
        let within = async |site: &'a OpenSite| match is_one {
            true => ask(site).await,
            false => match tokio::time::timeout(ANSWER_LIMIT, ask(site)).await {
                Ok(answer) => answer,
                Err(_) => Err(too_slow(site)),
            },
        };
        let answers = join_all(self.open.iter().map(within)).await;
        let mut all = Answers { found: Vec::new(), failed: self.failed.clone() };
        for (site, answer) in self.open.iter().zip(answers) {
            match answer {
                Ok(answer) => all.found.push((site, answer)),
                Err(error) => all.failed.push(SiteFailure { source: site.source.clone(), error }),
            }
        }
        all
    }
}

impl<T> Answers<'_, T> {
    /// These answers, unless no site gave one: then the failure, or that of each site.
    ///
    /// # Errors
    /// If no site answered.
    pub fn or_none(self, doing: &str) -> Result<Self> {
        if self.found.is_empty() && !self.failed.is_empty() { Err(of_all(&self.failed, doing)) } else { Ok(self) }
    }
}

/// The failures of several sites as one; a single one as it is.
pub fn of_all(failed: &[SiteFailure], doing: &str) -> Error {
    let Some(first) = failed.first() else { return Error::new(ErrorKind::Internal, doing) };
    if failed.len() == 1 {
        return first.error.clone();
    }
    let mut error = Error::new(first.error.kind(), doing);
    let mut hints: Vec<&String> = Vec::new();
    for failure in failed {
        let because = failure.error.causes().join(": ");
        let because = if because.is_empty() { failure.error.to_string() } else { because };
        error = error.because(format!("{}: {because}", failure.name()));
        hints.extend(failure.error.hints());
    }
    let mut shown: Vec<&String> = Vec::new();
    hints.retain(|hint| {
        !shown.contains(hint) && {
            shown.push(hint);
            true
        }
    });
    hints.into_iter().fold(error, |error, hint| error.hint(hint))
}

/// The source at each of its sites.
fn each(source: &LeaseSource, context: &Context) -> Result<Vec<LeaseSource>> {
    let factory = providers::find(&source.provider)?;
    // What the settings have wrong is said when the provider is opened.
    if !source.place.is_empty() || !factory.check(&source.settings, &[]).is_empty() {
        return Ok(vec![source.clone()]);
    }
    let settings = factory.each_site(&source.settings, context)?;
    Ok(settings.into_iter().map(|settings| LeaseSource { settings, ..source.clone() }).collect())
}

/// The site that a source names; its provider if it names none.
fn name_of(source: &LeaseSource) -> &str {
    let named = source.settings.get("site").and_then(Value::as_str);
    named.or(Some(source.place.as_str()).filter(|place| !place.is_empty())).unwrap_or(&source.provider)
}

fn too_slow(site: &OpenSite) -> Error {
    Error::new(ErrorKind::Timeout, format!("ask {}", site.name()))
        .because(format!("it did not answer within {} s", ANSWER_LIMIT.as_secs()))
        .status(Status::Temporary)
        .hint(format!("ask it alone, which waits longer: --site {}", site.name()))
}
