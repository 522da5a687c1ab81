//! What verbs are asked with.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use secrecy::SecretString;

use crate::error::Result;
use crate::plan::Price;
use crate::spec::Amount;

/// How `up` is asked for.
#[derive(Debug, Clone, Default)]
pub struct UpOptions {
    /// The file that the spec came from, absolute.
    pub path: Option<String>,
    /// Take this file as the cluster's spec, though another one is running.
    pub new_spec: bool,
    /// Wait for hosts that can be had later, rather than hand that back.
    pub scheduled_up: bool,
    /// How long to ask again while the provider has none of what is asked for; the spec says it otherwise.
    pub wait_capacity: Option<std::time::Duration>,
    /// Who is asked before what costs much is made.
    pub approval: Approval,
    /// What is kept of the environment's credentials, for a deadline to be acted upon when nobody is there; by consent.
    pub secrets: BTreeMap<String, SecretString>,
}

/// What `down` leaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct DownOptions {
    /// Keep the data volumes on the hosts.
    pub keep_data: bool,
    /// Remove what was installed on the hosts for the cluster as well.
    pub purge: bool,
    /// Delete the lease as well, though it was not made for the cluster.
    pub release_lease: bool,
}

/// What somebody is asked before it is paid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// What it costs.
    pub price: Price,
    /// The limit that it is above.
    pub above: Amount,
}

/// How somebody is asked; an error is a no.
type Asks = dyn Fn(&Ask) -> Result<()> + Send + Sync;

/// Who is asked; nobody where it is absent.
#[derive(Clone, Default)]
pub struct Approval(Option<Arc<Asks>>);

impl Approval {
    /// Who is asked.
    pub(super) fn asked(&self) -> Option<Arc<Asks>> {
        self.0.clone()
    }

    /// Somebody is asked by this; an error is a no.
    pub fn by(ask: impl Fn(&Ask) -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() { "asks" } else { "asks nobody" })
    }
}
