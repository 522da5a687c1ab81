//! What a token came with: who we are, and where the services are.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::Url;
use secrecy::SecretString;
use serde::Deserialize;

use super::failure::{Api, Failure, FailureKind};
use super::lenient;
use crate::provider::http;

/// How long before its end a token is not used any more: the longest of our calls, and some clock skew.
const MARGIN: Duration = Duration::from_secs(120);

/// Who we are at a site.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    /// Our user, by id.
    pub(crate) user_id: String,
    /// Our user's name.
    pub(crate) user_name: String,
    /// Our project, by id.
    pub(crate) project_id: String,
    /// Our project's name: `CHI-231138`.
    pub(crate) project_name: String,
    /// The application credential is a restricted one; `None` when we are here by another way.
    pub(crate) restricted: Option<bool>,
    /// Our roles in the project.
    pub(crate) roles: Vec<String>,
}

/// A token and what came with it.
pub(super) struct Session {
    /// The token.
    pub(super) token: SecretString,
    /// What Keystone told with it.
    pub(super) body: Body,
    /// When it came: its life is counted from there, since the clocks of here and there may differ.
    came: Instant,
    renewable: bool,
}

/// What Keystone tells with a token.
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

/// Something with an id and a name.
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

    /// It can still be used for a call.
    pub(super) fn is_fresh(&self) -> bool {
        let life = self.body.expires_at.duration_since(self.body.issued_at);
        let life = Duration::try_from(life).unwrap_or_default();
        // What cannot be renewed is used to its end.
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

    /// It may read what `reader` and those above it may.
    pub(super) fn reads(&self) -> bool {
        self.body.roles.is_empty()
            || self.body.roles.iter().any(|role| ["reader", "admin"].contains(&role.name.as_str()))
    }

    /// The regions in the catalog, each once.
    pub(super) fn regions(&self) -> Vec<String> {
        let endpoints = self.body.catalog.iter().flat_map(|service| &service.endpoints);
        let mut regions: Vec<String> =
            endpoints.map(|endpoint| endpoint.region().to_owned()).filter(|region| !region.is_empty()).collect();
        regions.sort();
        regions.dedup();
        regions
    }

    /// Where a service is, with its version.
    pub(super) fn endpoint(&self, service: &'static str, region: &str, interface: &str, doing: &str) -> Api<String> {
        // OS_INTERFACE=publicURL is the old way to say it.
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
        let elsewhere: Vec<&str> = of_service().map(Endpoint::region).collect();
        let text = if elsewhere.is_empty() {
            let services: Vec<&str> = self.body.catalog.iter().map(|found| found.kind.as_str()).collect();
            format!("its catalog has no {interface} service of type `{service}`; it has {}", services.join(", "))
        } else {
            format!("its catalog has `{service}` in {}, and not in {region}", elsewhere.join(", "))
        };
        let failure = Failure::new(FailureKind::NoService(service), doing, text);
        Err(match elsewhere.first() {
            Some(site) => failure.hint(format!("choose that site: --site {site}")),
            None => failure,
        })
    }
}

/// Refuses an address to which a secret would travel unencrypted.
pub(super) fn private(url: &str, doing: &str) -> Api<()> {
    if Url::parse(url).is_ok_and(|url| http::is_private(&url)) {
        return Ok(());
    }
    let text = format!("the site gives the address {url}, and what is secret is sent by https only");
    Err(Failure::new(FailureKind::Refused, doing, text)
        .hint("choose the catalog's https addresses, such as by OS_INTERFACE=public, or tell who runs the site"))
}

/// The address with its version: some services' addresses in catalogs carry none.
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
    fn addresses_get_the_version_that_they_lack() {
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
