//! The settings, strict.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::host::SshTarget;
use crate::provider::{FieldError, settings};

/// What stands under `provider:` beside `name`: what holds for every host that does not say otherwise.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    /// The user to log in as; else as your SSH configuration says.
    pub(super) user: Option<String>,
    /// The port of the SSH server; else as your SSH configuration says.
    #[schemars(range(min = 1, max = 65535))]
    pub(super) port: Option<u16>,
    /// The private key to log in with, such as `~/.ssh/lab`; else your agent and your SSH configuration.
    pub(super) identity_file: Option<PathBuf>,
}

/// One entry of `hosts:`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HostSettings {
    /// The host's name or address, or an alias of your SSH configuration.
    pub(super) node: String,
    /// The user to log in as.
    #[serde(default)]
    pub(super) user: Option<String>,
    /// The port of the SSH server.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65535))]
    pub(super) port: Option<u16>,
    /// The private key to log in with.
    #[serde(default)]
    pub(super) identity_file: Option<PathBuf>,
    /// The host's public key, `ssh-ed25519 AAAA…`, where it is known before the first connection.
    #[serde(default)]
    pub(super) host_key: Option<String>,
    /// The address that the other hosts of the cluster reach it by; else the one that it is reached by.
    #[serde(default)]
    pub(super) private_address: Option<String>,
}

/// The schema of an entry: the map, or just the node's name.
pub(super) fn host_schema() -> schemars::Schema {
    let mut schema = schemars::schema_for!(HostSettings);
    let map = schema.clone();
    let keep = |key: &str| map.get(key).cloned().unwrap_or_default();
    let mut entry = json!({ "title": keep("title"), "description": keep("description") });
    let own = map.as_object().cloned().unwrap_or_default();
    let own: serde_json::Map<String, Value> = own
        .into_iter()
        .filter(|(key, _)| !["$schema", "title", "description", "$defs"].contains(&key.as_str()))
        .collect();
    entry["anyOf"] =
        json!([own, { "type": "string", "description": "The host's name, and nothing else to say of it." }]);
    if let Some(definitions) = map.get("$defs") {
        entry["$defs"] = definitions.clone();
    }
    if let Value::Object(keys) = entry {
        schema = schemars::Schema::from(keys);
    }
    schema
}

/// Reads an entry, and fills in what holds for all.
pub(super) fn target(settings: &Settings, host: &Value, path: &str) -> Result<SshTarget, Vec<FieldError>> {
    let as_map = match host {
        Value::String(node) => json!({ "node": node }),
        other => other.clone(),
    };
    let HostSettings { node, user, port, identity_file, host_key, private_address } =
        settings::read::<HostSettings>(&as_map, path)?;
    let below = |key: &str| match (host, path) {
        (Value::String(_), path) => path.to_owned(),
        (_, "") => key.to_owned(),
        (_, path) => format!("{path}.{key}"),
    };
    let mut errors = Vec::new();
    let mut refuse = |key: &str, message: &str| {
        errors.push(FieldError { path: below(key), message: message.to_owned(), known: Vec::new() });
    };
    if !is_name(&node) {
        refuse("node", "is no name of a host: it takes a name, an address, or an alias of ~/.ssh/config");
    } else if node.contains('@') {
        refuse("node", "holds a user; write it as `user:`");
    } else if node.contains('[') || node.matches(':').count() == 1 {
        refuse("node", "holds a port; write it as `port:`");
    }
    if user.as_deref().is_some_and(|user| !is_name(user)) {
        refuse("user", "is no name of a user");
    }
    if port == Some(0) {
        refuse("port", "is no port");
    }
    if identity_file.as_ref().is_some_and(|file| !is_line(&file.display().to_string())) {
        refuse("identity_file", "is no path");
    }
    if host_key.as_deref().is_some_and(|key| !is_public_key(key)) {
        refuse(
            "host_key",
            "is no public key: it looks like `ssh-ed25519 AAAA…`, as in /etc/ssh/ssh_host_ed25519_key.pub there",
        );
    }
    if private_address.as_deref().is_some_and(|address| !is_name(address)) {
        refuse("private_address", "is no address");
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(SshTarget {
        node,
        user: user.or_else(|| settings.user.clone()),
        port: port.or(settings.port),
        identity_file: identity_file.or_else(|| settings.identity_file.clone()),
        host_key: host_key.map(|key| key.split_whitespace().take(2).collect::<Vec<_>>().join(" ")),
        jump: None,
        private_address,
    })
}

/// A word that can be no option and no second line of a configuration.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.chars().all(|letter| letter.is_alphanumeric() || "._-:@[]%+".contains(letter))
}

/// One line.
fn is_line(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// What stands in a `.pub` file: a kind and a key.
fn is_public_key(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let (Some(kind), Some(key)) = (words.next(), words.next()) else { return false };
    let kinds = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];
    is_line(text)
        && kinds.iter().any(|begin| kind.starts_with(begin))
        && key.starts_with("AAAA")
        && key.chars().all(|letter| letter.is_ascii_alphanumeric() || "+/=".contains(letter))
}
