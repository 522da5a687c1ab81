//! What a server is told when it boots: the key that it is to be known by.

use secrecy::{ExposeSecret as _, SecretString};

use crate::error::Result;
use crate::secret::KeyPair;

/// The cloud-init configuration of a host with this host key. The first connection is verified by it.
pub(super) fn user_data(host_key: &KeyPair) -> Result<SecretString> {
    let private = host_key.private()?;
    let indented: String = private.expose_secret().lines().map(|line| format!("    {line}\n")).collect();
    Ok(SecretString::from(format!(
        "#cloud-config\n\
         ssh_deletekeys: true\n\
         ssh_keys:\n  ed25519_private: |\n{indented}  ed25519_public: {}\n",
        host_key.public
    )))
}
