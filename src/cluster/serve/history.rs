//! What was deployed and served: the configurations of each application, oldest first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Doing as _, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, read_text_within, write_atomic};

/// The version of the file.
const VERSION: u32 = 1;
/// How many configurations of an application are kept.
const KEPT: usize = 10;

/// The record of a cluster, in the folder of its state.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct History {
    version: u32,
    applications: BTreeMap<String, Vec<Value>>,
    #[serde(skip)]
    path: PathBuf,
}

impl History {
    /// Reads the record; an empty one if there is none.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("serve.json");
        let doing = || format!("read {}", path.display());
        match read_text_within(&path, RECORD_LIMIT) {
            Ok(text) => {
                let read: Self = serde_json::from_str(&text).doing(ErrorKind::State, doing)?;
                Ok(Self { path, ..read })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self { version: VERSION, applications: BTreeMap::new(), path })
            }
            Err(error) => Err(error).doing(ErrorKind::State, doing),
        }
    }

    /// Adds a configuration that serves, unless it is the last one.
    pub(super) fn add(&mut self, name: &str, configuration: &Value) -> Result<()> {
        let all = self.applications.entry(name.to_owned()).or_default();
        if all.last() == Some(configuration) {
            return Ok(());
        }
        all.push(configuration.clone());
        let more = all.len().saturating_sub(KEPT);
        all.drain(..more);
        self.write()
    }

    /// The last configuration that served and is not this one.
    pub(super) fn before(&self, name: &str, current: Option<&Value>) -> Option<&Value> {
        self.applications.get(name)?.iter().rev().find(|configuration| Some(*configuration) != current)
    }

    /// Forgets all that was deployed after this configuration.
    pub(super) fn go_back_to(&mut self, name: &str, configuration: &Value) -> Result<()> {
        let Some(all) = self.applications.get_mut(name) else { return Ok(()) };
        if let Some(at) = all.iter().rposition(|one| one == configuration) {
            all.truncate(at + 1);
        }
        self.write()
    }

    fn write(&self) -> Result<()> {
        let text = serde_json::to_vec(self).doing(ErrorKind::Internal, || "write what was deployed".to_owned())?;
        write_atomic(&self.path, &text, 0o600).doing(ErrorKind::State, || format!("write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollback_goes_back_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::read(folder.path()).unwrap();
        for version in [1, 2, 2, 3] {
            history.add("food", &json!(version)).unwrap();
        }
        let mut history = History::read(folder.path()).unwrap();
        assert_eq!(history.before("food", Some(&json!(3))), Some(&json!(2)));
        // What failed is not among them: the last one that served is before it.
        assert_eq!(history.before("food", Some(&json!("failed"))), Some(&json!(3)));
        history.go_back_to("food", &json!(2)).unwrap();
        assert_eq!(history.before("food", Some(&json!(2))), Some(&json!(1)));
        history.go_back_to("food", &json!(1)).unwrap();
        assert_eq!(history.before("food", Some(&json!(1))), None);
        assert_eq!(history.before("other", None), None);
    }
}
