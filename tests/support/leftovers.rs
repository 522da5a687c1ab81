//! The folders that all programs of a machine share, before and after.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// What was there.
pub(crate) struct SharedFolders {
    before: BTreeSet<PathBuf>,
}

impl SharedFolders {
    /// Looks at what is there now.
    pub(crate) fn now() -> Self {
        Self { before: ours() }
    }

    /// What came since, and is there still.
    pub(crate) fn new_since(&self) -> Vec<PathBuf> {
        ours().difference(&self.before).cloned().collect()
    }
}

/// What Ray or gpucl could have left there, but for the folders of tests, which go by themselves.
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
