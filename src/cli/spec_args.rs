//! The spec that a command is given, and what it may send.

use std::path::PathBuf;

use crate::error::Result;
use crate::providers;
use crate::spec::{self, Loaded};

/// Which spec is meant, and from where it may send files.
#[derive(Debug, clap::Args)]
pub(crate) struct SpecArgs {
    /// The spec
    #[arg(value_name = "FILE", default_value = "cluster.yaml")]
    pub(crate) spec: PathBuf,
    /// Let the spec send files from this folder as well as from its own; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(crate) allow_path: Vec<PathBuf>,
}

impl SpecArgs {
    /// Loads it; changes nothing.
    pub(crate) fn load(&self) -> Result<Loaded> {
        spec::load(&self.spec, &self.allow_path, &providers::find)
    }
}
