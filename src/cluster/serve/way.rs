//! The way to the applications: their port on the head, from here.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use crate::cluster::machines::{Forward, Machines, SERVE_PORT};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::Key;
use crate::ray::HttpOptions;
use crate::runtime;
use crate::spec::Spec;
use crate::state::ClusterState;

/// The timeout of a request that shows whether the proxy asks for a key.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// An address of this machine that leads to the applications, while this lives.
pub struct Way {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    forward: Option<Forward>,
}

/// The spec of a cluster on hosts, and the port of its head's loopback for the applications.
fn on_host(state: &ClusterState) -> Result<(&Spec, u16)> {
    let doing = || Error::new(ErrorKind::Unsupported, format!("serve applications on {}", state.name));
    let spec = state.spec.as_ref().ok_or_else(|| doing().because("it is not known what was brought up"))?;
    let ports = state.host(&Key::host(0)).and_then(|host| host.ports.as_ref());
    let port = ports
        .and_then(|ports| runtime::of(spec.runtime).serve_port(ports))
        .ok_or_else(|| doing().because("its head has no port for them yet").hint("gpucl up   # gives it one"))?;
    Ok((spec, port))
}

/// The port of the head's loopback for the applications.
///
/// # Errors
/// If the cluster has none.
pub fn port(state: &ClusterState) -> Result<u16> {
    if state.platform().is_some() {
        return Ok(SERVE_PORT);
    }
    on_host(state).map(|(_, port)| port)
}

/// Where the proxy is to listen, in the head.
///
/// # Errors
/// As for [`port`].
pub(super) fn listens(state: &ClusterState) -> Result<HttpOptions> {
    if state.platform().is_some() {
        return Ok(HttpOptions { host: "127.0.0.1".to_owned(), port: SERVE_PORT });
    }
    let (spec, port) = on_host(state)?;
    let (host, port) = runtime::of(spec.runtime).serve_listens(spec, port);
    Ok(HttpOptions { host: host.to_owned(), port })
}

impl Way {
    /// Opens it.
    ///
    /// # Errors
    /// If the cluster's runtime has no port for applications, or the head does not answer.
    pub async fn open(state: &ClusterState, machines: &Machines) -> Result<Self> {
        Self::to(port(state)?, state, machines, None).await
    }

    /// Opens a way to the metrics of the head; `None` if they are not on its loopback.
    pub(super) async fn to_metrics(state: &ClusterState, machines: &Machines) -> Result<Option<Self>> {
        let runtime = state.spec.as_ref().map(|spec| spec.runtime).filter(|_| state.platform().is_none());
        let ports = state.host(&Key::host(0)).and_then(|host| host.ports.as_ref());
        match runtime.and_then(|runtime| runtime::of(runtime).metrics_port(ports?)) {
            Some(port) => Self::to(port, state, machines, Some(0)).await.map(Some),
            None => Ok(None),
        }
    }

    /// Opens a way to a port of the head, from this local one.
    async fn to(port: u16, state: &ClusterState, machines: &Machines, local: Option<u16>) -> Result<Self> {
        if state.is_here() {
            return Ok(Self { url: format!("http://127.0.0.1:{port}"), forward: None });
        }
        let forward = machines.forward("head", port, local).await?;
        Ok(Self { url: format!("http://{}", forward.local()), forward: Some(forward) })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Closes it, and waits until nothing listens.
    pub async fn close(self) {
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
        let client = crate::util::http::built(crate::util::http::loopback_client(), doing)?;
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
