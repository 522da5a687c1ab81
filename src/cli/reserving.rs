//! The provider to reserve hosts at, selected by command-line flags.

use serde_json::{Map, Value, json};

use super::app::App;
use super::command_error::usage;
use crate::cluster::sites::{SiteFailure, Sites};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::provider::{Provider, Reservations};
use crate::providers;
use crate::state::LeaseSource;

/// Selects a provider, and its site, project and account.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ProviderArgs {
    /// The provider; default: the only one that takes reservations (`offers`, `gc`: all that are set up)
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The site, such as CHI@TACC; default: all that your credentials reach
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
    /// The project, by name or id
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// The entry in clouds.yaml
    #[arg(long, value_name = "NAME")]
    cloud: Option<String>,
    /// The login machine of a Slurm cluster: NAME or USER@NAME, or `local`
    #[arg(long, value_name = "NAME")]
    login: Option<String>,
    /// The context of your kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The namespace on a Kubernetes cluster
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

impl ProviderArgs {
    /// The selection as flags, for commands in hints.
    pub(crate) fn flags(&self) -> String {
        let all = [
            ("provider", &self.provider),
            ("site", &self.site),
            ("project", &self.project),
            ("cloud", &self.cloud),
            ("login", &self.login),
            ("context", &self.context),
            ("namespace", &self.namespace),
        ];
        all.iter().filter_map(|(name, value)| value.as_ref().map(|value| format!(" --{name} {value}"))).collect()
    }

    /// No flag was given.
    pub(crate) fn is_open(&self) -> bool {
        self.flags().is_empty()
    }

    /// The selected provider at every site that the flags and the login leave open.
    pub(crate) fn sites(&self, app: &App, events: Bus) -> Result<Sites> {
        Sites::of(&self.source()?, &app.provider_context(events))
    }

    /// The selected provider and its settings.
    pub(crate) fn source(&self) -> Result<LeaseSource> {
        let provider = match &self.provider {
            Some(name) => providers::find(name)?.manifest()?.name,
            None => only_one()?,
        };
        let mut settings = Map::new();
        for (key, value) in [
            ("site", &self.site),
            ("project", &self.project),
            ("cloud", &self.cloud),
            ("host", &self.login),
            ("context", &self.context),
            ("namespace", &self.namespace),
        ] {
            settings.extend(value.clone().map(|value| (key.to_owned(), Value::String(value))));
        }
        Ok(LeaseSource { provider, settings: Value::Object(settings), place: String::new() })
    }
}

/// The only provider that takes reservations; an error if there are none or several.
fn only_one() -> Result<String> {
    let mut names = Vec::new();
    for factory in providers::all().iter().filter(|factory| factory.capability().reserves) {
        names.push(factory.manifest()?.name);
    }
    match names.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Error::new(ErrorKind::Unsupported, "choose a provider").because("none takes reservations")),
        [first, ..] => Err(usage("choose a provider", format!("several take reservations: {}", names.join(", ")))
            .hint(format!("name one: --provider {first}"))),
    }
}

/// Reports the sites that did not answer: a warning each, or a line of JSON.
pub(crate) fn report(app: &App, failed: &[SiteFailure]) {
    for failure in failed {
        let (provider, error) = (&failure.source.provider, &failure.error);
        if app.json() {
            app.ui.json(&json!({
                "v": 1, "type": "site_failed", "provider": provider, "place": failure.name(),
                "error": error.to_string(), "hints": error.hints(),
            }));
        } else {
            app.ui.status(format!("warning: {} did not answer: {error}", failure.name()));
            error.hints().iter().for_each(|hint| app.ui.status(format!("hint: {hint}")));
        }
    }
}

/// The reservations of a provider.
pub(crate) fn reservations<'a>(provider: &'a dyn Provider, name: &str) -> Result<&'a dyn Reservations> {
    provider.reservations().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("reserve hosts of the provider `{name}`"))
            .because("it takes no reservations of hosts by name and time")
            .hint("gpucl provider list")
    })
}
