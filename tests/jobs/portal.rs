//! The portal, against a small server of our own that stands in for a page.

#![expect(clippy::unwrap_used, reason = "what a test stands on may fail it")]

use gpucl::cli::portal::{Page, Portal, PortalMemory, load, save};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const LARGE: usize = 3 * 1024 * 1024;

/// A page that tells what it was asked, takes and gives large bodies, and goes on raw after an upgrade.
async fn page() -> (Page, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_page(stream));
        }
    });
    let inject = Some(("Authorization".to_owned(), "Bearer cluster-token".to_owned().into()));
    (Page { name: "dashboard".to_owned(), upstream, inject }, task)
}

async fn serve_page(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let end = loop {
        stream.read_buf(&mut bytes).await.unwrap();
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut body = bytes.split_off(end);
    if head.starts_with("GET /socket") {
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            .await
            .unwrap();
        // Raw bytes both ways, each answered, to the other side's end.
        let mut some = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut some).await {
            some[..count].reverse();
            stream.write_all(&some[..count]).await.unwrap();
        }
        return;
    }
    let answer = if head.starts_with("POST ") {
        while body.len() < LARGE {
            stream.read_buf(&mut body).await.unwrap();
        }
        assert!(body.iter().all(|byte| *byte == b'x'));
        vec![b'y'; LARGE]
    } else {
        head.into_bytes()
    };
    let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    stream.write_all(start.as_bytes()).await.unwrap();
    stream.write_all(&answer).await.unwrap();
}

/// Sends a request as it stands and reads the whole answer.
async fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

