//! One site: its connections, its token, and its retries.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use backon::ExponentialBuilder;
use reqwest::{Certificate, Client, Url};
use tokio::sync::Mutex;

use super::super::credentials::{Credentials, credentials_page};
use super::failure::{Api, Failure, FailureKind};
use super::session::{Session, Who};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::Bus;
use crate::provider::kit::{Call, Patience, http};
use crate::util::fs::{HISTORY_LIMIT, read_within};

/// How long to keep an idle connection: less than the five seconds after which many servers close it.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
/// The longest `Retry-After` that is honoured; beyond it the call fails.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The pauses before the retries of a call, of which there are three at most.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(300))
    .with_factor(3.0)
    .with_max_delay(Duration::from_secs(5))
    .with_max_times(3);

/// One site, authenticated on first use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Site {
    inner: Arc<Inner>,
}

struct Inner {
    credentials: Credentials,
    events: Bus,
    reading: Client,
    changing: Client,
    kept: Mutex<Kept>,
    region: OnceLock<String>,
}

/// The current token; one caller obtains it while the others wait.
#[derive(Default)]
struct Kept {
    session: Option<Arc<Session>>,
    failed: Option<(Instant, Failure)>,
}

impl Site {
    /// Makes a client from credentials; sends nothing yet.
    pub(crate) fn new(credentials: Credentials, events: Bus) -> Result<Self> {
        let doing = || format!("prepare connections to {}", credentials.auth_url);
        let url = Url::parse(&credentials.keystone()).map_err(|error| {
            Error::new(ErrorKind::Usage, doing())
                .because(format!("`{}` is not a URL: {error}", credentials.auth_url))
                .hint("auth_url looks like https://chi.tacc.chameleoncloud.org:5000/v3")
        })?;
        if !http::is_private(&url) {
            return Err(Error::new(ErrorKind::Usage, doing())
                .because("plain HTTP would send the credentials unencrypted: it is allowed on this machine only")
                .hint("auth_url must begin with https://, such as https://chi.tacc.chameleoncloud.org:5000/v3"));
        }
        if !credentials.verify {
            events.warn(format!(
                "the certificate of {} is not verified (`verify: false` or OS_INSECURE): anyone on the path can read \
                 the credentials and impersonate the site. For a private authority, set `cacert:` or OS_CACERT to its file",
                url.host_str().unwrap_or(&credentials.auth_url)
            ));
        }
        // Changing calls use new connections: the server may close a kept one just then, leaving it unknown whether the
        // call was carried out.
        let reading = client(&credentials, &url, Some(IDLE_LIMIT))?;
        let changing = client(&credentials, &url, None)?;
        let region = OnceLock::new();
        if let Some(name) = &credentials.region {
            let _ = region.set(name.clone());
        }
        let kept = Mutex::new(Kept::default());
        Ok(Self { inner: Arc::new(Inner { credentials, events, reading, changing, kept, region }) })
    }

    /// The site's name: `CHI@TACC`. Before the first call, possibly only its address.
    pub(crate) fn region(&self) -> &str {
        self.inner.region.get().unwrap_or(&self.inner.credentials.auth_url)
    }

    /// The authenticated user.
    pub(crate) async fn who(&self) -> Api<Who> {
        Ok(self.session(None).await?.who())
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.inner.credentials
    }

    /// The HTTP client for calls of this kind.
    pub(super) fn client(&self, call: Call) -> &Client {
        match call {
            Call::Read => &self.inner.reading,
            Call::Change => &self.inner.changing,
        }
    }

    /// Appends the site to the description of a call.
    pub(super) fn at(&self, doing: &str) -> String {
        format!("{doing} at {}", self.region())
    }

    /// A hint on how to make an unrestricted application credential at this site.
    pub(crate) fn unrestricted_hint(&self) -> String {
        format!(
            "make another at {} with the box \"Unrestricted (dangerous)\" ticked, then: gpucl login chameleon --site {}",
            credentials_page(&self.inner.credentials.auth_url),
            self.region()
        )
    }

    /// A valid token other than `refused`; obtains one if needed.
    pub(super) async fn session(&self, refused: Option<&Arc<Session>>) -> Api<Arc<Session>> {
        let asked = Instant::now();
        let mut kept = self.inner.kept.lock().await;
        let usable = |session: &Arc<Session>| {
            session.is_fresh() && !refused.is_some_and(|refused| Arc::ptr_eq(refused, session))
        };
        if let Some(session) = kept.session.as_ref().filter(|session| usable(session)) {
            return Ok(session.clone());
        }
        // Callers that waited for a failed attempt share its failure.
        if let Some((_, failure)) = kept.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(failure.clone());
        }
        match self.obtain().await.and_then(|session| self.place(session)) {
            Ok(session) => {
                let session = Arc::new(session);
                *kept = Kept { session: Some(session.clone()), failed: None };
                Ok(session)
            }
            Err(failure) => {
                *kept = Kept { session: None, failed: Some((Instant::now(), failure.clone())) };
                Err(failure)
            }
        }
    }

    /// Sets the region from the catalog, if it was not given.
    fn place(&self, session: Session) -> Api<Session> {
        if self.inner.region.get().is_none() {
            let regions = session.regions();
            match regions.as_slice() {
                [only] => {
                    let _ = self.inner.region.set(only.clone());
                }
                [] => {}
                several => {
                    let text = format!("its catalog has several regions, and none was chosen: {}", several.join(", "));
                    let doing = format!("find the services of {}", self.inner.credentials.auth_url);
                    return Err(Failure::new(FailureKind::Incomplete, doing, text)
                        .hint("choose one: --site NAME, or set OS_REGION_NAME"));
                }
            }
        }
        Ok(session)
    }

    /// Makes a call, and retries it while that may help.
    pub(super) async fn with_patience<T, F>(&self, call: Call, once: impl Fn() -> F) -> Api<T>
    where
        F: Future<Output = Api<T>>,
    {
        let patience = Patience { pauses: PAUSES, longest: LONGEST_WAIT, events: &self.inner.events };
        patience.retry(call, once, |_: &Failure, _| {}).await
    }
}

/// An HTTP client for one site; `idle: None` keeps no connections.
fn client(credentials: &Credentials, keystone: &Url, idle: Option<Duration>) -> Result<Client> {
    let doing = || format!("prepare connections to {}", credentials.auth_url);
    let builder = http::client(keystone).tls_danger_accept_invalid_certs(!credentials.verify);
    let mut builder = match idle {
        Some(limit) => builder.pool_idle_timeout(limit),
        None => builder.pool_max_idle_per_host(0),
    };
    if let Some(path) = &credentials.cacert {
        let hint = "cacert in clouds.yaml, or OS_CACERT, must name a file of certificates in PEM format";
        let pem = read_within(path, HISTORY_LIMIT).doing(ErrorKind::Usage, doing).map_err(|error| error.hint(hint))?;
        let certificates =
            Certificate::from_pem_bundle(&pem).doing(ErrorKind::Usage, doing).map_err(|error| error.hint(hint))?;
        if certificates.is_empty() {
            let cause = format!("{} contains no certificate", path.display());
            return Err(Error::new(ErrorKind::Usage, doing()).because(cause).hint(hint));
        }
        builder = builder.tls_certs_merge(certificates);
    }
    http::built(builder, doing)
}

impl fmt::Debug for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Site").field("region", &self.region()).finish_non_exhaustive()
    }
}
