//! The way to the applications: their port on the head, from here.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use crate::cluster::machines::{Forward, Machines, SERVE_PORT};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::Key;
use crate::runtime;
use crate::state::ClusterState;

/// The timeout of a request that shows whether the proxy asks for a key.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// An address of this machine that leads to the applications, while this lives.
pub struct Way {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    forward: Option<Forward>,
}

/// The port of the head's loopback for the applications.
///
/// # Errors
/// If the cluster's runtime has none.
pub fn port(state: &ClusterState) -> Result<u16> {
    if state.platform().is_some() {
        return Ok(SERVE_PORT);
    }
    let runtime = state.spec.as_ref().map(|spec| spec.runtime);
    let ports = state.host(&Key::host(0)).and_then(|host| host.ports.as_ref());
    let port = runtime.and_then(|runtime| runtime::of(runtime).serve_port(ports?));
    port.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("serve applications on {}", state.name))
            .because("it can be done with `runtime: native`, and on Kubernetes")
    })
}

impl Way {
    /// Opens it.
    ///
    /// # Errors
    /// If the cluster's runtime has no port for applications, or the head does not answer.
    pub async fn open(state: &ClusterState, machines: &Machines) -> Result<Self> {
        let port = port(state)?;
        if state.is_here() {
            return Ok(Self { url: format!("http://127.0.0.1:{port}"), forward: None });
        }
        let forward = machines.forward("head", port, None).await?;
        Ok(Self { url: format!("http://{}", forward.local()), forward: Some(forward) })
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
