//! HTTP clients with one cryptography provider per process, and bounded reading of answers.

use std::sync::Once;

use reqwest::Url;

use crate::error::{Doing as _, ErrorKind};

/// A client builder for this server. The machine's certificates are read only where they are needed, and a proxy does not lead
/// back to this machine.
pub fn client_for(server: &Url) -> reqwest::ClientBuilder {
    let builder = if server.scheme() == "http" { client().tls_certs_only([]) } else { client() };
    if is_loopback(server) { builder.no_proxy() } else { builder }
}

/// A client builder for what listens on the loopback without encryption, also at the end of a tunnel.
pub fn loopback_client() -> reqwest::ClientBuilder {
    client().no_proxy().tls_certs_only([])
}

/// Builds a client.
///
/// # Errors
/// If the machine has no certificates, or they cannot be read.
pub fn built(builder: reqwest::ClientBuilder, doing: impl FnOnce() -> String) -> crate::error::Result<reqwest::Client> {
    builder.build().doing(ErrorKind::Unsupported, doing).map_err(|error| {
        let lacks_certificates = error.causes().iter().any(|cause| cause.contains("CA certificates"));
        if lacks_certificates { error.hint(CERTIFICATES) } else { error }
    })
}

/// Whether the server is on this machine.
pub fn is_loopback(server: &Url) -> bool {
    server.host_str().is_some_and(|host| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    })
}

/// Returns a client builder, after installing the process's cryptography provider once.
fn client() -> reqwest::ClientBuilder {
    static CRYPTOGRAPHY: Once = Once::new();
    CRYPTOGRAPHY.call_once(|| {
        // Fails only if the process already has one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder()
}

/// What to do on a machine without certificates.
const CERTIFICATES: &str =
    "sudo apt-get install ca-certificates; or name a file of certificates in PEM format: SSL_CERT_FILE=PATH";

/// The innermost cause of a failed request, which is the clearest: `Connection refused (os error 111)`.
pub fn innermost(error: &reqwest::Error) -> &dyn std::error::Error {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause
}

/// Whether it is the proxy of the user's environment that could not be reached, or that refused.
pub fn is_of_proxy(error: &reqwest::Error) -> bool {
    let mut cause = Some(error as &dyn std::error::Error);
    while let Some(one) = cause {
        // The type behind it is private.
        if one.to_string().starts_with("tunnel error") {
            return true;
        }
        cause = one.source();
    }
    false
}

/// Why a body was not read completely.
#[derive(Debug)]
pub enum Unread {
    /// The connection broke or timed out.
    Broken(reqwest::Error),
    /// The body is longer than this limit, in bytes.
    TooLong(usize),
}

/// Reads a whole body; fails if it is longer than `limit` bytes, since the server decides how much it sends.
pub async fn body(answer: &mut reqwest::Response, limit: usize) -> Result<Vec<u8>, Unread> {
    let mut body = Vec::new();
    // With a Content-Length, a body that is too long is not read at all.
    if answer.content_length().is_some_and(|length| length > limit as u64) {
        return Err(Unread::TooLong(limit));
    }
    while let Some(piece) = answer.chunk().await.map_err(Unread::Broken)? {
        if body.len() + piece.len() > limit {
            return Err(Unread::TooLong(limit));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// A server with endless answers, for tests.
#[cfg(test)]
pub(crate) mod endless {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Starts a server whose answers begin with `head` and never end; also returns its count of bytes sent.
    pub(crate) async fn server(head: &'static str) -> (String, Arc<AtomicU64>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicU64::new(0));
        let count = sent.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = count.clone();
                tokio::spawn(async move {
                    let mut asked = [0; 4096];
                    let _ = stream.read(&mut asked).await;
                    let _ = stream.write_all(head.as_bytes()).await;
                    let piece = vec![b' '; 64 * 1024];
                    while let Ok(written) = stream.write(&piece).await {
                        count.fetch_add(written as u64, Ordering::Relaxed);
                    }
                });
            }
        });
        (address, sent)
    }
}
