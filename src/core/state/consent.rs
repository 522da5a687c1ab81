//! What the user has accepted of specs and folders of others: digests, by what asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Paths;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::util::{digest, fs};

/// The version of the file.
const VERSION: u32 = 1;

/// What was accepted of one file or folder.
#[derive(Serialize, Deserialize)]
struct Accepted {
    v: u32,
    /// The absolute path of what asked.
    of: String,
    digests: BTreeSet<String>,
}

/// One file for each that asked: two commands at once never write each other's.
fn file(paths: &Paths, of: &Path) -> PathBuf {
    paths.state.join("accepted").join(format!("{}.json", digest::whole(of.as_os_str().as_encoded_bytes())))
}

/// The digests of all that was accepted of this file or folder.
///
/// # Errors
/// If the record cannot be read: what is not known to be accepted is never taken for it.
pub fn accepted(paths: &Paths, of: &Path) -> Result<BTreeSet<String>> {
    let path = file(paths, of);
    let doing = || format!("read {}", path.display());
    match fs::read_text_within(&path, fs::RECORD_LIMIT) {
        // Where a state cannot be at all, what writes it says so.
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(BTreeSet::new())
        }
        Err(error) => Err(error).doing(ErrorKind::State, doing),
        Ok(text) => {
            let kept: Accepted = serde_json::from_str(&text).doing(ErrorKind::State, doing)?;
            // Written by a newer gpucl, or of something else: nothing is assumed, and it is asked again.
            let is_it = kept.v == VERSION && kept.of == of.display().to_string();
            Ok(if is_it { kept.digests } else { BTreeSet::new() })
        }
    }
}

/// Remembers these digests, in place of earlier ones: what a spec no longer asks for is asked again when it comes back.
pub fn accept(paths: &Paths, of: &Path, digests: BTreeSet<String>) -> Result<()> {
    let path = file(paths, of);
    let doing = || format!("write {}", path.display());
    let kept = Accepted { v: VERSION, of: of.display().to_string(), digests };
    let text = serde_json::to_string_pretty(&kept).doing(ErrorKind::Internal, doing)?;
    path.parent().map_or(Ok(()), fs::create_private_dir).doing(ErrorKind::State, doing)?;
    fs::write_atomic(&path, text.as_bytes(), 0o600).doing(ErrorKind::State, doing)
}
