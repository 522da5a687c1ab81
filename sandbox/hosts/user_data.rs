//! What of cloud-init's user data these hosts take: the host's key, and who may log in.

use serde::Deserialize;

use crate::error::{Doing as _, ErrorKind, Result};

/// What was told.
#[derive(Default, Deserialize)]
pub(super) struct UserData {
    /// Keys of the host, by their names.
    #[serde(default)]
    ssh_keys: std::collections::BTreeMap<String, String>,
    /// Who may log in.
    #[serde(default)]
    pub(super) ssh_authorized_keys: Vec<String>,
}

impl UserData {
    /// Reads a cloud-config; other forms of user data say nothing that these hosts could do.
    pub(super) fn read(text: Option<&str>) -> Result<Self> {
        match text.filter(|text| text.starts_with("#cloud-config")) {
            Some(text) => serde_yaml::from_str(text).doing(ErrorKind::Usage, || "read the user data".to_owned()),
            None => Ok(Self::default()),
        }
    }

    /// The host's private key, where it was given one.
    pub(super) fn host_key(&self) -> Option<&str> {
        ["ed25519_private", "ecdsa_private", "rsa_private"]
            .into_iter()
            .find_map(|name| self.ssh_keys.get(name))
            .map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_out_of_a_cloud_config() {
        let text = "#cloud-config\nssh_deletekeys: true\nssh_keys:\n  ed25519_private: |\n    A\n    B\n  ed25519_public: c\n\
                    ssh_authorized_keys: [k1]\nruncmd: [ls]\n";
        let told = UserData::read(Some(text)).unwrap();
        assert_eq!((told.host_key(), told.ssh_authorized_keys.as_slice()), (Some("A\nB\n"), &["k1".to_owned()][..]));
        assert!(UserData::read(Some("#!/bin/sh\n")).unwrap().host_key().is_none());
        assert!(UserData::read(Some("#cloud-config\nssh_keys: [")).is_err());
    }
}
