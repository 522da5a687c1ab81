//! Tokens of an identity provider by OpenID Connect: discovery, refresh tokens, and the device flow of RFC 8628.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Method as Verb, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::super::credentials::{Issuer, Method};
use super::super::refresh::{Held, Stored};
use super::call::json_of;
use super::failure::{Api, Failure, FailureKind, classify};
use super::session::private;
use super::site::Site;
use crate::provider::kit::Call;
use crate::provider::kit::http;
use crate::util::text::{printable_line, shortened};

/// Where an issuer has its discovery document (OpenID Connect Discovery 1.0, section 4).
const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// The grant of RFC 8628, section 3.4.
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// How long before its end an access token is not used any more.
const MARGIN: Duration = Duration::from_secs(20);
/// The pause between two questions if the provider names none, and what `slow_down` adds (RFC 8628, section 3.5).
const POLL_PAUSE: Duration = Duration::from_secs(5);
/// The longest time that a code is waited for, whatever the provider says.
const LONGEST_CODE: Duration = Duration::from_secs(30 * 60);

/// Access tokens of this process, by the file of their refresh token and their client: all sites share one, and one
/// caller renews it while the others wait.
static ACCESS: LazyLock<Mutex<BTreeMap<(PathBuf, String), Slot>>> = LazyLock::new(Mutex::default);

type Slot = Arc<tokio::sync::Mutex<Option<Access>>>;

struct Access {
    token: SecretString,
    until: Instant,
}

/// A code that somebody confirms on a page.
pub(crate) struct Device {
    /// The page.
    pub(crate) url: String,
    /// The page that knows the code already.
    pub(crate) whole_url: Option<String>,
    /// The code to type there.
    pub(crate) code: String,
    /// How long it is valid.
    pub(crate) lasts: Duration,
    device_code: SecretString,
    pause: Duration,
}

/// The endpoints of an identity provider.
struct Endpoints {
    token: String,
    device: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(deserialize_with = "secret")]
    access_token: SecretString,
    #[serde(default, deserialize_with = "optional_secret")]
    refresh_token: Option<SecretString>,
    #[serde(default)]
    expires_in: Option<f64>,
}

#[derive(Deserialize)]
struct DeviceAnswer {
    #[serde(deserialize_with = "secret")]
    device_code: SecretString,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: f64,
    interval: Option<f64>,
}

/// A refusal of the token endpoint (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: String,
}

impl Refusal {
    fn text(&self) -> String {
        let Self { error, error_description } = self;
        let text = if error_description.is_empty() { error.clone() } else { format!("{error}: {error_description}") };
        shortened(&printable_line(&text)).clone()
    }
}

impl Site {
    /// An access token other than `refused`, by the stored refresh token if there is none yet.
    pub(super) async fn signed_in(
        &self,
        issuer: &Issuer,
        kept: &Path,
        refused: Option<&SecretString>,
        doing: &str,
    ) -> Api<SecretString> {
        let slot = slot(issuer, kept);
        let mut access = slot.lock().await;
        let is_refused =
            |token: &SecretString| refused.is_some_and(|refused| refused.expose_secret() == token.expose_secret());
        if let Some(found) = access.as_ref().filter(|found| Instant::now() < found.until && !is_refused(&found.token)) {
            return Ok(found.token.clone());
        }
        let tokens = self.refreshed(issuer, kept, doing).await?;
        Ok(access.insert(Access::of(tokens)).token.clone())
    }

    /// Whether the site is used with a login that was confirmed on a page, and that ends.
    pub(crate) fn is_page_login(&self) -> bool {
        matches!(self.credentials().method, Method::OidcDevice { .. })
    }

    /// Renews the login, so that all sites can use it.
    pub(crate) async fn renew_login(&self) -> Api<()> {
        let doing = "renew the login";
        let (issuer, kept) = self.device_login(doing)?;
        self.signed_in(issuer, kept, None, doing).await.map(drop)
    }

    /// Exchanges the stored refresh token for an access token; a new refresh token is on disk when this returns.
    async fn refreshed(&self, issuer: &Issuer, kept: &Path, doing: &str) -> Api<Tokens> {
        let endpoints = self.endpoints(issuer, doing).await?;
        let unusable = |text| Failure::new(FailureKind::Incomplete, doing, text).hint("gpucl login chameleon");
        let held = Held::lock(kept).await.map_err(unusable)?;
        let mut sent: Option<SecretString> = None;
        loop {
            let ended = |text| Failure::new(FailureKind::TokenEnded, doing, text).hint("gpucl login chameleon");
            let Some(Stored { token, issuer: of }) = held.token().map_err(unusable)? else {
                return Err(ended(format!("nobody is logged in: there is no {}", kept.display())));
            };
            if sent.as_ref().is_some_and(|sent| sent.expose_secret() == token.expose_secret()) {
                return Err(ended(format!(
                    "the login in {} has ended: its refresh token has expired, or was used by another program",
                    kept.display()
                )));
            }
            goes_to_its_issuer(of.as_deref(), &endpoints.token, kept, doing)?;
            let place = held.place().map_err(unusable)?;
            let form = [
                ("grant_type", "refresh_token"),
                ("refresh_token", token.expose_secret()),
                ("scope", issuer.scope.as_str()),
            ];
            match self.posted::<Tokens>(&endpoints.token, issuer, &form, doing).await? {
                Ok(tokens) => {
                    let is_new = |new: &&SecretString| new.expose_secret() != token.expose_secret();
                    if let Some(new) = tokens.refresh_token.as_ref().filter(is_new) {
                        held.put_after(&token, place, new, &endpoints.token).map_err(unusable)?;
                    }
                    return Ok(tokens);
                }
                // A program without the lock, such as `ccauth`, may have used it just before: then another is there.
                Err(refusal) if refusal.error == "invalid_grant" => sent = Some(token),
                Err(refusal) => return Err(refused(&refusal, doing)),
            }
        }
    }

