//! Clients of HTTP: all with the same cryptography, which is chosen once for the process.

use std::sync::Once;

/// The beginning of a client.
pub fn client() -> reqwest::ClientBuilder {
    static CRYPTOGRAPHY: Once = Once::new();
    CRYPTOGRAPHY.call_once(|| {
        // Refused only when the process has one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder()
}
