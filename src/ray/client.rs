//! The client.

use secrecy::SecretString;

/// A client of one cluster's Ray dashboard and job API.
#[derive(Debug, Clone)]
pub struct Client {
    base: String,
    token: SecretString,
}

impl Client {
    /// Makes a client of the dashboard's address, such as `http://127.0.0.1:8265`, and the cluster's token.
    pub fn new(base: impl Into<String>, token: SecretString) -> Self {
        Self {
            base: base.into(),
            token,
        }
    }
}
