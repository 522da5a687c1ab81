//! A cloud as flat options, from a file or the environment, as OpenStack's clients treat it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;

use super::super::credentials::{Credentials, Issuer, Method, Named};
use super::super::refresh;
use super::sites::site_at;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::UserEnvironment;

/// A cloud's options, including those below `auth:`.
#[derive(Clone, Default)]
pub(super) struct Flat {
    options: BTreeMap<String, String>,
}

impl Flat {
    /// Sets an option; the key is lowercased, with underscores for dashes.
    pub(super) fn set(&mut self, key: &str, value: String) {
        self.options.insert(key.to_ascii_lowercase().replace('-', "_"), value);
    }

    /// The first non-empty option of these names.
    pub(super) fn get(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().find_map(|key| self.options.get(*key).map(String::as_str).filter(|value| !value.is_empty()))
    }

    fn text(&self, keys: &[&str]) -> Option<String> {
        self.get(keys).map(str::to_owned)
    }

    /// A required option, under the first of these names that is set.
    fn needed(&self, keys: &[&str], source: &str) -> Result<String> {
        self.text(keys).ok_or_else(|| {
            let key = keys.first().copied().unwrap_or_default();
            incomplete(source, format!("{key} is missing"))
        })
    }

    fn secret(&self, keys: &[&str], source: &str) -> Result<SecretString> {
        Ok(SecretString::from(self.needed(keys, source)?))
    }

    fn named(&self, what: &str) -> Named {
        let keys = |suffix: &str| format!("{what}_{suffix}");
        let option = |suffix: &str| self.text(&[keys(suffix).as_str()]);
        Named {
            id: option("id"),
            name: option("name"),
            domain_id: option("domain_id").or_else(|| self.text(&["default_domain_id", "default_domain"])),
            domain_name: option("domain_name").or_else(|| self.text(&["default_domain_name"])),
        }
    }

    /// Converts the options to credentials.
    pub(super) fn credentials(&self, source: &str, user_environment: &UserEnvironment) -> Result<Credentials> {
        let auth_url = match (self.text(&["auth_url"]), self.get(&["profile"])) {
            (Some(url), _) => url,
            (None, Some(profile)) => {
                return Err(incomplete(
                    source,
                    format!("auth_url is missing, and profiles such as `{profile}` are not supported"),
                ));
            }
            (None, None) => return Err(incomplete(source, "auth_url is missing".to_owned())),
        };
        let method = self.method(source, user_environment)?;
        let mut project = self.named("project");
        if project.is_open() {
            project = Named { id: self.text(&["tenant_id"]), name: self.text(&["tenant_name", "project"]), ..project };
        }
        let verify = match self.get(&["verify"]) {
            Some(word) => is_true(word),
            None => !self.get(&["insecure"]).is_some_and(is_true),
        };
        Ok(Credentials {
            region: self.text(&["region_name"]).or_else(|| site_at(&auth_url).map(|site| site.name.to_owned())),
            method,
            auth_url,
            project,
            interface: self.text(&["interface", "endpoint_type"]).unwrap_or_else(|| "public".to_owned()),
            cacert: self.get(&["cacert"]).map(PathBuf::from),
            verify,
        })
    }

    fn issuer(&self, source: &str) -> Result<Issuer> {
        Ok(Issuer {
            discovery_endpoint: self.text(&["discovery_endpoint"]),
            token_endpoint: self.text(&["access_token_endpoint"]),
            device_endpoint: self.text(&["device_authorization_endpoint"]),
            client_id: self.needed(&["client_id"], source)?,
            client_secret: self.text(&["client_secret"]).map(SecretString::from),
            scope: self.text(&["openid_scope"]).unwrap_or_else(|| "openid profile".to_owned()),
        })
    }

    fn method(&self, source: &str, user_environment: &UserEnvironment) -> Result<Method> {
        let kind = self.get(&["auth_type"]).map(str::to_ascii_lowercase);
        let kind = match kind.as_deref() {
            Some(kind) => kind.to_owned(),
            // OpenStack's clients default to a password here; infer the method from the options instead.
            None if self.get(&["application_credential_id"]).is_some() => "v3applicationcredential".to_owned(),
            None if self.get(&["access_token"]).is_some() => "v3oidcaccesstoken".to_owned(),
            None if self.get(&["token", "auth_token"]).is_some() => "v3token".to_owned(),
            None if self.get(&["password"]).is_some() => "password".to_owned(),
            None => return Err(incomplete(source, "they contain no credential".to_owned())),
        };
        let identity_provider = || self.needed(&["identity_provider"], source);
        let protocol = || self.needed(&["protocol"], source);
        Ok(match kind.as_str() {
            "v3applicationcredential" | "applicationcredential" => Method::ApplicationCredential {
                id: self.needed(&["application_credential_id"], source).map_err(|error| {
                    match self.get(&["application_credential_name"]) {
                        Some(_) => error.hint("application credentials are accepted by id only, not by name"),
                        None => error,
                    }
                })?,
                secret: self.secret(&["application_credential_secret"], source)?,
            },
            "token" | "v3token" | "admin_token" => {
                Method::Token { token: self.secret(&["token", "auth_token"], source)? }
            }
            "v3oidcaccesstoken" => Method::OidcAccessToken {
                identity_provider: identity_provider()?,
                protocol: protocol()?,
                access_token: self.secret(&["access_token"], source)?,
            },
            "v3oidcpassword" => Method::OidcPassword {
                identity_provider: identity_provider()?,
                protocol: protocol()?,
                issuer: self.issuer(source)?,
                username: self.needed(&["username", "user_name"], source)?,
                password: self.secret(&["password"], source)?,
            },
            kind @ ("v3chameleonoidc" | "v3oidcdeviceauthz") => {
                let issuer = self.issuer(source)?;
                let kept = if kind == "v3chameleonoidc" {
                    refresh::of_ccauth(user_environment)
                } else {
                    refresh::of_issuer(user_environment, &issuer)
                };
                Method::OidcDevice { identity_provider: identity_provider()?, protocol: protocol()?, issuer, kept }
            }
            "password" | "v3password" => {
                let user = self.named("user");
                let user = Named { id: user.id, name: self.text(&["username", "user_name"]), ..user };
                if user.is_open() {
                    return Err(incomplete(source, "username is missing".to_owned()));
                }
                Method::Password { user, password: self.secret(&["password"], source)? }
            }
            other => {
                return Err(incomplete(source, format!("auth_type `{other}` is not supported")).hint(
                    "supported: v3chameleonoidc, v3applicationcredential, v3oidcaccesstoken, v3oidcpassword, \
                     v3oidcdeviceauthz, v3token and v3password",
                ));
            }
        })
    }
}

/// The error for incomplete options.
fn incomplete(source: &str, why: String) -> Error {
    Error::new(ErrorKind::Usage, format!("read the credentials of {source}")).because(why).hint("gpucl login chameleon")
}

fn is_true(word: &str) -> bool {
    matches!(word.trim().to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on")
}
