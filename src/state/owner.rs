//! The owner: made once per user.

use super::Paths;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::Owner;
use crate::util::{fs, random};

/// Reads the owner, or makes one.
pub fn owner(paths: &Paths) -> Result<Owner> {
    let path = paths.owner();
    let doing = || format!("read who owns the clusters from {}", path.display());
    match fs_err::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|error| {
            Error::new(ErrorKind::State, doing())
                .caused_by(&error)
                .hint("put back the eight characters that stood there; without them gpucl cannot tell its own things")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let letters = random::letters(8)?;
            let owner: Owner = letters.parse().doing(ErrorKind::Internal, || "make an owner".to_owned())?;
            let make = || -> std::io::Result<()> {
                fs::create_private_dir(&paths.config)?;
                fs::write_atomic(&path, format!("{owner}\n").as_bytes(), 0o600)
            };
            make().map_err(|error| {
                Error::new(ErrorKind::State, format!("write down who owns the clusters in {}", path.display()))
                    .caused_by(&error)
                    .hint(format!(
                        "make {} writable, or set XDG_CONFIG_HOME to a folder that is",
                        paths.config.display()
                    ))
            })?;
            Ok(owner)
        }
        Err(error) => Err(Error::new(ErrorKind::State, doing()).caused_by(&error)),
    }
}
