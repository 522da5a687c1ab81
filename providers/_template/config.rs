//! The settings, read strictly. The doc comments become part of the spec's JSON Schema.

use schemars::JsonSchema;
use serde::Deserialize;

/// The keys under `provider:` other than `name`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["region"]))]
pub(super) struct Settings {
    /// The region of the machines.
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
#[schemars(extend("asks_nothing" = ["size"]))]
pub(super) struct HostSettings {
    /// The size of the machine.
    pub(super) size: String,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self { size: "small".to_owned() }
    }
}
