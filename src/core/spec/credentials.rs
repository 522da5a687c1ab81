//! The credentials of an external object store.

use std::path::Path;

use secrecy::SecretString;

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::read_text_within;

/// The maximum size of a credentials file, in bytes.
const CREDENTIALS_LIMIT: u64 = 64 << 10;

/// The keys of one profile from a file in the format of `~/.aws/credentials`; hosts get only these.
///
/// # Errors
/// If the file cannot be read or has no such profile, or the profile lacks one of the two keys.
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
    // Hosts find the default profile without any setting, whatever its name is here.
    let mut text = "[default]\n".to_owned();
    for (key, must) in [("aws_access_key_id", true), ("aws_secret_access_key", true), ("aws_session_token", false)] {
        match own.get(key).filter(|value| !value.is_empty()) {
            Some(value) => text.push_str(&format!("{key} = {value}\n")),
            None if must => return Err(error(format!("its section [{profile}] has no {key}"))),
            None => {}
        }
    }
    Ok(SecretString::from(text))
}
