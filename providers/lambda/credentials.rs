//! Which key is used, and where it is known from.

use secrecy::SecretString;

use super::api;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::UserEnvironment;
use crate::secret::Vault;
use crate::util::fs::{RECORD_LIMIT, read_text_within};

/// What the accounts of the vault begin with.
pub(super) const ACCOUNTS: &str = "lambda ";
/// The variables that hold a key, the one that counts most first.
pub(super) const VARIABLES: [&str; 3] = ["LAMBDA_API_KEY", "LAMBDALABS_API_KEY", "LAMBDA_CLOUD_API_TOKEN"];
/// Where other programs keep it, in the user's home: `api_key = …`.
const FILE: &str = ".lambda_cloud/lambda_keys";
/// The place whose key that file holds.
const USUAL_PLACE: &str = "Lambda";

/// A key, and where it is known from.
pub(super) struct Found {
    /// The key.
    pub(super) key: SecretString,
    /// `LAMBDA_API_KEY`, `the login that was kept`.
    pub(super) source: String,
}

/// The account of the vault for this place.
pub(super) fn account(place: &str) -> String {
    format!("{ACCOUNTS}{place}")
}

/// The key for this place, from the first that has one; `None` where nobody has.
pub(super) fn find_key(user_environment: &UserEnvironment, place: &str) -> Result<Option<Found>> {
    // A spec of a stranger's could name an address of the stranger's: the variables are for Lambda, and for the address beside them.
    let url = user_environment.variable("LAMBDA_API_URL").and_then(|text| api::endpoint(text).ok());
    let is_meant = place == USUAL_PLACE || url.is_some_and(|url| api::place_of(&url) == place);
    for name in VARIABLES.into_iter().filter(|_| is_meant) {
        if let Some(text) = user_environment.variable(name) {
            return Ok(Some(Found { key: SecretString::from(text.trim().to_owned()), source: name.to_owned() }));
        }
    }
    let vault = Vault::open(&user_environment.config_dir, user_environment.keyring_bus());
    if let Some(key) = vault.get(&account(place))? {
        return Ok(Some(Found { key, source: "the login that was kept".to_owned() }));
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
    Ok(key.map(|key| Found { key: SecretString::from(key), source: format!("~/{FILE}") }))
}

/// The key for this place.
pub(super) fn find(user_environment: &UserEnvironment, place: &str) -> Result<Found> {
    find_key(user_environment, place)?.ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("log in to {place}"))
            .because(format!(
                "there is no key: {} are not set, no login is kept, and ~/{FILE} has none",
                VARIABLES.join(", ")
            ))
            .hint("gpucl login lambda   # keeps one; or: export LAMBDA_API_KEY=…")
    })
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn describe(found: Option<Found>) -> Option<(String, String)> {
        found.map(|found| (found.key.expose_secret().to_owned(), found.source))
    }

    fn some(key: &str, source: &str) -> Option<(String, String)> {
        Some((key.to_owned(), source.to_owned()))
    }

    #[test]
    fn the_first_that_has_a_key_counts_and_is_named() {
        let home = tempfile::tempdir().unwrap();
        let mut around = UserEnvironment {
            home: home.path().to_owned(),
            config_dir: home.path().join("config"),
            ..UserEnvironment::default()
        };
        let find_key = |around: &UserEnvironment, place: &str| describe(super::find_key(around, place).unwrap());
        assert_eq!(find_key(&around, "Lambda"), None);
        let error = find(&around, "Lambda").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.hints()[0].starts_with("gpucl login lambda"), "{error}");

        std::fs::create_dir(home.path().join(".lambda_cloud")).unwrap();
        fs_err::write(home.path().join(FILE), "# mine\napi_key = of-file\n").unwrap();
        assert_eq!(find_key(&around, "Lambda"), some("of-file", "~/.lambda_cloud/lambda_keys"));
        // It is no other place's.
        assert_eq!(find_key(&around, "127.0.0.1:99"), None);

        std::fs::create_dir(home.path().join("config")).unwrap();
        let vault = Vault::open(&around.config_dir, None);
        vault.put(&account("Lambda"), &SecretString::from("of-vault".to_owned())).unwrap();
        assert_eq!(find_key(&around, "Lambda"), some("of-vault", "the login that was kept"));

        for name in VARIABLES.into_iter().rev() {
            around.variables.insert(name.to_owned(), format!("of-{name}"));
            assert_eq!(find_key(&around, "Lambda"), some(&format!("of-{name}"), name));
        }
        // What is set for Lambda reaches nobody else, whatever a spec says.
        assert_eq!(find_key(&around, "lambda.example"), None);
        around.variables.insert("LAMBDA_API_URL".to_owned(), "https://lambda.example/api/v1/".to_owned());
        assert_eq!(find_key(&around, "lambda.example"), some("of-LAMBDA_API_KEY", "LAMBDA_API_KEY"));
    }
}
