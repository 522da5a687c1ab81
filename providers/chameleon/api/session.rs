//! A token with its metadata: user, project, roles and service catalog.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::Url;
use secrecy::SecretString;
use serde::Deserialize;

use super::failure::{Api, Failure, FailureKind};
use super::lenient;
use crate::provider::kit::http;

/// How long before its expiry a token is replaced: the longest of our calls, plus some clock skew.
const MARGIN: Duration = Duration::from_secs(120);

/// The authenticated user at a site.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) user_id: String,
    pub(crate) user_name: String,
    pub(crate) project_id: String,
    /// The project's name: `CHI-231138`.
    pub(crate) project_name: String,
    /// Whether the application credential is restricted; `None` for other authentication methods.
    pub(crate) restricted: Option<bool>,
    /// The user's roles in the project.
    pub(crate) roles: Vec<String>,
}

/// A token and its metadata.
pub(super) struct Session {
    pub(super) token: SecretString,
    /// Keystone's description of the token.
    pub(super) body: Body,
    /// When it was received. Its lifetime counts from here, since the site's clock may differ.
    came: Instant,
    renewable: bool,
}

/// Keystone's description of a token.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Body {
    #[serde(default)]
    user: Thing,
    #[serde(default)]
    pub(super) project: Option<Thing>,
    #[serde(default, deserialize_with = "lenient::list")]
    roles: Vec<Thing>,
    #[serde(default, deserialize_with = "lenient::list")]
    catalog: Vec<Service>,
    #[serde(default)]
    application_credential: Option<ApplicationCredential>,
    #[serde(deserialize_with = "lenient::time")]
    expires_at: Timestamp,
    #[serde(deserialize_with = "lenient::time")]
    issued_at: Timestamp,
}

/// A named object with an id.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Thing {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) name: String,
}

#[derive(Debug, Clone, Deserialize)]
struct ApplicationCredential {
    #[serde(default)]
    restricted: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
struct Service {
    #[serde(rename = "type", deserialize_with = "lenient::text")]
    kind: String,
    #[serde(default, deserialize_with = "lenient::list")]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, Deserialize)]
struct Endpoint {
    #[serde(default, deserialize_with = "lenient::text")]
    interface: String,
    #[serde(default, deserialize_with = "lenient::text")]
    region: String,
    #[serde(default, deserialize_with = "lenient::text")]
    region_id: String,
    #[serde(default, deserialize_with = "lenient::text")]
    url: String,
}

impl Endpoint {
    fn region(&self) -> &str {
        if self.region.is_empty() { &self.region_id } else { &self.region }
    }
}

impl Session {
    pub(super) fn new(token: SecretString, body: Body, renewable: bool) -> Self {
        Self { token, body, came: Instant::now(), renewable }
    }

    /// Whether it can still be used for a call.
    pub(super) fn is_fresh(&self) -> bool {
        let life = self.body.expires_at.duration_since(self.body.issued_at);
        let life = Duration::try_from(life).unwrap_or_default();
        // A token that cannot be renewed is used until it expires.
        let margin = if self.renewable { MARGIN.min(life / 2) } else { Duration::ZERO };
        self.came.elapsed() + margin < life
    }

    pub(super) fn who(&self) -> Who {
        let project = self.body.project.clone().unwrap_or_default();
        Who {
            user_id: self.body.user.id.clone(),
            user_name: self.body.user.name.clone(),
            project_id: project.id,
            project_name: project.name,
            restricted: self.body.application_credential.as_ref().and_then(|credential| credential.restricted),
            roles: self.body.roles.iter().map(|role| role.name.clone()).collect(),
        }
    }

    /// Whether its roles allow reads: `reader` or `admin`, or no role is listed.
    pub(super) fn reads(&self) -> bool {
        self.body.roles.is_empty()
            || self.body.roles.iter().any(|role| ["reader", "admin"].contains(&role.name.as_str()))
    }

