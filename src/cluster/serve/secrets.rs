//! Secrets of applications: on the hosts for as long as an application uses them, and nowhere in Ray.
//!
//! An application has an id in the variable [`SECRETS`], and its processes find the values in a file of that name, as those
//! of jobs do. The id is made of the values and of a key that stays on this machine, so that an unchanged application keeps
//! its id. The names are kept for a rollback, whose values are read again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{History, Served};
use crate::cluster::settings::Settings;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::SECRETS;
use crate::ray::{ApplicationStatus, Serving};
use crate::spec::{ServeSpec, Spec};
use crate::util::fs::{RECORD_LIMIT, read_text_within, write_atomic};
use crate::util::{digest, random};

/// How much of a digest is an id: more than 120 bits.
const ID_LENGTH: usize = 32;

/// The names of secrets, by the variables that they become.
pub type SecretNames = BTreeMap<String, String>;
/// The values of secrets, by the variables that they become, each with its name.
pub type SecretValues = BTreeMap<String, (String, SecretString)>;

/// What was given, in the folder of the cluster's state; no value is in it.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    v: u32,
    /// What ids are made with.
    key: String,
    /// The names of each set, by its id.
    sets: BTreeMap<String, SecretNames>,
    /// The sets that may be on hosts.
    there: BTreeSet<String>,
}

impl Served<'_> {
    /// Puts secrets on the hosts; returns the id for the variable [`SECRETS`] of the applications that use them.
    ///
    /// # Errors
    /// When a host cannot be written.
    pub async fn give_secrets(&self, values: &SecretValues) -> Result<String> {
        let mut record = Record::read(self.folder)?;
        let (id, text) = record.set_of(values)?;
        let names = values.iter().map(|(variable, (name, _))| (variable.clone(), name.clone())).collect();
        record.sets.insert(id.clone(), names);
        record.there.insert(id.clone());
        record.write(self.folder)?;
        self.machines.set_job_secrets(&id, Some(&text)).await?;
        Ok(id)
    }

    /// The names of the secrets of a configuration.
    pub(super) fn names_of_secrets(&self, configuration: &Value) -> Result<SecretNames> {
        let Some(id) = id_of(configuration) else { return Ok(SecretNames::new()) };
        Ok(Record::read(self.folder)?.sets.remove(id).unwrap_or_default())
    }

    /// Removes from the hosts what no application uses any more; a failure is a warning.
    pub(super) async fn sweep_secrets(&self) {
        let swept = async {
            if !path(self.folder).exists() {
                return Ok(());
            }
            let (mut record, history) = (Record::read(self.folder)?, History::read(self.folder)?);
            let used = used(&self.client.serving().await?, &history);
            let over: Vec<String> = record.there.iter().filter(|id| !used.contains(*id)).cloned().collect();
            for id in over {
                self.machines.set_job_secrets(&id, None).await?;
                record.there.remove(&id);
                record.write(self.folder)?;
            }
            let of_history: BTreeSet<&str> = history.configurations().filter_map(id_of).collect();
            record.sets.retain(|id, _| record.there.contains(id) || of_history.contains(id.as_str()));
            record.write(self.folder)
        };
        if let Err(error) = swept.await {
            self.events.warn(format!("failed to {error}; the next `gpucl serve` command, or `down`, does it"));
        }
    }
}

/// The secrets of an application of a spec.
///
/// # Errors
/// If one is not stored.
pub(super) fn values_of(settings: &Settings, application: &ServeSpec) -> Result<SecretValues> {
    let vault = settings.vault();
    let names = application.secrets().into_iter();
    names.map(|(variable, name)| vault.secret(&name).map(|value| (variable, (name, value)))).collect()
}

/// Checks that all secrets of a spec's applications are stored.
///
/// # Errors
/// If one is not.
pub(in crate::cluster) fn check_secrets_of_spec(settings: &Settings, spec: &Spec) -> Result<()> {
    spec.serve.iter().try_for_each(|application| values_of(settings, application).map(drop))
}

/// The id of these secrets, without putting them anywhere; before any were given, one that nothing has.
pub(super) fn id_of_values(folder: &Path, values: &SecretValues) -> Result<String> {
    Record::read(folder)?.set_of(values).map(|(id, _)| id)
}

/// The ids that applications use: where the new configuration of one does not serve, its old one may, with its secrets.
fn used(serving: &Serving, history: &History) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (name, application) in &serving.applications {
        used.extend(application.deployed_app_config.as_ref().and_then(id_of).map(str::to_owned));
        if application.status != ApplicationStatus::Running {
            used.extend(history.last(name).and_then(id_of).map(str::to_owned));
        }
    }
    used
}

/// The id of the secrets of a configuration.
fn id_of(configuration: &Value) -> Option<&str> {
    configuration.get("runtime_env")?.get("env_vars")?.get(SECRETS)?.as_str()
}

fn path(folder: &Path) -> std::path::PathBuf {
    folder.join("serve_secrets.json")
}

impl Record {
    /// The id of a set, and the text of its file.
    fn set_of(&self, values: &SecretValues) -> Result<(String, SecretString)> {
        let texts: BTreeMap<&str, &str> =
            values.iter().map(|(variable, (_, value))| (variable.as_str(), value.expose_secret())).collect();
        let text = serde_json::to_string(&texts).doing(ErrorKind::Internal, || "write the secrets".to_owned())?;
        let text = SecretString::from(text);
        let whole = digest::whole(format!("{} {}", self.key, text.expose_secret()).as_bytes());
        Ok((whole[..ID_LENGTH].to_owned(), text))
    }

    fn read(folder: &Path) -> Result<Self> {
        let doing = || "read which applications have secrets".to_owned();
        match read_text_within(&path(folder), RECORD_LIMIT) {
            Ok(text) => serde_json::from_str(&text).doing(ErrorKind::State, doing),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self { v: 1, key: random::letters(ID_LENGTH)?, sets: BTreeMap::new(), there: BTreeSet::new() })
            }
            Err(error) => Err(error).doing(ErrorKind::State, doing),
        }
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let doing = || "write which applications have secrets".to_owned();
        let text = serde_json::to_vec(self).doing(ErrorKind::Internal, doing)?;
        write_atomic(&path(folder), &text, 0o600).doing(ErrorKind::State, doing)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The old version serves on while the new one fails, and starts tasks that need its secrets.
    #[test]
    fn the_secrets_of_what_serves_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::read(folder.path()).unwrap();
        let configuration = |id: &str| json!({"runtime_env": {"env_vars": {"GPUCL_SECRETS": id}}});
        history.add("food", &configuration("old")).unwrap();
        let serving = |status: &str| -> Serving {
            serde_json::from_value(
                json!({"applications": {"food": {"status": status, "deployed_app_config": configuration("new")}}}),
            )
            .unwrap()
        };
        let ids = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(used(&serving("DEPLOY_FAILED"), &history), ids(&["new", "old"]));
        assert_eq!(used(&serving("RUNNING"), &history), ids(&["new"]));
        assert_eq!(used(&Serving::default(), &history), ids(&[]));
    }
}
