//! A file server on the loopback that serves ranges, and breaks off where a test wants it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What happens to one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cut {
    /// The connection ends after this many bytes of the body.
    After(usize),
    /// It ends without an answer.
    Now,
    /// The answer claims this size.
    Claim(u64),
}

struct Shared {
    name: String,
    bytes: Vec<u8>,
    version: u32,
    cuts: Vec<Cut>,
    ranges: Vec<String>,
}

/// Serves one file at `/NAME`; it runs until the tests end.
pub(super) struct FileServer {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

impl FileServer {
    /// Starts it; each request uses up one of the cuts.
    pub(super) fn start(name: &str, bytes: &[u8], cuts: &[Cut]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cuts = cuts.iter().rev().copied().collect();
        let shared = Shared { name: name.to_owned(), bytes: bytes.to_vec(), version: 1, cuts, ranges: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(&stream, &of_thread);
            }
        });
        Self { port, shared }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// The `Range` of each request.
    pub(super) fn ranges(&self) -> Vec<String> {
        self.shared.lock().unwrap().ranges.clone()
    }

    /// Serves another version of the file, without cuts.
    pub(super) fn replace(&self, bytes: &[u8]) {
        let mut shared = self.shared.lock().unwrap();
        (shared.bytes, shared.version) = (bytes.to_vec(), 2);
        shared.cuts.clear();
    }
}

fn answer(mut stream: &TcpStream, shared: &Mutex<Shared>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let (mut range, mut version) = (String::new(), String::new());
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => value.trim().clone_into(&mut range),
            "if-range" => value.trim().clone_into(&mut version),
            _ => {}
        }
    }
    let mut shared = shared.lock().unwrap();
    shared.ranges.push(range.clone());
    let cut = shared.cuts.pop();
    if matches!(cut, Some(Cut::Now)) {
        return Ok(());
    }
    let path = first.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
    if path.trim_start_matches('/') != shared.name {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let tag = format!("\"v{}\"", shared.version);
    let from = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-')?.parse::<usize>().ok());
    let from = from.filter(|_| version.is_empty() || version == tag);
    let (status, begin) = match from {
        Some(from) => (format!("206 Partial Content\r\nContent-Range: bytes {from}-/*"), from),
        None => ("200 OK".to_owned(), 0),
    };
    let body = &shared.bytes[begin..];
    let (sent, length) = match cut {
        Some(Cut::After(most)) => (&body[..most.min(body.len())], body.len() as u64),
        Some(Cut::Claim(length)) => (body, length),
        _ => (body, body.len() as u64),
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: {tag}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(sent)
}
