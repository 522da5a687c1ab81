//! The packages of what served, kept on this machine for a rollback: Ray removes one some minutes after nothing uses it
//! any more, and loses all with its head (ray 2.60.0).

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::{History, Served};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::ray::{ModuleSource, Package};
use crate::util::fs::write_atomic;

/// The names of the packages that Ray has for a configuration.
fn names(configuration: &Value) -> impl Iterator<Item = &str> {
    let environment = &configuration["runtime_env"];
    let modules = environment["py_modules"].as_array().into_iter().flatten();
    let uris = modules.chain([&environment["working_dir"]]).filter_map(Value::as_str);
    uris.filter_map(|uri| uri.strip_prefix("gcs://")).filter(|name| !name.contains('/'))
}

impl Served<'_> {
    /// Keeps a package as long as the history has a configuration with it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, package: &Package) -> Result<()> {
        let path = self.kept().join(package.name());
        if path.exists() {
            return Ok(());
        }
        let doing = || format!("keep the package {} for a rollback", package.name());
        fs_err::create_dir_all(self.kept()).doing(ErrorKind::State, doing)?;
        write_atomic(&path, package.bytes(), 0o600).doing(ErrorKind::State, doing)
    }

    /// Uploads again what Ray has lost of a configuration's packages. Without them Serve would fail, and refuse the same
    /// packages for the next ten minutes, also where they are uploaded then.
    pub(super) async fn give_packages(&self, name: &str, configuration: &Value) -> Result<()> {
        for package in names(configuration) {
            if self.client.package_exists(package).await? {
                continue;
            }
            let path = self.kept().join(package);
            let doing = || format!("read {}", path.display());
            let reading = path.clone();
            let read = move || match reading.extension() {
                Some(end) if end == "whl" => Package::of_module(&ModuleSource::Wheel(reading)),
                _ => Package::of_zip(&reading),
            };
            let read = match path.exists() {
                true => tokio::task::spawn_blocking(read).await.doing(ErrorKind::Internal, doing)?.ok(),
                false => None,
            };
            let Some(read) = read.filter(|read| read.name() == package) else {
                let path = configuration["import_path"].as_str().unwrap_or("IMPORT_PATH");
                let again = self.command(&format!("serve deploy {path} --name {name}"));
                return Err(Error::new(ErrorKind::NotFound, format!("roll {name} back"))
                    .because("Ray has removed its files, and this machine does not have them")
                    .hint(format!("{again}   # in the folder that has them")));
            };
            self.client.upload(&read, None).await?;
        }
        Ok(())
    }

    /// Removes the packages that no configuration of the history has.
    pub(super) fn sweep_packages(&self, history: &History) {
        let wanted: BTreeSet<&str> = history.configurations().flat_map(names).collect();
        for entry in fs_err::read_dir(self.kept()).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_none_or(|name| !wanted.contains(name)) {
                // One that stays takes room, and nothing else.
                let _ = fs_err::remove_file(entry.path());
            }
        }
    }

    /// Where they are.
    fn kept(&self) -> PathBuf {
        self.folder.join("serve")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn packages_are_those_that_ray_has() {
        let environment = json!({
            "working_dir": "gcs://_ray_pkg_1.zip",
            "py_modules": ["gcs://own.whl", "https://example.org/a.zip", "gcs://../token"],
        });
        let found: Vec<_> = names(&json!({ "runtime_env": environment })).map(str::to_owned).collect();
        assert_eq!(found, ["own.whl", "_ray_pkg_1.zip"]);
        let bare = json!({"runtime_env": {}});
        assert_eq!(names(&bare).count(), 0);
    }
}
