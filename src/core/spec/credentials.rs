//! The credentials of an external object store, and of an external MLflow server.

use std::collections::BTreeMap;
use std::path::Path;

use secrecy::SecretString;

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::mlflow::Login;
use crate::util::fs::read_text_within;

/// The maximum size of a credentials file, in bytes.
const CREDENTIALS_LIMIT: u64 = 64 << 10;

/// The section of a file with a login for MLflow.
const TRACKING_SECTION: &str = "mlflow";

/// The keys of one profile from a file in the format of `~/.aws/credentials`; hosts get only these.
///
/// # Errors
/// If the file cannot be read or has no such profile, or the profile lacks one of the two keys.
pub fn external_credentials(path: &str, profile: &str) -> Result<SecretString> {
    let doing = || format!("read the credentials in {path}");
    let text = read_text_within(Path::new(path), CREDENTIALS_LIMIT).doing(ErrorKind::Spec, doing)?;
    let error = |why: String| Error::new(ErrorKind::Spec, doing()).because(why);
    let own = section(&text, profile).map_err(error)?;
    // Hosts find the default profile without any setting, whatever its name is here.
    let mut text = "[default]\n".to_owned();
    for (key, must) in [("aws_access_key_id", true), ("aws_secret_access_key", true), ("aws_session_token", false)] {
        match own.get(key) {
            Some(value) => text.push_str(&format!("{key} = {value}\n")),
            None if must => return Err(error(format!("its section [{profile}] has no {key}"))),
            None => {}
        }
    }
    Ok(SecretString::from(text))
}

/// The login in a file in the format of `~/.mlflow/credentials`: a section `[mlflow]` with `mlflow_tracking_username` and
/// `mlflow_tracking_password`, or with `mlflow_tracking_token`. The names may be without `mlflow_tracking_`.
///
/// # Errors
/// If the file cannot be read or has no such section, or the section has no whole login.
pub fn tracking_login(path: &str) -> Result<Login> {
    let doing = || format!("read the login of MLflow in {path}");
    let text = read_text_within(Path::new(path), CREDENTIALS_LIMIT).doing(ErrorKind::Spec, doing)?;
    let error = |why: String| Error::new(ErrorKind::Spec, doing()).because(why);
    let own = section(&text, TRACKING_SECTION).map_err(error)?;
    let value = |name: &str| own.get(format!("mlflow_tracking_{name}").as_str()).or_else(|| own.get(name)).copied();
    match (value("username"), value("password"), value("token")) {
        (Some(user), Some(password), None) => {
            Ok(Login::Password { user: user.to_owned(), password: SecretString::from(password) })
        }
        (None, None, Some(token)) => Ok(Login::Token(SecretString::from(token))),
        (_, _, Some(_)) => Err(error(format!("its section [{TRACKING_SECTION}] has both a password and a token"))),
        _ => Err(error(format!(
            "its section [{TRACKING_SECTION}] lacks mlflow_tracking_username and mlflow_tracking_password, or \
             mlflow_tracking_token"
        ))),
    }
}

/// The values of one section that are not empty.
fn section<'a>(text: &'a str, wanted: &str) -> Result<BTreeMap<&'a str, &'a str>, String> {
    let (mut sections, mut inside, mut own) = (Vec::new(), false, BTreeMap::new());
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = name.trim() == wanted;
            sections.push(name.trim());
        } else if let Some((name, value)) = line.split_once('=').filter(|_| inside && !line.starts_with(['#', ';'])) {
            own.insert(name.trim(), value.trim());
        }
    }
    if !sections.contains(&wanted) {
        let there = match sections.as_slice() {
            [] => String::new(),
            there => format!("; there are: {}", there.join(", ")),
        };
        return Err(format!("it has no section [{wanted}]{there}"));
    }
    own.retain(|_, value| !value.is_empty());
    Ok(own)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_login_of_mlflow_is_read_as_mlflow_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials").display().to_string();
        let read = |text: &str| {
            fs_err::write(&path, text).unwrap();
            tracking_login(&path)
        };
        for text in [
            "[other]\nusername = x\n[mlflow]\nmlflow_tracking_username = me\nmlflow_tracking_password = a=b\n",
            "[mlflow]\n# password = no\nusername=me\npassword=a=b\n",
        ] {
            let Ok(Login::Password { user, password }) = read(text) else { panic!("{text}") };
            assert_eq!((user.as_str(), password.expose_secret()), ("me", "a=b"));
        }
        let token = read("[mlflow]\nmlflow_tracking_token = t\n");
        assert!(matches!(token, Ok(Login::Token(token)) if token.expose_secret() == "t"));
        for (text, why) in [
            ("username = me\n", "no section [mlflow]"),
            ("[mlflow]\nusername = me\npassword =\n", "lacks mlflow_tracking_username"),
            ("[mlflow]\nusername = me\npassword = x\ntoken = t\n", "both a password and a token"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
