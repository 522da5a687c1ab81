//! The cluster of a command, opened to work on its applications.

use std::sync::Arc;

use secrecy::SecretString;

use crate::cli::app::App;
use crate::cli::target::Target;
use crate::cluster::serve::Served;
use crate::cluster::{Machines, RayClient};
use crate::error::Result;
use crate::event::Bus;
use crate::state::Lock;

/// A cluster that runs, and its Ray.
pub(super) struct Opened {
    pub(super) target: Target,
    pub(super) client: RayClient,
    machines: Arc<Machines>,
    token: SecretString,
    events: Bus,
}

impl Opened {
    /// Chooses the cluster, and connects to its Ray.
    pub(super) async fn of(app: &App) -> Result<Self> {
        let target = Target::choose(app)?;
        let client = target.client(app).await?;
        let (machines, token) = (Arc::clone(target.machines(app).await?), target.token()?);
        Ok(Self { target, client, machines, token, events: app.plain_events() })
    }

    /// Takes the cluster's lock: two changes at once would each delete what the other one adds.
    pub(super) fn lock(&self, app: &App, command: &str) -> Result<Lock> {
        Lock::take(&app.paths, &self.target.name, command)
    }

    /// Its applications.
    pub(super) fn served(&self) -> Served<'_> {
        Served {
            state: &self.target.known.state,
            folder: self.target.folder(),
            token: self.token.clone(),
            client: &self.client,
            machines: &self.machines,
            events: &self.events,
        }
    }
}
