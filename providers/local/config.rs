//! The settings, strict: there are none yet, so every key is an unknown one.

use schemars::JsonSchema;
use serde::Deserialize;

/// What stands under `provider:` beside `name`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {}

/// One entry of `hosts:`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HostSettings {}
