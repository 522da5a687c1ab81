//! The part of cloud-init's user data that these hosts support: the host key, and the keys that may log in.

use serde::Deserialize;

use crate::error::{Doing as _, ErrorKind, Result};

/// A parsed cloud-config.
#[derive(Default, Deserialize)]
pub(super) struct UserData {
    /// Host keys by name, such as `ed25519_private`.
    #[serde(default)]
    ssh_keys: std::collections::BTreeMap<String, String>,
    /// Public keys that may log in.
    #[serde(default)]
    pub(super) ssh_authorized_keys: Vec<String>,
}

impl UserData {
    /// Parses a cloud-config; other forms of user data are ignored.
    pub(super) fn read(text: Option<&str>) -> Result<Self> {
        match text.filter(|text| text.starts_with("#cloud-config")) {
            Some(text) => serde_yaml::from_str(text).doing(ErrorKind::Usage, || "read the user data".to_owned()),
            None => Ok(Self::default()),
        }
    }

    /// The private host key, if the user data has one.
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
    fn keys_are_read_from_a_cloud_config() {
        let text = "#cloud-config\nssh_deletekeys: true\nssh_keys:\n  ed25519_private: |\n    A\n    B\n  ed25519_public: c\n\
                    ssh_authorized_keys: [k1]\nruncmd: [ls]\n";
        let user_data = UserData::read(Some(text)).unwrap();
        assert_eq!(
            (user_data.host_key(), user_data.ssh_authorized_keys.as_slice()),
            (Some("A\nB\n"), &["k1".to_owned()][..])
        );
        assert!(UserData::read(Some("#!/bin/sh\n")).unwrap().host_key().is_none());
        assert!(UserData::read(Some("#cloud-config\nssh_keys: [")).is_err());
    }
}
