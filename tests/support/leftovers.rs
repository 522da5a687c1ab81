//! Leftovers in the folders that all programs of a machine share.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The entries at one moment.
pub(crate) struct SharedFolders {
    before: BTreeSet<PathBuf>,
}

impl SharedFolders {
    /// Lists the current entries.
    pub(crate) fn now() -> Self {
        Self { before: ours() }
    }

    /// Entries that are new since then, except the folders of short paths of other tests' clusters, which run beside
    /// the one with this home.
    pub(crate) fn new_since(&self, home: &Path) -> Vec<PathBuf> {
        let of_another = |path: &PathBuf| {
            std::fs::read_link(path.join("r"))
                .is_ok_and(|to| !to.starts_with(home) && to.parent().is_some_and(Path::exists))
        };
        let look = || ours().difference(&self.before).filter(|path| !of_another(path)).cloned().collect::<Vec<_>>();
        let found = look();
        if found.is_empty() {
            return found;
        }
        // One that was just made has no link yet.
        std::thread::sleep(std::time::Duration::from_secs(1));
        look().into_iter().filter(|path| found.contains(path)).collect()
    }
}

/// The folders of short paths of nodes whose files are below this folder.
pub(crate) fn short_folders(home: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/tmp").into_iter().flatten().flatten().map(|entry| entry.path());
    let leads_home = |path: &PathBuf| std::fs::read_link(path.join("r")).is_ok_and(|to| to.starts_with(home));
    entries.filter(leads_home).collect()
}

/// Entries that Ray or gpucl may have left, except the folders of tests, which are removed automatically.
fn ours() -> BTreeSet<PathBuf> {
    let me = rustix::process::getuid().as_raw();
    let mut folders = vec![std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    folders.dedup();
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    entries
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().to_lowercase();
            let speaks = ["ray", "gpucl", "gcs", "plasma"].iter().any(|word| name.contains(word));
            let of_a_test = name.starts_with("gt-") || name.starts_with("gpucl-test-");
            speaks && !of_a_test && entry.metadata().is_ok_and(|metadata| metadata.uid() == me)
        })
        .map(|entry| entry.path())
        .collect()
}
