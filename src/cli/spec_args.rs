//! The spec argument of a command, and the folders that the spec may send files from.

use std::path::{Path, PathBuf};

use super::app::App;
use crate::error::Result;
use crate::providers;
use crate::spec::{self, Allowed, Loaded};

/// The spec, and the folders that it may send files from.
#[derive(Debug, clap::Args)]
pub(crate) struct SpecArgs {
    /// The spec file
    #[arg(value_name = "FILE", default_value = "cluster.yaml")]
    pub(crate) spec: PathBuf,
    /// Let the spec send files from this folder as well as from its own; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) allow_path: Vec<PathBuf>,
    /// Let the spec mount this folder of a host, although it is sensitive, such as `/etc`; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) allow_mount: Vec<String>,
    /// Accept what the spec asks for beyond an ordinary cluster: the digest of that list, which `gpucl plan` shows
    #[arg(long, value_name = "DIGEST")]
    pub(crate) accept: Option<String>,
}

impl SpecArgs {
    /// Loads the spec; changes nothing.
    pub(crate) fn load(&self, app: &App) -> Result<Loaded> {
        let allowed = Allowed { paths: &self.allow_path, mounts: &self.allow_mount };
        let mut loaded = spec::load(&self.spec, allowed, &providers::find)?;
        let home = app.user_environment().home;
        spec::with_whole_paths(&mut loaded, &home, self.folder(), &providers::find)?;
        Ok(loaded)
    }

    /// The folder of the spec; empty where that is the working folder.
    pub(crate) fn folder(&self) -> &Path {
        self.spec.parent().unwrap_or(Path::new(""))
    }
}
