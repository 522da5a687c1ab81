//! The spec argument of a command, and the folders that the spec may send files from.

use std::path::{Path, PathBuf};

use super::app::App;
use crate::error::Result;
use crate::providers;
use crate::spec::{self, Allowed, Loaded};

/// The spec, and the folders that it may send files from.
#[derive(Debug, clap::Args)]
pub(crate) struct SpecArgs {
    /// The spec file; cluster.yml where there is no cluster.yaml
    #[arg(value_name = "FILE", default_value_os_t = usual(Path::new("")))]
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

/// The usual names of a spec; the first that is there is read.
const NAMES: [&str; 2] = ["cluster.yaml", "cluster.yml"];

/// The spec that is in a folder, if it has one of the usual names.
pub(crate) fn in_folder(folder: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// The spec of a folder, or where one would be under the first of the usual names.
fn usual(folder: &Path) -> PathBuf {
    in_folder(folder).unwrap_or_else(|| folder.join(NAMES[0]))
}

impl SpecArgs {
    /// Loads the spec; changes nothing.
    pub(crate) fn load(&self, app: &App) -> Result<Loaded> {
        let [first, second] = NAMES.map(Path::new);
        if self.spec == first && first.is_file() && second.is_file() {
            app.ui.status(format!("{} is read, and {} beside it is not", first.display(), second.display()));
        }
        let home = app.user_environment().home;
        let allowed = Allowed { paths: &self.allow_path, mounts: &self.allow_mount, home: Some(&home) };
        let mut loaded = spec::load(&self.spec, allowed, &providers::find)?;
        spec::with_whole_paths(&mut loaded, &home, self.folder(), &providers::find)?;
        Ok(loaded)
    }

    /// The folder of the spec; empty where that is the working folder.
    pub(crate) fn folder(&self) -> &Path {
        self.spec.parent().unwrap_or(Path::new(""))
    }
}
