//! All credentials of a cluster with services, and the files that hosts get of them.

use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use super::{TOKEN_LENGTH, ensure_ray_token};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::playbook::StageFile;
use crate::state::way_to_write;
use crate::util::{fs, random};

/// Prometheus' user.
pub const PROMETHEUS_USER: &str = "gpucl";
/// Grafana's user.
pub const GRAFANA_USER: &str = "admin";
/// bcrypt reads no more than 72 bytes of a password.
const PASSWORD_LENGTH: usize = 40;
/// Each step doubles what one guess costs; Prometheus asks it of itself once for each password that it sees.
const BCRYPT_COST: u32 = 10;

/// All credentials of a cluster: one file each in the `secrets` folder of the cluster's state.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// Ray's token.
    pub ray_token: SecretString,
    /// The object store's access key.
    pub object_store_user: SecretString,
    /// The object store's secret key.
    pub object_store_password: SecretString,
    /// Grafana's password of `admin`.
    pub grafana_password: SecretString,
    /// Prometheus' password of `gpucl`.
    pub prometheus_password: SecretString,
    /// The bcrypt hash of that password: kept, since each making of it gives another.
    pub prometheus_hash: SecretString,
    /// Jupyter's token.
    pub jupyter_token: SecretString,
}

/// Reads the cluster's credentials, or makes those that are not there yet.
pub fn ensure_secrets(cluster_folder: &Path) -> Result<Secrets> {
    let ray_token = ensure_ray_token(cluster_folder)?;
    let random = |name: &str, length: usize| ensure(cluster_folder, name, &|| random::letters(length));
    let prometheus_password = random("prometheus_password", PASSWORD_LENGTH)?;
    let prometheus_hash = ensure(cluster_folder, "prometheus_hash", &|| {
        bcrypt::hash(prometheus_password.expose_secret(), BCRYPT_COST)
            .doing(ErrorKind::Internal, || "hash the password of Prometheus".to_owned())
    })?;
    let is_of_password = bcrypt::verify(prometheus_password.expose_secret(), prometheus_hash.expose_secret());
    if !is_of_password.unwrap_or(false) {
        let path = path(cluster_folder, "prometheus_hash");
        return Err(Error::new(ErrorKind::State, "read the cluster's credentials")
            .because("the hash of Prometheus' password is of another password")
            .hint(format!("remove it, and it is made anew: rm {}", path.display())));
    }
    Ok(Secrets {
        ray_token,
        object_store_user: random("object_store_user", 20)?,
        object_store_password: random("object_store_password", PASSWORD_LENGTH)?,
        grafana_password: random("grafana_password", PASSWORD_LENGTH)?,
        prometheus_password,
        prometheus_hash,
        jupyter_token: random("jupyter_token", TOKEN_LENGTH)?,
    })
}

/// Where a credential lies, in the folder of the cluster's state.
fn path(cluster_folder: &Path, name: &str) -> std::path::PathBuf {
    cluster_folder.join("secrets").join(name)
}

