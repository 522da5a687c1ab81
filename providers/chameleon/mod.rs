//! Bare-metal hosts of Chameleon. Being built: what speaks to a site is here, what acquires is not yet.

#[expect(dead_code, unused_imports, reason = "what uses all of it is being written")]
mod api;
#[expect(unused_imports, reason = "what uses all of it is being written")]
mod auth;
#[cfg(test)]
mod tests;

use crate::error::{Error, ErrorKind, Result};
use crate::provider::{Capability, Context, Factory, FieldError, Manifest, Provider, ProviderKind};

/// What the registry knows this provider by.
pub static FACTORY: ChameleonFactory = ChameleonFactory;

/// Opens Chameleon as a provider.
#[derive(Debug)]
pub struct ChameleonFactory;

impl Factory for ChameleonFactory {
    fn manifest(&self) -> Result<Manifest> {
        Manifest::parse(include_str!("provider.yaml"), module_path!())
    }

    fn capability(&self) -> Capability {
        Capability {
            kind: ProviderKind::Host,
            costs_money: true,
            extend: true,
            reserves: true,
            hosts_vanish: true,
            boot: std::time::Duration::from_secs(1800),
            console: false,
            several_resources: true,
            shared_account: true,
            settle: std::time::Duration::from_secs(5),
            runtimes: &[crate::spec::Runtime::Docker],
            most_hosts: None,
        }
    }

    fn settings_schema(&self) -> schemars::Schema {
        schemars::json_schema!({"type": "object"})
    }

    fn host_schema(&self) -> schemars::Schema {
        schemars::json_schema!({"type": "object"})
    }

    fn check(&self, _settings: &serde_json::Value, _hosts: &[serde_json::Value]) -> Vec<FieldError> {
        Vec::new()
    }

    fn login(&self) -> Option<&dyn crate::provider::Login> {
        Some(&auth::ChameleonLogin)
    }

    fn open(&self, _settings: &serde_json::Value, context: &Context) -> Result<Box<dyn Provider>> {
        let bus = context.surroundings.variable("DBUS_SESSION_BUS_ADDRESS");
        let vault = crate::secret::Vault::open(&context.surroundings.config_dir, bus);
        for found in auth::find(&context.surroundings, &vault, &auth::Choice::default())? {
            context.events.note(format!("{}: {}", found.site, found.source));
            api::Site::new(found.credentials, context.events.clone())?;
        }
        Err(Error::new(ErrorKind::Unsupported, "open the provider `chameleon`").because("it is being written"))
    }
}
