//! Finds the API key to use, and its source.

use secrecy::SecretString;

use super::api;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::UserEnvironment;
use crate::secret::Vault;
use crate::util::fs::{RECORD_LIMIT, read_text_within};

/// The prefix of this provider's accounts in the vault.
pub(super) const ACCOUNTS: &str = "lambda ";
/// The variables that may hold a key, in order of precedence.
pub(super) const VARIABLES: [&str; 3] = ["LAMBDA_API_KEY", "LAMBDALABS_API_KEY", "LAMBDA_CLOUD_API_TOKEN"];
/// The key file of other programs, in the user's home: `api_key = …`.
const FILE: &str = ".lambda_cloud/lambda_keys";
/// The place that this file's key is for.
const USUAL_PLACE: &str = "Lambda";

/// A key and its source.
pub(super) struct ApiKey {
    pub(super) key: SecretString,
    /// The source, for display: `LAMBDA_API_KEY`, `the stored login`.
    pub(super) source: String,
}

/// The vault's account for this place.
pub(super) fn account(place: &str) -> String {
    format!("{ACCOUNTS}{place}")
}

/// Finds the key for this place: variables, then the vault, then the key file; `None` if none has one.
pub(super) fn find_key(user_environment: &UserEnvironment, place: &str) -> Result<Option<ApiKey>> {
    // A stranger's spec could name the stranger's address: the variables are only for Lambda and for LAMBDA_API_URL.
    let url = user_environment.variable("LAMBDA_API_URL").and_then(|text| api::endpoint(text).ok());
    let is_meant = place == USUAL_PLACE || url.is_some_and(|url| api::place_of(&url) == place);
    for name in VARIABLES.into_iter().filter(|_| is_meant) {
        if let Some(text) = user_environment.variable(name) {
            return Ok(Some(ApiKey { key: SecretString::from(text.trim().to_owned()), source: name.to_owned() }));
        }
    }
    let vault = Vault::open(&user_environment.config_dir, user_environment.keyring_bus());
    if let Some(key) = vault.get(&account(place))? {
        return Ok(Some(ApiKey { key, source: "the stored login".to_owned() }));
    }
    if place != USUAL_PLACE {
        return Ok(None);
    }
    let text = read_text_within(&user_environment.home.join(FILE), RECORD_LIMIT).unwrap_or_default();
    let of_line = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        (name.trim() == "api_key" && !value.is_empty()).then(|| value.to_owned())
    };
    let key = text.lines().find_map(of_line);
    Ok(key.map(|key| ApiKey { key: SecretString::from(key), source: format!("~/{FILE}") }))
}

/// Finds the key for this place; fails if there is none.
pub(super) fn find(user_environment: &UserEnvironment, place: &str) -> Result<ApiKey> {
    find_key(user_environment, place)?.ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("log in to {place}"))
            .because(format!(
                "there is no API key: {} are not set, no login is stored, and ~/{FILE} has none",
                VARIABLES.join(", ")
            ))
            .hint("gpucl login lambda   # stores one; or: export LAMBDA_API_KEY=…")
    })
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn describe(found: Option<ApiKey>) -> Option<(String, String)> {
        found.map(|found| (found.key.expose_secret().to_owned(), found.source))
    }

    fn some(key: &str, source: &str) -> Option<(String, String)> {
        Some((key.to_owned(), source.to_owned()))
    }

    #[test]
    fn the_first_source_with_a_key_is_used_and_named() {
        let home = tempfile::tempdir().unwrap();
        let mut environment = UserEnvironment {
            home: home.path().to_owned(),
            config_dir: home.path().join("config"),
            ..UserEnvironment::default()
        };
        let find_key =
            |environment: &UserEnvironment, place: &str| describe(super::find_key(environment, place).unwrap());
        assert_eq!(find_key(&environment, "Lambda"), None);
        let error = find(&environment, "Lambda").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.hints()[0].starts_with("gpucl login lambda"), "{error}");

        std::fs::create_dir(home.path().join(".lambda_cloud")).unwrap();
        fs_err::write(home.path().join(FILE), "# mine\napi_key = of-file\n").unwrap();
        assert_eq!(find_key(&environment, "Lambda"), some("of-file", "~/.lambda_cloud/lambda_keys"));
        // It is not used for another place.
        assert_eq!(find_key(&environment, "127.0.0.1:99"), None);

        std::fs::create_dir(home.path().join("config")).unwrap();
        let vault = Vault::open(&environment.config_dir, None);
        vault.put(&account("Lambda"), &SecretString::from("of-vault".to_owned())).unwrap();
        assert_eq!(find_key(&environment, "Lambda"), some("of-vault", "the stored login"));

        for name in VARIABLES.into_iter().rev() {
            environment.variables.insert(name.to_owned(), format!("of-{name}"));
            assert_eq!(find_key(&environment, "Lambda"), some(&format!("of-{name}"), name));
        }
        // A key set for Lambda is not sent to another address, whatever a spec says.
        assert_eq!(find_key(&environment, "lambda.example"), None);
        environment.variables.insert("LAMBDA_API_URL".to_owned(), "https://lambda.example/api/v1/".to_owned());
        assert_eq!(find_key(&environment, "lambda.example"), some("of-LAMBDA_API_KEY", "LAMBDA_API_KEY"));
    }
}
