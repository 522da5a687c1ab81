//! The settings, read strictly.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::host::SshTarget;
use crate::provider::{FieldError, settings};

/// The keys under `provider:` other than `name`: defaults for all hosts.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["user", "port"]))]
pub(super) struct Settings {
    /// The user to log in as; from your SSH configuration when absent.
    pub(super) user: Option<String>,
    /// The port of the SSH server; from your SSH configuration when absent.
    #[schemars(range(min = 1, max = 65535))]
    pub(super) port: Option<u16>,
    /// The private key to log in with, such as `~/.ssh/lab`; your SSH agent and configuration when absent.
    #[schemars(extend("asks" = {"rule": "key"}))]
    pub(super) identity_file: Option<PathBuf>,
}

/// One entry of `hosts:`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["node", "user", "port", "host_key", "private_address"]))]
pub(super) struct HostSettings {
    /// The host's name or address, or an alias in your SSH configuration.
    pub(super) node: String,
    /// The user to log in as.
    #[serde(default)]
    pub(super) user: Option<String>,
    /// The port of the SSH server.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65535))]
    pub(super) port: Option<u16>,
    /// The private key to log in with.
    #[schemars(extend("asks" = {"rule": "key"}))]
    #[serde(default)]
    pub(super) identity_file: Option<PathBuf>,
    /// The host's public key, `ssh-ed25519 AAAA…`, if known before the first connection.
    #[serde(default)]
    pub(super) host_key: Option<String>,
    /// The address at which the other hosts of the cluster reach it; the one gpucl connects to when absent.
    #[serde(default)]
    pub(super) private_address: Option<String>,
}

/// The schema of an entry: a map, or the node's name alone.
pub(super) fn host_schema() -> schemars::Schema {
    settings::or_text(schemars::schema_for!(HostSettings), "The host's name alone.")
}

/// Validates the defaults for all hosts.
pub(super) fn check_shared(settings: &Settings) -> Vec<FieldError> {
    let Settings { user, port, identity_file } = settings.clone();
    // The node is a placeholder; only the defaults are validated.
    let target = SshTarget { node: "node".to_owned(), user, port, identity_file, ..SshTarget::default() };
    target.faults().into_iter().map(|(key, message)| fault(key.to_owned(), message)).collect()
}

/// Reads an entry, fills in the defaults, and validates the result.
pub(super) fn target(settings: &Settings, host: &Value, path: &str) -> Result<SshTarget, Vec<FieldError>> {
    let as_map = match host {
        Value::String(node) => json!({ "node": node }),
        other => other.clone(),
    };
    let own = settings::read::<HostSettings>(&as_map, path)?;
    let below = |key: &str| match (host, path) {
        (Value::String(_), path) => path.to_owned(),
        (_, "") => key.to_owned(),
        (_, path) => format!("{path}.{key}"),
    };
    let is_shared = |key: &str| match key {
        "user" => own.user.is_none(),
        "port" => own.port.is_none(),
        "identity_file" => own.identity_file.is_none(),
        _ => false,
    };
    let target = SshTarget {
        node: own.node.clone(),
        user: own.user.clone().or_else(|| settings.user.clone()),
        port: own.port.or(settings.port),
        identity_file: own.identity_file.clone().or_else(|| settings.identity_file.clone()),
        host_key: own.host_key.clone(),
        jump: None,
        relay: None,
        private_address: own.private_address.clone(),
    };
    let place = |key: &str| if is_shared(key) { key.to_owned() } else { below(key) };
    let errors: Vec<FieldError> =
        target.faults().into_iter().map(|(key, message)| fault(place(key), message)).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(target.without_key_comment())
}

fn fault(path: String, message: &str) -> FieldError {
    FieldError { path, message: message.to_owned(), known: Vec::new() }
}
