//! Files of this machine that the nodes of a cluster have: what they are, and how they are packed.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::ray::files_of;
use crate::runtime::project::Bundle;
use crate::spec::{FileSpec, Spec};
use crate::util::{digest, human};

/// The most that one entry of `files` may send, in bytes.
const MOST: u64 = 1 << 30;
/// The files of one entry, with their paths on this machine.
#[derive(Debug, Clone)]
pub(super) struct LocalFiles {
    pub(super) bundle: Bundle,
    paths: Vec<PathBuf>,
}

/// Reads what the spec sends: blocks on disk reads.
pub(super) fn read(spec: &Spec, events: &Bus) -> Result<Vec<LocalFiles>> {
    let sent = spec.files.iter().filter_map(|file| Some((file, Path::new(file.source.as_deref()?))));
    sent.map(|(file, source)| read_one(file, source, events)).collect()
}

fn read_one(file: &FileSpec, source: &Path, events: &Bus) -> Result<LocalFiles> {
    let doing = || format!("read `{}`, which is sent to {}", source.display(), file.to);
    let failed = |error: std::io::Error| Error::new(ErrorKind::Usage, doing()).caused_by(&error);
    let kind = fs_err::metadata(source).map_err(failed)?;
    let mut listed = Vec::new();
    if kind.is_dir() {
        let (files, skipped) = files_of(source).map_err(|error| error.while_doing(doing()))?;
        for what in skipped {
            events.warn(format!("not sent to {}: {what}", file.to));
        }
        // Folders such as `.ssh` and `.aws` are not for hosts, wherever the spec is.
        let hidden = |name: &str| name.rsplit_once('/').is_some_and(|(folder, _)| folder.split('/').any(is_hidden));
        listed.extend(files.into_iter().filter(|file| !hidden(&file.name)).map(|file| (file.name, file.path)));
    } else {
        listed.push((String::new(), source.to_owned()));
    }
    let (mut entries, mut paths, mut total) = (Vec::new(), Vec::new(), 0);
    for (name, path) in listed {
        let data = fs_err::metadata(&path).map_err(failed)?;
        total += data.len();
        if total > MOST {
            return Err(Error::new(ErrorKind::Usage, doing())
                .because(format!("it has more than {}", human::bytes(MOST)))
                .hint("list what is not needed in .gitignore, or give it to the hosts as a data set: `data:`"));
        }
        let mode = if data.permissions().mode() & 0o111 != 0 { 0o755 } else { 0o644 };
        entries.push(json!([name, data.len(), data.mtime(), mode, digest::of_file(&path).map_err(failed)?]));
        paths.push(path);
    }
    let list = json!({ "to": file.to, "files": entries }).to_string();
    Ok(LocalFiles { bundle: Bundle { to: file.to.clone(), list }, paths })
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

impl LocalFiles {
    /// The list and the wanted files, by their numbers in it, as a tar file for `fill.py take`.
    pub(super) fn packed(&self, wanted: impl Iterator<Item = usize>, into: impl std::io::Write) -> std::io::Result<()> {
        let mut archive = tar::Builder::new(into);
        let mut header = tar::Header::new_gnu();
        header.set_size(self.bundle.list.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, "list", self.bundle.list.as_bytes())?;
        for number in wanted {
            let Some(path) = self.paths.get(number) else { continue };
            archive.append_file(number.to_string(), fs_err::File::open(path)?.file_mut())?;
        }
        archive.into_inner()?.flush()
    }

    /// How many files there are.
    pub(super) fn count(&self) -> usize {
        self.paths.len()
    }
}
