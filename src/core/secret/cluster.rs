//! All credentials of a cluster with services, and the credential files sent to hosts.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};

use super::{TOKEN_LENGTH, ensure_ray_token};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::StageFile;
use crate::mlflow::Login;
use crate::state::way_to_write;
use crate::util::{fs, random};

/// The user name for Prometheus.
pub const PROMETHEUS_USER: &str = "gpucl";
/// The user name for Grafana.
pub const GRAFANA_USER: &str = "admin";
/// The user name for MLflow.
pub const MLFLOW_USER: &str = "gpucl";
/// The length of a password; bcrypt reads at most 72 bytes.
const PASSWORD_LENGTH: usize = 40;
/// Each step doubles the cost of a guess; Prometheus computes it once per distinct password.
const BCRYPT_COST: u32 = 10;

/// In place of the keys of a store that is not the cluster's own.
const THEIR_KEYS: &str = "[default]\n# the keys of the external store; up reads them from your credentials_file\n";

/// All credentials of a cluster, one file each in the `secrets` folder of the cluster's state.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// Ray's token.
    pub ray_token: SecretString,
    /// The object store's access key.
    pub object_store_user: SecretString,
    /// The object store's secret key.
    pub object_store_password: SecretString,
    /// What the certificate is made of with which the store's own parts know each other, where it has several.
    pub object_store_identity: SecretString,
    /// The password of [`GRAFANA_USER`].
    pub grafana_password: SecretString,
    /// The password of [`PROMETHEUS_USER`].
    pub prometheus_password: SecretString,
    /// The bcrypt hash of that password; stored, since hashing is salted and each result differs.
    pub prometheus_hash: SecretString,
    /// Jupyter's token.
    pub jupyter_token: SecretString,
    /// The password of [`MLFLOW_USER`].
    pub mlflow_password: SecretString,
    /// The keys of an external store, as sent to hosts instead of those of gpucl's own store.
    pub external: Option<SecretString>,
    /// The keys of the store that what is saved at the end goes to.
    pub at_end: Option<SecretString>,
    /// The login of an external MLflow server, for jobs.
    pub external_mlflow: Login,
}

impl Secrets {
    /// The credentials of a cluster that only has Ray's token.
    pub fn of_ray(ray_token: SecretString) -> Self {
        let none = || SecretString::from(String::new());
        Self {
            ray_token,
            object_store_user: none(),
            object_store_password: none(),
            object_store_identity: none(),
            grafana_password: none(),
            prometheus_password: none(),
            prometheus_hash: none(),
            jupyter_token: none(),
            mlflow_password: none(),
            external: None,
            at_end: None,
            external_mlflow: Login::Open,
        }
    }
}

/// Reads the cluster's credentials and creates missing ones.
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
            .because("the stored hash of Prometheus' password does not match the password")
            .hint(format!("remove it, and gpucl creates a new one: rm {}", path.display())));
    }
    Ok(Secrets {
        ray_token,
        object_store_user: random("object_store_user", 20)?,
        object_store_password: random("object_store_password", PASSWORD_LENGTH)?,
        object_store_identity: random("object_store_identity", PASSWORD_LENGTH)?,
        grafana_password: random("grafana_password", PASSWORD_LENGTH)?,
        prometheus_password,
        prometheus_hash,
        jupyter_token: random("jupyter_token", TOKEN_LENGTH)?,
        mlflow_password: random("mlflow_password", PASSWORD_LENGTH)?,
        external: None,
        at_end: None,
        external_mlflow: Login::Open,
    })
}

/// The path of a credential in the folder of the cluster's state.
fn path(cluster_folder: &Path, name: &str) -> std::path::PathBuf {
    cluster_folder.join("secrets").join(name)
}

/// Reads one credential, or creates it.
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

impl Secrets {
    /// Placeholders, for renderings that are only shown.
    pub fn placeholders() -> Self {
        let stand_in = |name: &str| SecretString::from(format!("the {name} of the cluster; created by up"));
        Self {
            ray_token: stand_in("token"),
            object_store_user: stand_in("access key"),
            object_store_password: stand_in("secret key"),
            object_store_identity: stand_in("identity"),
            grafana_password: stand_in("password"),
            prometheus_password: stand_in("password"),
            prometheus_hash: stand_in("hash"),
            jupyter_token: stand_in("token"),
            mlflow_password: stand_in("password"),
            external: None,
            at_end: Some(SecretString::from(THEIR_KEYS)),
            external_mlflow: Login::Password {
                user: "the user of your server".to_owned(),
                password: SecretString::from("the password of your server; up reads it from your credentials_file"),
            },
        }
    }

    /// Placeholders of a cluster with an external store, whose keys are not rendered either.
    pub fn placeholders_with_external() -> Self {
        Self { external: Some(SecretString::from(THEIR_KEYS)), ..Self::placeholders() }
    }

