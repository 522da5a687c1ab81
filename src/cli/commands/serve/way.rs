//! The way to the applications: their port on the head, from here.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use crate::cli::app::App;
use crate::cli::target::Target;
use crate::cluster::Forward;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::ray::{HttpOptions, serve_key};
use crate::runtime;
use crate::spec::Spec;

/// The timeout of a request that shows whether the proxy asks for a key.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// An address of this machine that leads to the applications, while this lives.
pub(super) struct Way {
    /// `http://127.0.0.1:PORT`.
    pub(super) url: String,
    forward: Option<Forward>,
}

/// The spec of a cluster on hosts, and the port of its head's loopback for the applications.
fn place(target: &Target) -> Result<(&Spec, u16)> {
    let state = &target.known.state;
    let doing = || Error::new(ErrorKind::Unsupported, format!("serve applications on {}", target.name));
    let spec = state.spec.as_ref().filter(|_| state.platform().is_none());
    let spec = spec.ok_or_else(|| doing().because("it can be done where the nodes run on hosts"))?;
    let port = runtime::of(spec.runtime).serve_port(&target.head_ports()?);
    let port = port.ok_or_else(|| {
        doing().because("an earlier gpucl brought it up, without a port for them").hint("gpucl up   # gives it one")
    })?;
    Ok((spec, port))
}

/// The port of the head's loopback for the applications.
///
/// # Errors
/// If the cluster has none.
pub(super) fn port(target: &Target) -> Result<u16> {
    place(target).map(|(_, port)| port)
}

/// Where the proxy is to listen, in the head.
///
/// # Errors
/// As for [`port`].
pub(super) fn listens(target: &Target) -> Result<HttpOptions> {
    let (spec, port) = place(target)?;
    let (host, port) = runtime::of(spec.runtime).serve_listens(spec, port);
    Ok(HttpOptions { host: host.to_owned(), port })
}

impl Way {
    /// Opens it.
    pub(super) async fn open(app: &App, target: &Target) -> Result<Self> {
        let port = port(target)?;
        if !target.is_remote() {
            return Ok(Self { url: format!("http://127.0.0.1:{port}"), forward: None });
        }
        let forward = target.machines(app).await?.forward("head", port, None).await?;
        Ok(Self { url: format!("http://{}", forward.local()), forward: Some(forward) })
    }

    /// Closes it, and waits until nothing listens.
    pub(super) async fn close(self) {
        if let Some(forward) = self.forward {
            forward.close().await;
        }
    }

    /// Checks that the proxy refuses a request without the key, and takes one with it.
    ///
    /// # Errors
    /// If it does not.
    pub(super) async fn check(&self, key: &SecretString) -> Result<()> {
        let doing = || "check that the applications are closed to others".to_owned();
        let client = crate::util::http::client().no_proxy().build().doing(ErrorKind::Internal, doing)?;
        let ask = async |key: Option<&str>| {
            let request = client.get(format!("{}/-/routes", self.url)).timeout(PROBE_LIMIT);
            let request =
                key.map_or_else(|| request.try_clone(), |key| request.try_clone().map(|it| it.bearer_auth(key)));
            let answer = request.ok_or_else(|| Error::new(ErrorKind::Internal, doing()))?.send().await;
            Ok::<u16, Error>(answer.doing(ErrorKind::NotReady, doing)?.status().as_u16())
        };
        let (without, with) = (ask(None).await?, ask(Some(key.expose_secret())).await?);
        if without == 401 && with == 200 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotReady, doing())
            .because(format!("without the key the proxy answers {without}, with it {with}")))
    }
}

/// The key to the applications of a cluster.
pub(super) fn key(target: &Target) -> Result<SecretString> {
    Ok(serve_key(&target.token()?))
}