    /// The distinct regions in the catalog, sorted.
    pub(super) fn regions(&self) -> Vec<String> {
        let endpoints = self.body.catalog.iter().flat_map(|service| &service.endpoints);
        let mut regions: Vec<String> =
            endpoints.map(|endpoint| endpoint.region().to_owned()).filter(|region| !region.is_empty()).collect();
        regions.sort();
        regions.dedup();
        regions
    }

    /// The URL of a service, including its version.
    pub(super) fn endpoint(&self, service: &'static str, region: &str, interface: &str, doing: &str) -> Api<String> {
        // OS_INTERFACE=publicURL is the old spelling.
        let interface = interface.trim_end_matches("URL");
        let of_service = || {
            let services = self.body.catalog.iter().filter(|found| found.kind == service);
            services.flat_map(|found| &found.endpoints).filter(|endpoint| endpoint.interface == interface)
        };
        let here = of_service().find(|endpoint| endpoint.region() == region || endpoint.region().is_empty());
        if let Some(endpoint) = here.filter(|endpoint| !endpoint.url.is_empty()) {
            let url = versioned(service, &endpoint.url);
            return private(&url, doing).map(|()| url);
        }
        let others: Vec<&str> = of_service().map(Endpoint::region).collect();
        let text = if others.is_empty() {
            let services: Vec<&str> = self.body.catalog.iter().map(|found| found.kind.as_str()).collect();
            format!("its catalog has no {interface} service of type `{service}`; it has {}", services.join(", "))
        } else {
            let others = others.join(", ");
            format!("its catalog is that of {others}: it has `{service}` in {others}, not in {region}")
        };
        let failure = Failure::new(FailureKind::NoService(service), doing, text);
        Err(match others.first() {
            Some(site) => failure.hint(format!("choose that site: --site {site}")),
            None => failure,
        })
    }
}

/// Refuses a URL that would receive a secret unencrypted.
pub(super) fn private(url: &str, doing: &str) -> Api<()> {
    if Url::parse(url).is_ok_and(|url| http::is_private(&url)) {
        return Ok(());
    }
    let text = format!("the site gives the address {url}, but secrets are sent by https only");
    Err(Failure::new(FailureKind::Refused, doing, text)
        .hint("choose the catalog's https addresses, such as with OS_INTERFACE=public, or ask the site's operators"))
}

/// Appends the service's version to a URL that lacks it: some catalogs omit it.
fn versioned(service: &str, url: &str) -> String {
    let url = url.trim_end_matches('/');
    let has_version = url.split('/').skip(3).any(|part| {
        part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    });
    let version = match service {
        _ if has_version => return url.to_owned(),
        "compute" => "v2.1",
        "reservation" => "v1",
        "network" => "v2.0",
        "image" => "v2",
        _ => return url.to_owned(),
    };
    format!("{url}/{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_encrypted_or_stays_on_this_machine() {
        for url in ["https://h:8774/v2.1", "http://127.0.0.1:8774/v2.1", "http://localhost/compute"] {
            assert!(private(url, "x").is_ok(), "{url}");
        }
        for url in ["http://h:8774/v2.1", "http://10.0.0.1", "http://127.0.0.1.example", "h:8774", "/v2.1", ""] {
            assert!(private(url, "x").unwrap_err().text.contains("by https only"), "{url}");
        }
    }

    #[test]
    fn urls_without_a_version_get_one() {
        let pairs = [
            ("network", "http://h:9696", "http://h:9696/v2.0"),
            ("network", "https://h/network/", "https://h/network/v2.0"),
            ("image", "http://h:9292", "http://h:9292/v2"),
            ("image", "http://h:9292/v2/", "http://h:9292/v2"),
            ("compute", "http://h:8774/v2.1", "http://h:8774/v2.1"),
            ("compute", "http://h:8774/v2/abc", "http://h:8774/v2/abc"),
            ("reservation", "http://h/reservation/v1", "http://h/reservation/v1"),
            ("reservation", "http://h/reservation", "http://h/reservation/v1"),
        ];
        for (service, url, expected) in pairs {
            assert_eq!(versioned(service, url), expected);
        }
    }
}
