//! The options of the verbs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use secrecy::SecretString;

use crate::error::Result;
use crate::plan::Price;
use crate::provider::platform::Site;
use crate::spec::Amount;

/// The options of `up`.
#[derive(Debug, Clone, Default)]
pub struct UpOptions {
    /// The spec's file, as an absolute path.
    pub path: Option<String>,
    /// Accept a spec from another file than the running cluster's.
    pub new_spec: bool,
    /// Wait for hosts that become available later, instead of returning [`super::UpOutcome::Later`].
    pub scheduled_up: bool,
    /// Look up the commits of the spec's repositories again.
    pub update_files: bool,
    /// The cluster is for one run, which takes it down: an error names no way to go on with what is there.
    pub one_run: bool,
    /// How long to wait for capacity; overrides `capacity.wait` of the spec.
    pub wait_capacity: Option<std::time::Duration>,
    /// The place where a cluster on a platform may be the first one, as the command line names it.
    pub at: Option<String>,
    /// The user's own price an hour above which `up` asks; `None` for the usual one.
    pub ask_above: Option<Amount>,
    /// Asks for consent before resources above the price limit are acquired.
    pub approval: Approval,
    /// Credentials to store, with consent, so that the agent can enforce a deadline unattended.
    pub secrets: BTreeMap<String, SecretString>,
}

/// The options of `down`.
#[derive(Debug, Clone, Copy, Default)]
pub struct DownOptions {
    /// Keep the data volumes on the hosts.
    pub keep_data: bool,
    /// Also remove what was installed on the hosts for the cluster.
    pub purge: bool,
    /// Also delete an adopted lease, which was not made for the cluster.
    pub release_lease: bool,
}

/// What needs consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A price.
    Price {
        /// The price of what is about to be acquired.
        price: Price,
        /// The limit it exceeds.
        above: Amount,
    },
    /// The first cluster at a place.
    Place(Site),
}

/// Asks for consent; an error means no.
type Asks = dyn Fn(&Ask) -> Result<()> + Send + Sync;

/// Asks for consent; without a callback nothing is asked.
#[derive(Clone, Default)]
pub struct Approval(Option<Arc<Asks>>);

impl Approval {
    pub(super) fn asked(&self) -> Option<Arc<Asks>> {
        self.0.clone()
    }

    /// Asks with this callback; an error means no.
    pub fn by(ask: impl Fn(&Ask) -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() { "asks" } else { "asks nobody" })
    }
}
