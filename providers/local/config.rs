//! The settings, read strictly: there are none yet, so every key is unknown.

use schemars::JsonSchema;
use serde::Deserialize;

/// The keys under `provider:` other than `name`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {}

/// One entry of `hosts:`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HostSettings {}
