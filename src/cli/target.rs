//! Which cluster a command means, and how to talk to it.

use crate::cli::app::App;
use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::ray::Client;

/// A cluster that a command works on.
pub(crate) struct Target {
    /// Its name.
    pub(crate) name: ClusterName,
}

impl Target {
    /// Finds the cluster meant: `-c`, `GPUCL_CLUSTER`, `./cluster.yaml`, else the only one.
    pub(crate) fn choose(_app: &App) -> Result<Self> {
        Err(Error::new(ErrorKind::Internal, "choose a cluster"))
    }

    /// A client of its Ray, with its token; an error when the cluster does not run.
    pub(crate) fn client(&self) -> Result<Client> {
        Err(Error::new(ErrorKind::Internal, "reach the cluster"))
    }
}