    /// Asks for a code that somebody can confirm on a page.
    pub(crate) async fn begin_device(&self) -> Api<Device> {
        let doing = "begin the login";
        let (issuer, _) = self.device_login(doing)?;
        let endpoints = self.endpoints(issuer, doing).await?;
        let Some(endpoint) = &endpoints.device else {
            return Err(incomplete(doing, "the identity provider has no `device_authorization_endpoint`"));
        };
        let form = [("scope", issuer.scope.as_str())];
        let answer: DeviceAnswer = match self.posted(endpoint, issuer, &form, doing).await? {
            Ok(answer) => answer,
            Err(refusal) => return Err(refused(&refusal, doing)),
        };
        // A browser will open it: it is written as a URL is.
        let page = |url: &str| {
            private(url, doing)?;
            Ok::<_, Failure>(Url::parse(url).map_or_else(|_| String::new(), String::from))
        };
        Ok(Device {
            url: page(&answer.verification_uri)?,
            whole_url: answer.verification_uri_complete.as_deref().map(page).transpose()?,
            code: answer.user_code,
            lasts: seconds(answer.expires_in).min(LONGEST_CODE),
            device_code: answer.device_code,
            pause: answer.interval.map_or(POLL_PAUSE, seconds),
        })
    }

    /// Waits until the code is confirmed, and stores the refresh token.
    pub(crate) async fn await_device(&self, device: &Device) -> Api<()> {
        let doing = "wait for the login";
        let (issuer, kept) = self.device_login(doing)?;
        let endpoints = self.endpoints(issuer, doing).await?;
        let until = Instant::now() + device.lasts;
        let mut pause = device.pause;
        let form = [("grant_type", DEVICE_GRANT), ("device_code", device.device_code.expose_secret())];
        let tokens = loop {
            tokio::time::sleep(pause).await;
            match self.posted::<Tokens>(&endpoints.token, issuer, &form, doing).await {
                Ok(Ok(tokens)) => break tokens,
                Ok(Err(refusal)) => match refusal.error.as_str() {
                    "authorization_pending" => {}
                    "slow_down" => pause += POLL_PAUSE,
                    "access_denied" => {
                        return Err(Failure::new(FailureKind::Refused, doing, "it was refused on the page"));
                    }
                    "expired_token" => return Err(unconfirmed(device, doing)),
                    _ => return Err(refused(&refusal, doing)),
                },
                // The network may come back before the code ends.
                Err(failure) if failure.passes() => {}
                Err(failure) => return Err(failure),
            }
            if Instant::now() + pause > until {
                return Err(unconfirmed(device, doing));
            }
        };
        if let Some(token) = &tokens.refresh_token {
            let store = async {
                let held = Held::lock(kept).await?;
                held.put(held.place()?, token, &endpoints.token)
            };
            store.await.map_err(|text| incomplete(doing, text))?;
        }
        *slot(issuer, kept).lock().await = Some(Access::of(tokens));
        Ok(())
    }

    fn device_login(&self, doing: &str) -> Api<(&Issuer, &Path)> {
        match &self.credentials().method {
            Method::OidcDevice { issuer, kept, .. } => Ok((issuer, kept)),
            _ => Err(incomplete(doing, "the site's credentials are not those of such a login")),
        }
    }

    /// The URL of the token endpoint.
    pub(super) async fn token_endpoint(&self, issuer: &Issuer, doing: &str) -> Api<String> {
        self.endpoints(issuer, doing).await.map(|endpoints| endpoints.token)
    }

    /// The endpoints as they were given, or of the discovery document.
    async fn endpoints(&self, issuer: &Issuer, doing: &str) -> Api<Endpoints> {
        let given = |token: &String| Endpoints { token: token.clone(), device: issuer.device_endpoint.clone() };
        let endpoints = match (&issuer.token_endpoint, &issuer.discovery_endpoint) {
            (Some(token), None) => given(token),
            (Some(token), Some(_)) if issuer.device_endpoint.is_some() => given(token),
            (_, Some(discovery)) => self.discovered(issuer, discovery, doing).await?,
            (None, None) => {
                let text = "the identity provider's token endpoint is unknown: OS_DISCOVERY_ENDPOINT is missing";
                return Err(incomplete(doing, text));
            }
        };
        private(&endpoints.token, doing)?;
        endpoints.device.as_ref().map_or(Ok(()), |device| private(device, doing))?;
        Ok(endpoints)
    }

