//! The spec argument of a command, and the folders that the spec may send files from.

use std::path::PathBuf;

use crate::error::Result;
use crate::providers;
use crate::spec::{self, Loaded};

/// The spec, and the folders that it may send files from.
#[derive(Debug, clap::Args)]
pub(crate) struct SpecArgs {
    /// The spec file
    #[arg(value_name = "FILE", default_value = "cluster.yaml")]
    pub(crate) spec: PathBuf,
    /// Let the spec send files from this folder as well as from its own; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) allow_path: Vec<PathBuf>,
}

impl SpecArgs {
    /// Loads the spec; changes nothing.
    pub(crate) fn load(&self) -> Result<Loaded> {
        spec::load(&self.spec, &self.allow_path, &providers::find)
    }
}
