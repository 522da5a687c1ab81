//! What was deployed and served: the configurations of each application, oldest first.

use std::collections::{BTreeMap, BTreeSet};
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
    /// The applications of the spec at the last `up`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    of_spec: BTreeSet<String>,
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
                Ok(Self { version: VERSION, applications: BTreeMap::new(), of_spec: BTreeSet::new(), path })
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

    /// The last configuration that served.
    pub(super) fn last(&self, name: &str) -> Option<&Value> {
        self.applications.get(name)?.last()
    }

    /// All configurations.
    pub(super) fn configurations(&self) -> impl Iterator<Item = &Value> {
        self.applications.values().flatten()
    }

    /// Forgets all that was deployed after this configuration, which is now another where its secrets have other values.
    pub(super) fn go_back_to(&mut self, name: &str, configuration: &Value, as_it_is: &Value) -> Result<()> {
        let Some(all) = self.applications.get_mut(name) else { return Ok(()) };
        if let Some(at) = all.iter().rposition(|one| one == configuration) {
            all.truncate(at);
            all.push(as_it_is.clone());
        }
        self.write()
    }

    /// The applications of the spec at the last `up`.
    pub(super) fn of_spec(&self) -> &BTreeSet<String> {
        &self.of_spec
    }

    /// Keeps which applications are of the spec.
    pub(super) fn set_of_spec(&mut self, names: BTreeSet<String>) -> Result<()> {
        if self.of_spec == names {
            return Ok(());
        }
        self.of_spec = names;
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
        history.go_back_to("food", &json!(2), &json!(2)).unwrap();
        assert_eq!(history.before("food", Some(&json!(2))), Some(&json!(1)));
        history.go_back_to("food", &json!(1), &json!(1)).unwrap();
        assert_eq!(history.before("food", Some(&json!(1))), None);
        assert_eq!(history.before("other", None), None);
    }
}
