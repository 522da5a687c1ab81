//! The owner: made once per user.

use std::io::{ErrorKind as Io, Write as _};

use super::Paths;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::Owner;
use crate::util::{fs, random};

/// Reads the owner, or makes one.
pub fn owner(paths: &Paths) -> Result<Owner> {
    // Two first commands at the same time: one makes the file, the other finds it.
    for _ in 0..2 {
        if let Some(owner) = known_owner(paths)? {
            return Ok(owner);
        }
        let owner: Owner = random::letters(8)?.parse().doing(ErrorKind::Internal, || "make an owner".to_owned())?;
        match write(paths, &owner) {
            Ok(()) => return Ok(owner),
            Err(error) if error.kind() == Io::AlreadyExists => {}
            Err(error) => {
                return Err(Error::new(
                    ErrorKind::State,
                    format!("write down who owns the clusters in {}", paths.owner().display()),
                )
                .caused_by(&error)
                .hint(format!(
                    "make {} writable, or set XDG_CONFIG_HOME to a folder that is",
                    paths.config.display()
                )));
            }
        }
    }
    Err(Error::new(ErrorKind::State, "make an owner").because("its file comes and goes"))
}

/// Reads the owner; `None` when there is none yet, and so nothing that is theirs. It changes nothing.
pub fn known_owner(paths: &Paths) -> Result<Option<Owner>> {
    let path = paths.owner();
    let doing = || format!("read who owns the clusters from {}", path.display());
    match fs::read_text_within(&path, fs::RECORD_LIMIT) {
        Ok(text) => text.trim().parse().map(Some).map_err(|error| {
            Error::new(ErrorKind::State, doing())
                .caused_by(&error)
                .hint("put back the eight characters that stood there; without them gpucl cannot tell its own things")
        }),
        Err(error) if error.kind() == Io::NotFound => Ok(None),
        Err(error) => Err(Error::new(ErrorKind::State, doing()).caused_by(&error)),
    }
}

/// Puts a whole file where there is none.
fn write(paths: &Paths, owner: &Owner) -> std::io::Result<()> {
    fs::create_private_dir(&paths.config)?;
    let mut file = tempfile::Builder::new().prefix(".gpucl-").tempfile_in(&paths.config)?;
    file.write_all(format!("{owner}\n").as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(paths.owner()).map_err(|error| error.error)?;
    fs::sync_folder(&paths.config)
}
