//! Clients of HTTP: all with the same cryptography, which is chosen once for the process; and answers, read to a limit.

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

/// Why a body was not read to its end.
#[derive(Debug)]
pub enum Unread {
    /// It broke off, or took too long.
    Broken(reqwest::Error),
    /// It has more bytes than this.
    TooLong(usize),
}

/// Reads a body to its end, and no further than so many bytes: who answers decides how much they send.
pub async fn body(answer: &mut reqwest::Response, limit: usize) -> Result<Vec<u8>, Unread> {
    let mut body = Vec::new();
    // Where its length is told, nothing of what is too long is read.
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

/// What servers that never end answer with, for tests.
#[cfg(test)]
pub(crate) mod endless {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// A server whose every answer begins so and never ends; with it, how many bytes it has got rid of.
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
