//! The playbooks and templates in the working folder, which may be a stranger's: used only as they were accepted.

use std::path::{Path, PathBuf};

use crate::error::{Doing as _, ErrorKind, Result};
use crate::render;
use crate::spec::{Ask, Class};
use crate::state::{Paths, accepted};
use crate::util::fs::resolve;

/// The folder of data files in the working folder.
pub(crate) const DATA_FOLDER: &str = ".gpucl";

/// What is accepted: the folder, by its real path.
pub(crate) fn subject(here: &Path) -> Result<PathBuf> {
    real(&here.join(DATA_FOLDER))
}

/// That they are used in place of gpucl's own; `None` if there are none.
pub(crate) fn asked(here: &Path) -> Result<Option<Ask>> {
    let files = render::own_files(&here.join(DATA_FOLDER))?;
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let what = format!("by {}", names.join(", "));
    Ok((!files.is_empty()).then(|| Ask::new(Class::Replaces, &format!("./{DATA_FOLDER}"), &what, true, &files)))
}

/// Whether there are none, or they were accepted as they are now.
pub(crate) fn are_accepted(paths: &Paths, here: &Path) -> Result<bool> {
    let Some(ask) = asked(here)? else { return Ok(true) };
    Ok(accepted(paths, &subject(here)?)?.contains(&ask.digest))
}

/// The path with its links followed, or as it is where it does not exist.
///
/// # Errors
/// If it cannot be followed.
pub(crate) fn real(path: &Path) -> Result<PathBuf> {
    let doing = || format!("find {}", path.display());
    match resolve(path).doing(ErrorKind::Usage, doing)? {
        Some(path) => Ok(path),
        None => std::path::absolute(path).doing(ErrorKind::Usage, doing),
    }
}
