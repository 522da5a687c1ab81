//! The credentials of an object store that exists already.

use std::path::Path;

use secrecy::SecretString;

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::read_text_within;

/// The most that a file with credentials of a store may hold.
const CREDENTIALS_LIMIT: u64 = 64 << 10;

/// The keys of one profile, out of a file in the form of `~/.aws/credentials`: what hosts get, and nothing else that the file holds.
///
/// # Errors
/// When the file cannot be read, has no such profile, or the profile has no pair of keys.
pub fn external_credentials(path: &str, profile: &str) -> Result<SecretString> {
    let doing = || format!("read the credentials in {path}");
    let text = read_text_within(Path::new(path), CREDENTIALS_LIMIT).doing(ErrorKind::Spec, doing)?;
    let error = |why: String| Error::new(ErrorKind::Spec, doing()).because(why);
    let (mut sections, mut inside, mut own) = (Vec::new(), false, std::collections::BTreeMap::new());
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = name.trim() == profile;
            sections.push(name.trim());
        } else if let Some((name, value)) = line.split_once('=').filter(|_| inside && !line.starts_with(['#', ';'])) {
            own.insert(name.trim(), value.trim());
        }
    }
    if !sections.contains(&profile) {
        let there = match sections.as_slice() {
            [] => String::new(),
            there => format!("; there are: {}", there.join(", ")),
        };
        return Err(error(format!("it has no section [{profile}]{there}")));
    }
    // Under this name hosts find it without a setting, whatever it is called here.
    let mut told = "[default]\n".to_owned();
    for (key, must) in [("aws_access_key_id", true), ("aws_secret_access_key", true), ("aws_session_token", false)] {
        match own.get(key).filter(|value| !value.is_empty()) {
            Some(value) => told.push_str(&format!("{key} = {value}\n")),
            None if must => return Err(error(format!("its section [{profile}] has no {key}"))),
            None => {}
        }
    }
    Ok(SecretString::from(told))
}