/// Reads one credential, or makes it.
fn ensure(cluster_folder: &Path, name: &str, make: &dyn Fn() -> Result<String>) -> Result<SecretString> {
    let path = path(cluster_folder, name);
    match fs::read_text_within(&path, fs::RECORD_LIMIT) {
        Ok(text) if !text.trim().is_empty() => return Ok(SecretString::from(text.trim().to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).doing(ErrorKind::State, || format!("read the cluster's {name}")),
    }
    let secret = SecretString::from(make()?);
    let doing = || format!("write the cluster's {name} to {}", path.display());
    let write = || -> std::io::Result<()> {
        path.parent().map_or(Ok(()), fs::create_private_dir)?;
        fs::write_atomic(&path, secret.expose_secret().as_bytes(), 0o600)
    };
    write()
        .map_err(|error| Error::new(ErrorKind::State, doing()).caused_by(&error).hint(way_to_write(&path, &error)))?;
    Ok(secret)
}

/// The most that a file with credentials of a store may hold.
const CREDENTIALS_LIMIT: u64 = 64 << 10;

/// Reads the user's credentials of a store that exists, in the form of `~/.aws/credentials`.
pub fn external_credentials(path: &str) -> Result<SecretString> {
    let doing = || format!("read the credentials in {path}");
    let text = fs::read_text_within(Path::new(path), CREDENTIALS_LIMIT).doing(ErrorKind::Spec, doing)?;
    let has = |key: &str| {
        text.lines().any(|line| {
            line.split_once('=').is_some_and(|(name, value)| name.trim() == key && !value.trim().is_empty())
        })
    };
    if !text.lines().any(|line| line.trim() == "[default]") {
        return Err(Error::new(ErrorKind::Spec, doing()).because("it has no section [default]"));
    }
    for key in ["aws_access_key_id", "aws_secret_access_key"] {
        if !has(key) {
            return Err(Error::new(ErrorKind::Spec, doing()).because(format!("it has no {key}")));
        }
    }
    Ok(SecretString::from(text))
}

impl Secrets {
    /// Credentials that are none, for renderings that are only looked at.
    pub fn placeholders() -> Self {
        let stand_in = |name: &str| SecretString::from(format!("the {name} of the cluster; up makes it"));
        Self {
            ray_token: stand_in("token"),
            object_store_user: stand_in("access key"),
            object_store_password: stand_in("secret key"),
            grafana_password: stand_in("password"),
            prometheus_password: stand_in("password"),
            prometheus_hash: stand_in("hash"),
            jupyter_token: stand_in("token"),
        }
    }

    /// The files of these names, below `secrets/` in a host's folder.
    ///
    /// Containers run as many users, so each file can be read by all; the folder above it is root's alone, and a container
    /// sees no more of it than the single files that are mounted.
    pub fn files(&self, names: &[&str], external: Option<&SecretString>) -> Vec<StageFile> {
        let mut files = Vec::new();
        for name in names {
            let text = match (*name, external) {
                ("aws_credentials", Some(external)) => external.expose_secret().to_owned(),
                (name, _) => self.text(name),
            };
            files.push(StageFile { path: format!("secrets/{name}"), mode: 0o444, bytes: text.into_bytes() });
        }
        files
    }

    fn text(&self, name: &str) -> String {
        let (user, password) = (self.object_store_user.expose_secret(), self.object_store_password.expose_secret());
        match name {
            "object_store_user" => user.to_owned(),
            "object_store_password" => password.to_owned(),
            "grafana_password" => self.grafana_password.expose_secret().to_owned(),
            "prometheus_password" => self.prometheus_password.expose_secret().to_owned(),
            "jupyter_token" => self.jupyter_token.expose_secret().to_owned(),
            "aws_credentials" => {
                format!("[default]\naws_access_key_id = {user}\naws_secret_access_key = {password}\n")
            }
            "prometheus_web.yml" => {
                format!("basic_auth_users:\n  {PROMETHEUS_USER}: \"{}\"\n", self.prometheus_hash.expose_secret())
            }
            // Ray's own form of headers for its calls to Prometheus.
            "prometheus_headers" => {
                let basic = base64(&format!("{PROMETHEUS_USER}:{}", self.prometheus_password.expose_secret()));
                format!("{{\"Authorization\": \"Basic {basic}\"}}")
            }
            _ => self.ray_token.expose_secret().to_owned(),
        }
    }
}

/// Base64 on one line.
fn base64(text: &str) -> String {
    crate::playbook::base64(text.as_bytes()).replace('\n', "")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn credentials_are_made_once_each_another_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let first = ensure_secrets(folder.path()).unwrap();
        let again = ensure_secrets(folder.path()).unwrap();
        let texts = |secrets: &Secrets| {
            [
                &secrets.ray_token,
                &secrets.object_store_user,
                &secrets.object_store_password,
                &secrets.grafana_password,
                &secrets.prometheus_password,
                &secrets.prometheus_hash,
                &secrets.jupyter_token,
            ]
            .map(|secret| secret.expose_secret().to_owned())
        };
        assert_eq!(texts(&first), texts(&again));
        let different: std::collections::BTreeSet<String> = texts(&first).into();
        assert_eq!(different.len(), 7);
        for entry in std::fs::read_dir(folder.path().join("secrets")).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_hash_of_another_password_is_told() {
        let folder = tempfile::tempdir().unwrap();
        ensure_secrets(folder.path()).unwrap();
        fs_err::write(folder.path().join("secrets/prometheus_password"), "another").unwrap();
        let error = ensure_secrets(folder.path()).unwrap_err();
        assert!(error.hints()[0].contains("rm "), "{error}");
    }

    #[test]
    fn credentials_of_a_store_that_exists_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials").display().to_string();
        assert!(external_credentials(&path).is_err());
        fs_err::write(&path, "[default]\naws_access_key_id = A\n").unwrap();
        assert!(external_credentials(&path).unwrap_err().to_string().contains("aws_secret_access_key"));
        fs_err::write(&path, "[default]\naws_access_key_id = A\naws_secret_access_key = B\n").unwrap();
        let external = external_credentials(&path).unwrap();
        let files = Secrets::placeholders().files(&["aws_credentials"], Some(&external));
        assert_eq!(files[0].bytes, external.expose_secret().as_bytes());
    }
}
