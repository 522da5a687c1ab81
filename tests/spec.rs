//! Valid specs, and the errors for invalid ones.

mod form;
mod meaning;
mod provider_keys;
mod reading;
mod schema;
mod yaml;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpucl::error::{Error, ErrorKind, Result};
use gpucl::provider::{Capability, Context, Factory, FieldError, Lookup, Manifest, Provider, ProviderKind, Runtime};
use gpucl::spec::{self, Loaded};
use serde_json::Value;

/// A provider that is only asked whether its settings are right.
struct Hall;

static HALL: Hall = Hall;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its form is used")]
struct HallSettings {
    /// The site.
    #[serde(default)]
    site: Option<Site>,
}

/// A site of the hall.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Site {
    North,
    South,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its form is used")]
struct HallHost {
    /// The host's name.
    #[serde(default)]
    node: Option<String>,
}

impl Factory for Hall {
    fn manifest(&self) -> Result<Manifest> {
        Ok(Manifest { name: "hall".into(), summary: "a hall of machines".into(), secrets: vec![], docs: String::new() })
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
            poll: gpucl::provider::USUAL_POLL,
            shared_account: false,
            consistency_delay: Duration::ZERO,
            runtimes: &[Runtime::Native],
            most_hosts: Some(2),
        }
    }

    fn settings_schema(&self) -> schemars::Schema {
        schemars::schema_for!(HallSettings)
    }

    fn host_schema(&self) -> schemars::Schema {
        schemars::schema_for!(HallHost)
    }

    fn check(&self, settings: &Value, hosts: &[Value]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for key in settings.as_object().into_iter().flat_map(|keys| keys.keys()).filter(|key| *key != "site") {
            errors.push(FieldError { path: key.clone(), message: "unknown key".into(), known: vec!["site".into()] });
        }
        for (index, host) in hosts.iter().enumerate() {
            if host.get("node").is_some_and(|node| !node.is_string()) {
                let path = format!("hosts[{index}].node");
                errors.push(FieldError { path, message: "must be a host's name".into(), known: vec![] });
            }
        }
        errors
    }

    fn open(&self, _settings: &Value, _context: &Context) -> Result<Box<dyn Provider>> {
        Err(Error::new(ErrorKind::Internal, "open a provider that is only asked"))
    }
}

/// Finds the hall under its own name and under the default one.
fn lookup(name: &str) -> Result<&'static dyn Factory> {
    match name {
        "hall" | "local" => Ok(&HALL),
        _ => Err(Error::new(ErrorKind::Usage, format!("find the provider `{name}`"))
            .because("no provider has that name")
            .hint("the providers are: hall, local")
            .hint("did you mean `local`?")),
    }
}

fn read(text: &str) -> Result<Loaded> {
    spec::parse("cluster.yaml", text, &lookup)
}

/// Asserts that a spec is refused, and what is shown of it.
#[track_caller]
fn refuses(text: &str, shown: &str) {
    refuses_with(text, shown, &lookup);
}

/// The same, with the providers that are found so.
#[track_caller]
fn refuses_with(text: &str, shown: &str, lookup: Lookup<'_>) {
    let Err(error) = spec::parse("cluster.yaml", text, lookup) else { unreachable!("it was read: {text}") };
    assert_eq!(error.kind(), ErrorKind::Spec);
    assert_eq!(error.doing(), "read the spec cluster.yaml");
    let snippet = error.shown_snippet().unwrap_or_default();
    assert_eq!(snippet, shown.trim_matches('\n'), "it shows:\n{snippet}\n");
}

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
