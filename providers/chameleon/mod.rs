//! Bare-metal GPU hosts of the Chameleon testbed, leased by name and time.

pub mod nodes;
pub mod policy;
pub mod slots;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::provider::{Capability, Context, Factory, FieldError, Manifest, Provider, ProviderKind};
use crate::spec::Runtime;

/// What the registry knows this provider by.
pub static FACTORY: ChameleonFactory = ChameleonFactory;

/// Opens Chameleon as a provider.
#[derive(Debug)]
pub struct ChameleonFactory;

/// Stands in for the settings.
#[derive(Debug, Clone, serde::Deserialize, schemars::JsonSchema)]
pub struct Settings {}

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
            boot: Duration::from_secs(1800),
            console: false,
            several_resources: true,
            shared_account: true,
            settle: Duration::from_secs(5),
            runtimes: &[Runtime::Docker],
            most_hosts: None,
        }
    }

    fn settings_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Settings)
    }

    fn host_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Settings)
    }

    fn check(&self, _settings: &Value, _hosts: &[Value]) -> Vec<FieldError> {
        Vec::new()
    }

    fn open(&self, _settings: &Value, _context: &Context) -> Result<Box<dyn Provider>> {
        Err(Error::new(ErrorKind::Unsupported, "open the provider `chameleon`").because("it is being built"))
    }
}