async fn get(portal: &Portal, target: &str, headers: &str) -> String {
    let port = portal.memory().port;
    ask(port, &format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n")).await
}

fn cookie(portal: &Portal) -> String {
    format!("Cookie: gpucl_key_{}={}\r\n", portal.memory().port, portal.memory().key.expose_secret())
}

#[track_caller]
fn assert_status(answer: &str, status: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
}

#[tokio::test]
async fn nobody_passes_without_the_key() {
    let (page, _task) = page().await;
    let portal = Portal::open(page, None, None).await.unwrap();
    let port = portal.memory().port;
    let refused = get(&portal, "/", "").await;
    assert_status(&refused, "401");
    assert!(refused.contains("gpucl dashboard") && !refused.contains("http-equiv"), "{refused}");
    assert_status(&get(&portal, "/?gpucl_key=wrong", "").await, "401");
    assert_status(&get(&portal, "/", &format!("Cookie: gpucl_key_{port}=wrong\r\n")).await, "401");
    // The cookie of another port's portal.
    let other = cookie(&portal).replace(&port.to_string(), "1");
    assert_status(&get(&portal, "/", &other).await, "401");
    assert_status(&get(&portal, "/", "Authorization: Bearer another-token\r\n").await, "401");
    // A link on another site: the browser kept the cookie back, and gets the chance to send it.
    let link = get(&portal, "/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n").await;
    assert_status(&link, "401");
    assert!(link.contains("http-equiv=\"refresh\""), "{link}");
}

/// `ray job list` with what `gpucl env` prints.
#[tokio::test]
async fn who_brings_the_pages_own_credential_passes() {
    let (page, _task) = page().await;
    let portal = Portal::open(page, None, None).await.unwrap();
    let own = "Authorization: Bearer cluster-token\r\n";
    assert_status(&get(&portal, "/", own).await, "200");
    assert_status(&get(&portal, "/", &format!("{own}Origin: http://evil.example\r\n")).await, "403");
}

#[tokio::test]
async fn the_key_becomes_a_cookie_and_leaves_the_address() {
    let (page, _task) = page().await;
    let portal = Portal::open(page, None, None).await.unwrap();
    let key = portal.memory().key.expose_secret().to_owned();
    let welcome = get(&portal, &format!("//evil.example/x?a=1&gpucl_key={key}&b=2"), "").await;
    assert_status(&welcome, "303");
    assert!(welcome.contains("\r\nLocation: /evil.example/x?a=1&b=2\r\n"), "{welcome}");
    let set =
        format!("\r\nSet-Cookie: gpucl_key_{}={key}; Path=/; HttpOnly; SameSite=Strict\r\n", portal.memory().port);
    assert!(welcome.contains(&set), "{welcome}");
    assert_eq!(portal.url(), format!("http://127.0.0.1:{}/?gpucl_key={key}", portal.memory().port));
}

#[tokio::test]
async fn the_page_sees_its_credential_and_nothing_of_ours() {
    let (page, _task) = page().await;
    let portal = Portal::open(page, None, None).await.unwrap();
    let mine = cookie(&portal).trim_end().replace("Cookie: ", "");
    let headers = format!(
        "Cookie: theme=dark; {mine}; gpucl_key_1=z\r\nAuthorization: Bearer mine\r\nConnection: keep-alive\r\nX-A: b\r\n"
    );
    let seen = get(&portal, "/x?y=1", &headers).await;
    assert_status(&seen, "200");
    let head = seen.split_once("\r\n\r\n").unwrap().1;
    assert!(head.starts_with("GET /x?y=1 HTTP/1.1\r\n"), "{head}");
    for wanted in [
        "\r\nAuthorization: Bearer cluster-token\r\n",
        "\r\nCookie: theme=dark\r\n",
        "\r\nX-A: b\r\n",
        "\r\nConnection: close\r\n",
    ] {
        assert!(head.contains(wanted), "{wanted:?} is missing:\n{head}");
    }
    for ours in ["gpucl_key", portal.memory().key.expose_secret(), "Bearer mine", "keep-alive"] {
        assert!(!head.contains(ours), "{ours:?} was passed on:\n{head}");
    }
}

#[tokio::test]
async fn other_names_and_other_pages_are_refused_even_with_the_key() {
    let (page, _task) = page().await;
    let portal = Portal::open(page, None, None).await.unwrap();
    let (port, cookie) = (portal.memory().port, cookie(&portal));
    for host in ["evil.example", "127.0.0.1", "evil.example:80", "127.0.0.1:1"] {
        assert_status(&ask(port, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n{cookie}\r\n")).await, "421");
    }
    assert_status(&ask(port, &format!("GET / HTTP/1.1\r\n{cookie}\r\n")).await, "421");
    assert_status(&ask(port, &format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n{cookie}\r\n")).await, "200");
    assert_status(&get(&portal, "/", &format!("{cookie}Origin: http://127.0.0.1:1\r\n")).await, "403");
    assert_status(
        &get(&portal, "/", &format!("{cookie}Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n")).await,
        "403",
    );
    assert_status(&get(&portal, "/", &format!("{cookie}Origin: http://127.0.0.1:{port}\r\n")).await, "200");
    for wrong in ["GET  / HTTP/1.1", "GET http://x/ HTTP/1.1", "GET / HTTP/2", "GET /"] {
        assert_status(&ask(port, &format!("{wrong}\r\nHost: 127.0.0.1:{port}\r\n{cookie}\r\n")).await, "400");
    }
    let two = format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{cookie}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    assert_status(&ask(port, &two).await, "400");
    assert_status(&get(&portal, "/", &format!("{cookie}X: {}\r\n", "a".repeat(70_000))).await, "431");
}

#[tokio::test]
async fn large_bodies_and_upgrades_pass_both_ways() {
    let (page, _task) = page().await;
    let portal = Portal::open(page, None, None).await.unwrap();
    let (port, cookie) = (portal.memory().port, cookie(&portal));
    let post = format!(
        "POST /up HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{cookie}Content-Length: {LARGE}\r\n\r\n{}",
        "x".repeat(LARGE)
    );
    let answer = ask(port, &post).await;
    assert_status(&answer, "200");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, "y".repeat(LARGE));

    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let upgrade = format!(
        "GET /socket HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{cookie}Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    socket.write_all(upgrade.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        assert_ne!(socket.read_buf(&mut read).await.unwrap(), 0, "{}", String::from_utf8_lossy(&read));
    }
    assert!(read.starts_with(b"HTTP/1.1 101"));
    for word in [b"\x00\xffab", b"wxyz"] {
        socket.write_all(word).await.unwrap();
        let mut back = [0; 4];
        socket.read_exact(&mut back).await.unwrap();
        back.reverse();
        assert_eq!(&back, word);
    }
    // Open connections end with the portal.
    portal.close().await;
    assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn the_address_is_the_same_at_the_next_call_and_nothing_listens_between() {
    let place = tempfile::Builder::new().prefix("gpucl-test-").tempdir().unwrap();
    let file = place.path().join("portal.json");
    assert!(load(&file).unwrap().is_empty());
    let (page, _task) = page().await;
    let first = Portal::open(page.clone(), None, None).await.unwrap();
    let (url, port) = (first.url(), first.memory().port);
    save(&file, &[("dashboard".to_owned(), first.memory().clone())].into()).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions()) & 0o777,
        0o600
    );
    first.close().await;
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "something listens on {port} still");

    let remembered = || -> Option<PortalMemory> { load(&file).unwrap().remove("dashboard") };
    let second = Portal::open(page.clone(), remembered(), None).await.unwrap();
    assert_eq!((second.url(), second.displaced()), (url, None));
    second.close().await;

    let somebody = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let third = Portal::open(page.clone(), remembered(), None).await.unwrap();
    assert_eq!(third.displaced(), Some(port));
    assert_ne!(third.memory().port, port);
    let asked = Portal::open(page, None, Some(port)).await.unwrap_err();
    assert!(asked.hints()[0].contains("--port"), "{asked:?}");
    drop(somebody);
}

#[tokio::test]
async fn a_page_that_is_down_is_told_with_what_to_do() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let page = Page { name: "dashboard".to_owned(), upstream: nobody, inject: None };
    let portal = Portal::open(page, None, None).await.unwrap();
    let answer = get(&portal, "/", &cookie(&portal)).await;
    assert_status(&answer, "502");
    assert!(answer.contains("gpucl status"), "{answer}");
}