    async fn discovered(&self, issuer: &Issuer, discovery: &str, doing: &str) -> Api<Endpoints> {
        // Whoever can modify this response decides where secrets are sent.
        private(discovery, doing)?;
        let answer = self.identity(Verb::GET, doing, |client| Ok(client.get(discovery))).await?;
        let document = json_of(&answer, doing, &Verb::GET)?;
        let text =
            |key: &str| document.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        if let (Some(named), Some(meant)) = (text("issuer"), discovery.strip_suffix(WELL_KNOWN))
            && named.trim_end_matches('/') != meant.trim_end_matches('/')
        {
            let text = format!("{discovery} is of another issuer: {}", printable_line(&named));
            return Err(Failure::new(FailureKind::Refused, doing, text)
                .hint("check discovery_endpoint, or OS_DISCOVERY_ENDPOINT: secrets would go to that issuer"));
        }
        let Some(token) = issuer.token_endpoint.clone().or_else(|| text("token_endpoint")) else {
            return Err(Failure::new(FailureKind::Malformed, doing, format!("{discovery} names no `token_endpoint`")));
        };
        let device = issuer.device_endpoint.clone().or_else(|| text("device_authorization_endpoint"));
        Ok(Endpoints { token, device })
    }

    /// Posts a form as this client. It is sent a second time only if the first surely did not arrive: a refresh token
    /// that is used twice may end the login.
    async fn posted<T: serde::de::DeserializeOwned>(
        &self,
        endpoint: &str,
        issuer: &Issuer,
        form: &[(&str, &str)],
        doing: &str,
    ) -> Api<Result<T, Refusal>> {
        let once = || async {
            let mut form = form.to_vec();
            let mut request = self.client(Call::Change).post(endpoint);
            match &issuer.client_secret {
                Some(secret) => request = request.basic_auth(&issuer.client_id, Some(secret.expose_secret())),
                None => form.push(("client_id", &issuer.client_id)),
            }
            let answer =
                http::ask::<FailureKind>(request.form(&form), &Verb::POST, doing, "the identity provider").await?;
            if answer.status.is_success() {
                // The parser's message could quote a token.
                return serde_json::from_slice(&answer.body).map(Ok).map_err(|_| {
                    let text = "unexpected answer of the identity provider: it has no token, or no code";
                    Failure::new(FailureKind::Malformed, doing, text)
                });
            }
            match serde_json::from_slice::<Refusal>(&answer.body) {
                Ok(refusal) if answer.status.is_client_error() && answer.status != StatusCode::TOO_MANY_REQUESTS => {
                    Ok(Err(refusal))
                }
                _ => Err(Failure {
                    after: answer.retry_after(),
                    ..classify(doing, &Verb::POST, answer.status, &answer.body)
                }),
            }
        };
        self.with_patience(Call::Change, once).await
    }
}

impl Access {
    fn of(tokens: Tokens) -> Self {
        let life = tokens.expires_in.map_or(Duration::from_secs(60), seconds);
        let until = Instant::now() + life.saturating_sub(MARGIN.min(life / 2));
        Self { token: tokens.access_token, until }
    }
}

fn slot(issuer: &Issuer, kept: &Path) -> Slot {
    let key = (kept.to_owned(), issuer.client_id.clone());
    ACCESS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone()
}

/// Refuses to send a refresh token to another address than its issuer's: whoever wrote the cloud may be a stranger.
fn goes_to_its_issuer(issuer: Option<&str>, endpoint: &str, kept: &Path, doing: &str) -> Api<()> {
    let origin = |url: &str| Url::parse(url).ok().map(|url| url.origin());
    if issuer.is_some_and(|issuer| origin(issuer).is_some() && origin(issuer) == origin(endpoint)) {
        return Ok(());
    }
    let whose = issuer.map_or("an unknown issuer".into(), printable_line);
    let text = format!("the login in {} is of {whose}, and would be sent to {endpoint}", kept.display());
    Err(Failure::new(FailureKind::Refused, doing, text)
        .hint("check discovery_endpoint, or OS_DISCOVERY_ENDPOINT; or log in there: gpucl login chameleon"))
}

fn secret<'de, D: serde::Deserializer<'de>>(from: D) -> Result<SecretString, D::Error> {
    String::deserialize(from).map(SecretString::from)
}

fn optional_secret<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    Option::<String>::deserialize(from).map(|text| text.map(SecretString::from))
}

fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

fn incomplete(doing: &str, text: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Incomplete, doing, text.into())
}

fn refused(refusal: &Refusal, doing: &str) -> Failure {
    let text = format!("the identity provider refuses: {}", refusal.text());
    Failure::new(FailureKind::Refused, doing, text)
}

fn unconfirmed(device: &Device, doing: &str) -> Failure {
    let text = format!("nobody confirmed the code within {} s", device.lasts.as_secs());
    Failure::new(FailureKind::Timeout, doing, text).hint("gpucl login chameleon   # shows another code")
}
