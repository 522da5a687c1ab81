//! Where the news of a cluster goes: to a webhook, or to a program of the user's.

use std::path::{Path, PathBuf};

use reqwest::Url;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::provider::kit::http::is_private;
use crate::util::digest;

/// The longest URL of a webhook, in bytes.
const LONGEST_URL: usize = 4096;

/// Where the news of a cluster goes: that it is ready, that a job has ended, that the end is near, what was saved, that it
/// is down.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifySpec {
    /// A URL that takes JSON by POST, such as an incoming webhook of a chat; or `{file: PATH}`, a private file whose first
    /// line is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"rule": "webhook"}))]
    pub webhook: Option<Webhook>,
    /// A program of this machine with its arguments. It is run in the spec's folder, without a shell, and is given the JSON
    /// as its input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("asks" = {"rule": "notify_command"}))]
    pub command: Vec<String>,
    /// Where it leads, once the files beside the spec were read.
    #[serde(skip)]
    pub route: Option<Route>,
}

impl PartialEq for NotifySpec {
    /// As far as a record says it.
    fn eq(&self, other: &Self) -> bool {
        (&self.webhook, &self.command) == (&other.webhook, &other.command)
    }
}

/// The address of a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Webhook {
    /// It itself.
    Url(WebhookUrl),
    /// It is the first line of a file.
    File {
        /// The file, which only the user can read; relative to the spec's folder.
        file: String,
    },
}

/// The URL of a webhook. Whoever knows it can write there, so only its host is ever shown or recorded.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct WebhookUrl(SecretString);

impl WebhookUrl {
    /// The whole URL.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<String> for WebhookUrl {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Display for WebhookUrl {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.expose().starts_with("http:") { "http" } else { "https" };
        write!(out, "{scheme}://{}/…", host(self.expose()))
    }
}

impl std::fmt::Debug for WebhookUrl {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{self}")
    }
}

impl PartialEq for WebhookUrl {
    /// As far as it is recorded.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Serialize for WebhookUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for WebhookUrl {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WebhookUrl".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["https://hooks.example.org/services/…"] })
    }
}

/// The host of a URL, with its port if that is not the usual one.
fn host(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "?".to_owned() };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or("?"))
}

/// What is wrong with the URL of a webhook, without the URL.
pub(in crate::spec) fn fault(url: &str) -> Option<&'static str> {
    match Url::parse(url) {
        _ if url.len() > LONGEST_URL => Some("is longer than 4096 characters"),
        Err(_) => Some("is not a URL"),
        Ok(url) if !is_private(&url) => {
            Some("is not an https URL: others could read it on the way; plain http is for this machine alone")
        }
        Ok(_) => None,
    }
}

/// Where news leads: a part of `notify` that needs no other file. It holds the whole URL.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// By POST.
    Webhook {
        /// The whole URL.
        url: String,
    },
    /// To the input of a program.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// The folder that it is run in.
        folder: PathBuf,
        /// The files of that folder that the command names, with their digests.
        files: Vec<(PathBuf, String)>,
    },
}

impl Route {
    /// Where it leads, in a word: a host, or a program.
    pub fn place(&self) -> String {
        match self {
            Self::Webhook { url } => host(url),
            Self::Command { command, .. } => command.first().cloned().unwrap_or_default(),
        }
    }

    /// The first file of the command that is another one than was accepted.
    pub fn changed(&self) -> Option<&Path> {
        let Self::Command { files, .. } = self else { return None };
        let is_other =
            |(path, before): &&(PathBuf, String)| digest::of_file(path).ok().as_deref() != Some(before.as_str());
        files.iter().find(is_other).map(|(path, _)| path.as_path())
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.place())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_host_of_a_webhook_is_shown_and_recorded() {
        let text =
            "name: demo\nnotify: {webhook: 'https://me:word@hooks.example.org:8443/services/T0/s3cr3t?key=k3y'}\n";
        let loaded = crate::spec::parse("cluster.yaml", text, &crate::spec::any_provider::find).unwrap();
        let recorded = serde_json::to_string(&loaded.spec).unwrap();
        assert!(recorded.contains("https://hooks.example.org:8443/…"), "{recorded}");
        for shown in [recorded.clone(), format!("{:?}", loaded.spec)] {
            assert!(!["s3cr3t", "k3y", "word", "T0"].iter().any(|part| shown.contains(part)), "{shown}");
        }
        let again: crate::spec::Spec = serde_json::from_str(&recorded).unwrap();
        assert_eq!(again, loaded.spec, "an `up` without a change changes nothing");
    }

    #[test]
    fn a_mistake_is_shown_at_its_place_and_without_the_url() {
        for (notify, place) in [
            ("{webhook: http://hooks.example.org/s3cr3t}", "notify.webhook: is not an https URL"),
            ("{webhook: hooks.example.org/s3cr3t}", "notify.webhook: is not a URL"),
            ("{webhook: 'ftp://localhost/s3cr3t'}", "notify.webhook: is not an https URL"),
            ("{webhook: [https://hooks.example.org/s3cr3t]}", "notify.webhook: is a list"),
            ("{webhook: https://hooks.example.org/s3cr3t, more: 1}", "notify.more: unknown key"),
            ("{webhook: https://hooks.example.org/s3cr3t, command: [x]}", "notify: has both"),
            ("{webhook: {file: x, of: y}}", "notify.webhook.of: unknown key"),
            ("\n  webhook:\n    https://hooks.example.org/s3cr3t: 1\n", "notify.webhook."),
            ("{webhook: 'https://hooks.example.org/s3cr3t}", ""),
            ("{}", "notify: has neither"),
            ("{command: []}", "notify: has neither"),
            ("{command: ['']}", "notify.command"),
            ("{command: tell}", "notify.command: is the text"),
        ] {
            let text = format!("name: demo\nnotify: {notify}\n");
            let error = crate::spec::parse("cluster.yaml", &text, &crate::spec::any_provider::find).unwrap_err();
            let shown = format!("{error}\n{}", error.shown_snippet().unwrap_or_default());
            assert!(shown.contains(place), "{notify}: {shown}");
            assert!(!shown.contains("s3cr3t"), "{notify}: {shown}");
        }
    }
}
