//! One site: its connections, its token, and how often it is asked.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use reqwest::{Certificate, Client, Url};
use tokio::sync::Mutex;

use super::super::auth::Credentials;
use super::failure::{Api, Failure, FailureKind};
use super::session::{Session, Who};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::Bus;
use crate::provider::http;
use crate::util::fs::{HISTORY_LIMIT, read_within};

/// How long a connection is kept without use: less than the five seconds after which many servers close it.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
/// The longest that a service may make us wait by its `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often a call is tried again.
const AGAIN: usize = 3;

/// One site, authenticated when first needed. Cheap to clone.
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

/// The token of now; one caller gets it, the others wait for that one.
#[derive(Default)]
struct Kept {
    session: Option<Arc<Session>>,
    failed: Option<(Instant, Failure)>,
}

/// What a call may be tried again for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Whatever may pass: it changes nothing.
    Whatever,
    /// What was surely not carried out.
    NotCarriedOut,
}

impl Site {
    /// Makes a site of what it is spoken to with; nothing is sent yet.
    pub(crate) fn new(credentials: Credentials, events: Bus) -> Result<Self> {
        let doing = || format!("prepare connections to {}", credentials.auth_url);
        let url = Url::parse(&credentials.keystone()).map_err(|error| {
            Error::new(ErrorKind::Usage, doing())
                .because(format!("`{}` is no address: {error}", credentials.auth_url))
                .hint("auth_url looks like https://chi.tacc.chameleoncloud.org:5000/v3")
        })?;
        if !http::is_private(&url) {
            return Err(Error::new(ErrorKind::Usage, doing())
                .because("plain HTTP would carry the credentials unencrypted: it is spoken to this machine only")
                .hint("auth_url begins with https://, such as https://chi.tacc.chameleoncloud.org:5000/v3"));
        }
        if !credentials.verify {
            events.warn(format!(
                "the certificate of {} is not verified, by `verify: false` or OS_INSECURE: whoever sits in between can read \
                 the credentials and pass for the site. `cacert:` or OS_CACERT names the file of an authority of its own",
                url.host_str().unwrap_or(&credentials.auth_url)
            ));
        }
        // A call that changes something gets a connection of its own: on one that was kept, a server may close just then,
        // and it could not be told whether the call was carried out.
        let reading = client(&credentials, &url, Some(IDLE_LIMIT))?;
        let changing = client(&credentials, &url, None)?;
        let region = OnceLock::new();
        if let Some(name) = &credentials.region {
            let _ = region.set(name.clone());
        }
        let kept = Mutex::new(Kept::default());
        Ok(Self { inner: Arc::new(Inner { credentials, events, reading, changing, kept, region }) })
    }

    /// The site's name: `CHI@TACC`. Before the first call it may be its address only.
    pub(crate) fn region(&self) -> &str {
        self.inner.region.get().unwrap_or(&self.inner.credentials.auth_url)
    }

    /// Who we are there.
    pub(crate) async fn who(&self) -> Api<Who> {
        Ok(self.session(None).await?.who())
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.inner.credentials
    }

    /// The connections for calls of this kind.
    pub(super) fn client(&self, again: Again) -> &Client {
        match again {
            Again::Whatever => &self.inner.reading,
            Again::NotCarriedOut => &self.inner.changing,
        }
    }

    /// What we are doing, and where.
    pub(super) fn at(&self, doing: &str) -> String {
        format!("{doing} at {}", self.region())
    }

    /// Where application credentials are made at this site.
    pub(crate) fn unrestricted_hint(&self) -> String {
        format!(
            "make another at {} with the box \"Unrestricted (dangerous)\" ticked, then: gpucl login chameleon --site {}",
            super::super::auth::credentials_page(&self.inner.credentials.auth_url),
            self.region()
        )
    }

    /// A token that can be used; another one than `refused`.
    pub(super) async fn session(&self, refused: Option<&Arc<Session>>) -> Api<Arc<Session>> {
        let asked = Instant::now();
        let mut kept = self.inner.kept.lock().await;
        let usable = |session: &Arc<Session>| {
            session.is_fresh() && !refused.is_some_and(|refused| Arc::ptr_eq(refused, session))
        };
        if let Some(session) = kept.session.as_ref().filter(|session| usable(session)) {
            return Ok(session.clone());
        }
        // Whoever waited while it failed does not try it once more.
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

    /// Learns the region of the catalog, where nobody gave it.
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

    /// Makes a call, and makes it again while that may help.
    pub(super) async fn with_patience<T, F>(&self, again: Again, call: impl Fn() -> F) -> Api<T>
    where
        F: Future<Output = Api<T>>,
    {
        let mut delays = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(300))
            .with_factor(3.0)
            .with_max_delay(Duration::from_secs(5))
            .with_max_times(AGAIN)
            .build();
        loop {
            let failure = match call().await {
                Err(failure) if may_be_tried_again(&failure, again) => failure,
                other => return other,
            };
            let wait = delays.next().map(|delay| failure.after.unwrap_or(delay));
            let Some(wait) = wait.filter(|wait| *wait <= LONGEST_WAIT) else { return Err(failure) };
            failure.wait(wait, &self.inner.events).await;
        }
    }
}

fn may_be_tried_again(failure: &Failure, again: Again) -> bool {
    use FailureKind as Kind;
    match failure.kind {
        Kind::RateLimited => true,
        Kind::Unreachable => !failure.is_of_certificate(),
        Kind::Cut | Kind::Timeout | Kind::Malformed => again == Again::Whatever,
        // 501 and its like do not pass.
        Kind::Fault => again == Again::Whatever && matches!(failure.status, Some(500 | 502 | 503 | 504)),
        _ => false,
    }
}

/// A client for one site; `None` keeps no connection.
fn client(credentials: &Credentials, keystone: &Url, idle: Option<Duration>) -> Result<Client> {
    let doing = || format!("prepare connections to {}", credentials.auth_url);
    let builder = http::client(keystone).tls_danger_accept_invalid_certs(!credentials.verify);
    let mut builder = match idle {
        Some(limit) => builder.pool_idle_timeout(limit),
        None => builder.pool_max_idle_per_host(0),
    };
    if let Some(path) = &credentials.cacert {
        let hint = "cacert in clouds.yaml, or OS_CACERT, names a file of certificates in PEM form";
        let pem = read_within(path, HISTORY_LIMIT).doing(ErrorKind::Usage, doing).map_err(|error| error.hint(hint))?;
        let certificates =
            Certificate::from_pem_bundle(&pem).doing(ErrorKind::Usage, doing).map_err(|error| error.hint(hint))?;
        if certificates.is_empty() {
            let cause = format!("{} holds no certificate", path.display());
            return Err(Error::new(ErrorKind::Usage, doing()).because(cause).hint(hint));
        }
        builder = builder.tls_certs_merge(certificates);
    }
    builder.build().doing(ErrorKind::Internal, doing)
}

impl fmt::Debug for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Site").field("region", &self.region()).finish_non_exhaustive()
    }
}
