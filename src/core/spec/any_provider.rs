//! A provider for tests of specs: it takes all settings, and its hosts have a file system `sets`.

use std::time::Duration;

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::provider::{
    Capability, Context, Factory, FieldError, Manifest, Provider, ProviderKind, Runtime, USUAL_POLL,
};

struct AnyProvider;

/// Finds it under every name.
pub(super) fn find(_: &str) -> Result<&'static dyn Factory> {
    Ok(&AnyProvider)
}

impl Factory for AnyProvider {
    fn manifest(&self) -> Result<Manifest> {
        let text = |text: &str| text.to_owned();
        Ok(Manifest { name: text("any"), summary: text("for tests"), secrets: Vec::new(), docs: text("README.md") })
    }

    fn capability(&self) -> Capability {
        Capability {
            kind: ProviderKind::Host,
            costs_money: false,
            extend: false,
            reserves: false,
            hosts_vanish: false,
            is_here: false,
            host_key_in_user_data: false,
            boot: Duration::ZERO,
            several_resources: false,
            behind_first: false,
            poll: USUAL_POLL,
            shared_account: false,
            consistency_delay: Duration::ZERO,
            runtimes: &[Runtime::Docker, Runtime::Native],
            most_hosts: None,
        }
    }

    fn settings_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Value)
    }

    fn host_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Value)
    }

    fn check(&self, _: &Value, _: &[Value]) -> Vec<FieldError> {
        Vec::new()
    }

    fn file_system(&self, _: &Value, name: &str) -> Option<String> {
        (name == "sets").then(|| "/mnt/sets".to_owned())
    }

    fn open(&self, _: &Value, _: &Context) -> Result<Box<dyn Provider>> {
        Err(Error::new(ErrorKind::Internal, "open a provider for tests of specs"))
    }
}
