//! Which cluster a command means, and how to talk to it.

use crate::cli::app::App;
use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::ray::{Access, Client};

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

    /// The ways into it for other programs; an error when the cluster does not run.
    pub(crate) fn access(&self) -> Result<Access> {
        Err(Error::new(ErrorKind::Internal, "reach the cluster"))
    }

    /// The file in which the portal's addresses are kept.
    pub(crate) fn portal_file(&self) -> Result<std::path::PathBuf> {
        Err(Error::new(ErrorKind::Internal, "find the cluster's state folder"))
    }

    /// The cluster's token.
    pub(crate) fn token(&self) -> Result<secrecy::SecretString> {
        Err(Error::new(ErrorKind::Internal, "read the cluster's token"))
    }
}
