//! One HTTP request to this machine, with nothing in between.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Gets `http://host:port/path`; returns status and body.
pub(crate) fn get(url: &str, headers: &[(&str, &str)]) -> std::io::Result<(u16, String)> {
    ask("GET", url, headers, "")
}

/// Sends a request to `http://host:port/path`; the headers may name another host. Returns status and body.
pub(crate) fn ask(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> std::io::Result<(u16, String)> {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Names below `localhost` are this machine, as for a browser; not every system's resolver knows it.
    let (name, port) = address.rsplit_once(':').unwrap();
    let here = if name.ends_with(".localhost") { "127.0.0.1" } else { name };
    let mut stream = TcpStream::connect((here, port.parse().unwrap()))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut request = format!("{method} /{path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let is_in_chunks = head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked");
    let body = if is_in_chunks { joined(body) } else { body.to_owned() };
    Ok((status.ok_or_else(|| std::io::Error::other(format!("no answer: {head}")))?, body))
}

/// A body without the lengths of its chunks.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n")
        && let Ok(length @ 1..) = usize::from_str_radix(length, 16)
    {
        body.push_str(&rest[..length]);
        chunks = rest[length..].trim_start_matches("\r\n");
    }
    body
}
