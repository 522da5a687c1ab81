//! The settings, strict. The doc comments go into the JSON Schema of a spec.

use schemars::JsonSchema;
use serde::Deserialize;

/// What stands under `provider:` beside `name`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    /// Where the machines are.
    pub(super) region: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { region: "nowhere-1".to_owned() }
    }
}

/// One entry of `hosts:`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HostSettings {
    /// How big the machine is.
    pub(super) size: String,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self { size: "small".to_owned() }
    }
}