    /// The files with these names, for `secrets/` in a host's folder.
    ///
    /// Containers run as different users, so the files are world-readable; but only root can enter the folder, and a
    /// container sees only the files mounted into it.
    pub fn files(&self, names: &[&str]) -> Vec<StageFile> {
        let file = |name: &&str| StageFile {
            path: format!("secrets/{name}"),
            mode: 0o444,
            bytes: self.text(name).into_bytes(),
        };
        names.iter().map(file).collect()
    }

    /// The content of the file with this name.
    pub fn text(&self, name: &str) -> String {
        let (user, password) = (self.object_store_user.expose_secret(), self.object_store_password.expose_secret());
        match name {
            "aws_credentials" if self.external.is_some() => {
                self.external.as_ref().map(|keys| keys.expose_secret().to_owned()).unwrap_or_default()
            }
            "end_credentials" => self.at_end.as_ref().map(|keys| keys.expose_secret().to_owned()).unwrap_or_default(),
            "object_store_user" => user.to_owned(),
            "object_store_password" => password.to_owned(),
            "grafana_password" => self.grafana_password.expose_secret().to_owned(),
            "prometheus_password" => self.prometheus_password.expose_secret().to_owned(),
            "jupyter_token" => self.jupyter_token.expose_secret().to_owned(),
            "mlflow_password" => self.mlflow_password.expose_secret().to_owned(),
            "aws_credentials" => {
                format!("[default]\naws_access_key_id = {user}\naws_secret_access_key = {password}\n")
            }
            "prometheus_web.yml" => {
                format!("basic_auth_users:\n  {PROMETHEUS_USER}: \"{}\"\n", self.prometheus_hash.expose_secret())
            }
            // Ray's format of headers for its calls to Prometheus.
            "prometheus_headers" => {
                let basic = STANDARD.encode(format!("{PROMETHEUS_USER}:{}", self.prometheus_password.expose_secret()));
                format!("{{\"Authorization\": \"Basic {basic}\"}}")
            }
            _ => self.ray_token.expose_secret().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::spec::external_credentials;

    #[test]
    fn credentials_are_created_once_and_are_distinct_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let first = ensure_secrets(folder.path()).unwrap();
        let again = ensure_secrets(folder.path()).unwrap();
        let texts = |secrets: &Secrets| {
            [
                &secrets.ray_token,
                &secrets.object_store_user,
                &secrets.object_store_password,
                &secrets.object_store_identity,
                &secrets.grafana_password,
                &secrets.prometheus_password,
                &secrets.prometheus_hash,
                &secrets.jupyter_token,
                &secrets.mlflow_password,
            ]
            .map(|secret| secret.expose_secret().to_owned())
        };
        assert_eq!(texts(&first), texts(&again));
        let different: std::collections::BTreeSet<String> = texts(&first).into();
        assert_eq!(different.len(), 9);
        for entry in std::fs::read_dir(folder.path().join("secrets")).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_hash_of_another_password_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        ensure_secrets(folder.path()).unwrap();
        fs_err::write(folder.path().join("secrets/prometheus_password"), "another").unwrap();
        let error = ensure_secrets(folder.path()).unwrap_err();
        assert!(error.hints()[0].contains("rm "), "{error}");
    }

    #[test]
    fn hosts_get_only_one_profile_of_an_external_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials").display().to_string();
        let read = |text: &str, profile: &str| {
            fs_err::write(&path, text).unwrap();
            external_credentials(&path, profile)
        };
        assert!(external_credentials(&path, "default").is_err());
        let refused = |text: &str, profile: &str| read(text, profile).unwrap_err().to_string();
        assert!(refused("[default]\naws_access_key_id = A\n", "default").contains("aws_secret_access_key"));
        let text = "[work]\naws_access_key_id = WORK-ID\naws_secret_access_key = WORK-KEY\n# aws_session_token = NO\n\
                    [lab]\naws_access_key_id=LAB-ID\naws_secret_access_key=LAB-KEY\naws_session_token = LAB-TOKEN\n\
                    role_arn = arn\n[default]\naws_access_key_id = MY-ID\n";
        // Keys of other sections do not count.
        assert!(
            refused(text, "default").contains("[default] has no aws_secret_access_key"),
            "{}",
            refused(text, "default")
        );
        assert!(refused(text, "wrok").contains("no section [wrok]; there are: work, lab, default"));
        let sent = |profile: &str| {
            let secrets = Secrets { external: Some(read(text, profile).unwrap()), ..Secrets::placeholders() };
            String::from_utf8(secrets.files(&["aws_credentials"])[0].bytes.clone()).unwrap()
        };
        assert_eq!(sent("work"), "[default]\naws_access_key_id = WORK-ID\naws_secret_access_key = WORK-KEY\n");
        assert_eq!(
            sent("lab"),
            "[default]\naws_access_key_id = LAB-ID\naws_secret_access_key = LAB-KEY\naws_session_token = LAB-TOKEN\n"
        );
    }
}
