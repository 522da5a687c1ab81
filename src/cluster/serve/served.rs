//! A cluster whose applications are worked on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use secrecy::SecretString;

use super::way::Way;
use crate::cluster::machines::Machines;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::ray::{Application, Client, Requests, Serving, requests, serve_key};
use crate::state::ClusterState;
use crate::util::near;

/// A cluster whose applications are worked on. Whoever changes them holds the cluster's lock.
pub struct Served<'a> {
    /// The cluster's state.
    pub state: &'a ClusterState,
    /// The folder of its state.
    pub folder: &'a Path,
    /// The cluster's token.
    pub token: SecretString,
    /// Its Ray.
    pub client: &'a Client,
    /// Its machines.
    pub machines: &'a Arc<Machines>,
    /// Where is said how it goes.
    pub events: &'a Bus,
}

impl Served<'_> {
    /// The key to the applications.
    pub fn key(&self) -> SecretString {
        serve_key(&self.token)
    }

    /// Opens the way to the applications.
    ///
    /// # Errors
    /// If the cluster's runtime has no port for them, or the head does not answer.
    pub async fn way(&self) -> Result<Way> {
        Way::open(self.state, self.machines).await
    }

    /// The requests to each application, by its name; `None` if their metrics cannot be read.
    pub async fn requests(&self) -> Option<BTreeMap<String, Requests>> {
        let way = Way::to_metrics(self.state, self.machines).await.ok()??;
        let read = requests(&way.url).await;
        way.close().await;
        read.ok()
    }

    /// A command on this cluster, to be shown.
    pub(super) fn command(&self, command: &str) -> String {
        format!("gpucl {command} -c {}", self.state.name)
    }
}

/// The application of this name.
///
/// # Errors
/// If there is none; a near name is said.
pub fn named<'a>(serving: &'a Serving, name: &str) -> Result<&'a Application> {
    serving.applications.get(name).ok_or_else(|| {
        let error = Error::new(ErrorKind::NotFound, format!("find the application {name}"));
        match near::nearest(name, serving.applications.keys().map(String::as_str)) {
            Some(near) => error.because("Serve has none of that name").hint(format!("did you mean `{near}`?")),
            None if serving.applications.is_empty() => error.because("Serve has no applications"),
            None => {
                let names: Vec<&str> = serving.applications.keys().map(String::as_str).collect();
                error.because(format!("there are: {}", names.join(", ")))
            }
        }
    })
}
