//! The API calls, one function each. Here the cloud is a folder and a machine is a folder in it, `<name>~<id>`; replace
//! it with a client of the real API.

use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;

use crate::util::{fs, random};

/// The available sizes with their processors.
pub(super) const SIZES: [(&str, u32); 2] = [("small", 2), ("large", 8)];

/// A machine as reported by the cloud.
pub(super) struct Machine {
    pub(super) id: String,
    pub(super) name: String,
}

/// A client of one region.
pub(super) struct Api {
    folder: PathBuf,
}

impl Api {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// All machines of the account, of any owner.
    pub(super) async fn list(&self) -> Result<Vec<Machine>> {
        // An await point where the call can be dropped, as in a call over a network.
        tokio::task::yield_now().await;
        let entries = match fs_err::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut machines = Vec::new();
        for entry in entries {
            let file = entry?.file_name();
            if let Some((name, id)) = file.to_str().and_then(|file| file.split_once('~')) {
                machines.push(Machine { id: id.to_owned(), name: name.to_owned() });
            }
        }
        Ok(machines)
    }

    /// Creates a machine. It has its name from the start; two may have the same name, as in most clouds.
    pub(super) async fn create(&self, name: &str, size: &str) -> Result<Machine> {
        if !SIZES.iter().any(|(known, _)| *known == size) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("there is no size `{size}`")));
        }
        let id = random::letters(12).map_err(Error::other)?;
        fs::create_private_dir(&self.folder.join(format!("{name}~{id}")))?;
        tokio::task::yield_now().await;
        Ok(Machine { id, name: name.to_owned() })
    }

    /// The folder of a machine.
    pub(super) async fn find(&self, id: &str) -> Result<PathBuf> {
        let found = self.list().await?.into_iter().find(|machine| machine.id == id);
        let gone = || Error::new(ErrorKind::NotFound, format!("there is no machine {id}"));
        found.map(|machine| self.folder.join(format!("{}~{id}", machine.name))).ok_or_else(gone)
    }

    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        fs_err::remove_dir_all(self.find(id).await?)?;
        // Also removes the parent folders of the last machine.
        for empty in self.folder.ancestors().take(3) {
            if fs_err::remove_dir(empty).is_err() {
                break;
            }
        }
        Ok(())
    }
}
