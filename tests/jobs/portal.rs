//! The portal, against a small server of our own that stands in for a page.

#![expect(clippy::unwrap_used, reason = "what a test stands on may fail it")]

use std::time::Duration;

use gpucl::cli::portal::{Down, Page, Portal, PortalRun, Question, Upstream};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::skipped;

const LARGE: usize = 3 * 1024 * 1024;
const OWN: &str = "Authorization: Bearer cluster-token\r\n";
const NAVIGATES: &str = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";

/// A page that echoes its requests, takes and sends large bodies, and passes raw bytes after an upgrade.
async fn page() -> Page {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_page(stream));
        }
    });
    page_at(&upstream)
}

fn page_at(upstream: &str) -> Page {
    Page {
        name: "dashboard".to_owned(),
        address: "127.0.0.1:8265".to_owned(),
        upstream: Upstream::Here(upstream.to_owned()),
        inject: Some("Bearer cluster-token".to_owned().into()),
        credentials: vec!["Bearer cluster-token".to_owned().into()],
        is_shown_by_others: false,
        grafana: None,
    }
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
    let mut headers = "";
    let answer = if head.starts_with("POST ") {
        while body.len() < LARGE {
            stream.read_buf(&mut body).await.unwrap();
        }
        assert!(body.iter().all(|byte| *byte == b'x'));
        vec![b'y'; LARGE]
    } else if head.starts_with("GET /api/grafana_health ") {
        assert!(!head.to_lowercase().contains("accept-encoding"), "{head}");
        br#"{"result":true,"data":{"grafanaHost":"http://127.0.0.1:3000","grafanaOrgId":"1"}}"#.to_vec()
    } else {
        headers = "Set-Cookie: grafana_session=1; Path=/\r\nSet-Cookie: gpucl_x=1; Path=/\r\nClear-Site-Data: \"*\"\r\n\
                   Location: http://127.0.0.1:8265/login?a=b\r\nReferrer-Policy: unsafe-url\r\nX-Own: kept\r\n";
        head.into_bytes()
    };
    let start = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    stream.write_all(start.as_bytes()).await.unwrap();
    stream.write_all(&answer).await.unwrap();
}

/// An open page, and what a browser knows of it.
struct Opened {
    portal: Portal,
    port: u16,
    host: String,
    key: String,
    /// The header with its cookie, as the browser got it for the key.
    cookie: String,
}

impl Opened {
    async fn open(page: Page) -> Self {
        Self::of(Portal::open(&PortalRun::named().unwrap(), page, None, None).await.unwrap()).await
    }

    async fn of(portal: Portal) -> Self {
        let (port, url) = (portal.port(), portal.url());
        let (host, key) = url.strip_prefix("http://").unwrap().split_once("/?gpucl_key=").unwrap();
        let welcome = ask(port, &format!("GET /?gpucl_key={key} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        let set = welcome.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        let cookie = format!("Cookie: {}\r\n", set.split(';').next().unwrap());
        Self { host: host.to_owned(), key: key.to_owned(), port, cookie, portal }
    }

    async fn get(&self, target: &str, headers: &str) -> String {
        self.get_at(&self.host, target, headers).await
    }

    async fn get_at(&self, host: &str, target: &str, headers: &str) -> String {
        let end = if headers.contains("Connection:") { "" } else { "Connection: close\r\n" };
        ask(self.port, &format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{headers}{end}\r\n")).await
    }

    fn bare(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// Sends a request as it stands and reads the whole answer.
async fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[track_caller]
fn assert_status(answer: &str, status: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer:.800}");
}

#[tokio::test]
async fn nobody_passes_without_the_key() {
    let open = Opened::open(page().await).await;
    let refused = open.get("/", "").await;
    assert_status(&refused, "401");
    assert!(refused.contains("gpucl dashboard"), "{refused}");
    let (name, key) = open.cookie.trim_end().split_once('=').unwrap();
    for wrong in ["/?gpucl_key=wrong", "/.gpucl/wrong/", "/?gpucl_key=", "/.gpucl/"] {
        assert_status(&open.get(wrong, "").await, "401");
    }
    for wrong in [format!("{name}=wrong\r\n"), format!("{name}x={key}\r\n"), format!("Cookie: {key}\r\n")] {
        assert_status(&open.get("/", &wrong).await, "401");
    }
    // Under its name the page does not accept its credential: a browser could send that automatically.
    assert_status(&open.get("/", OWN).await, "401");
    // Of two pages of one run, each has a key of its own.
    let run = PortalRun::named().unwrap();
    let one = Opened::of(Portal::open(&run, page().await, None, None).await.unwrap()).await;
    let other = Page { name: "jupyter".to_owned(), ..page().await };
    let other = Opened::of(Portal::open(&run, other, None, None).await.unwrap()).await;
    assert_eq!(one.host.split('.').nth(1), other.host.split('.').nth(1), "they share one parent");
    assert_status(&one.get("/", &one.cookie).await, "200");
    assert_status(&one.get("/", &other.cookie).await, "401");
    assert_status(&one.get(&format!("/?gpucl_key={}", other.key), "").await, "401");
}

/// `ray job list` with what `gpucl env` prints.
#[tokio::test]
async fn the_address_without_a_name_answers_to_the_pages_own_credential_alone() {
    let open = Opened::open(page().await).await;
    let bare = open.bare();
    assert_status(&open.get_at(&bare, "/api/version", OWN).await, "200");
    let refused = open.get_at(&bare, "/", &open.cookie).await;
    assert_status(&refused, "401");
    assert!(refused.contains("--plain") && !refused.contains(".localhost"), "{refused}");
    assert_status(&open.get_at(&bare, &format!("/?gpucl_key={}", open.key), "").await, "401");
    assert_status(&open.get_at(&bare, "/", "Authorization: Bearer another-token\r\n").await, "401");
    assert_status(&open.get_at(&bare, "/", &format!("{OWN}{OWN}")).await, "401");
    for by_a_page in
        ["Origin: http://evil.example\r\n", &format!("Origin: http://{bare}\r\n"), "Sec-Fetch-Site: cross-site\r\n"]
    {
        assert_status(&open.get_at(&bare, "/", &format!("{OWN}{by_a_page}")).await, "403");
    }
}

#[tokio::test]
async fn the_key_becomes_a_cookie_and_leaves_the_address() {
    let open = Opened::open(page().await).await;
    let (host, key) = (&open.host, &open.key);
    let random = host.strip_prefix("dashboard.").unwrap().split('.').next().unwrap();
    assert!(random.len() >= 24 && host == &format!("dashboard.{random}.localhost:{}", open.port), "{host}");
    let set = format!("\r\nset-cookie: gpucl_{random}_dashboard={key}; Path=/; HttpOnly; SameSite=Strict\r\n");
    for (shown, to) in [
        (format!("//evil.example/x?a=1&gpucl_key={key}&b=2"), "/evil.example/x?a=1&b=2"),
        (format!("/.gpucl/{key}//evil.example/x?a=1"), "/evil.example/x?a=1"),
        (format!("/?gpucl_key={key}"), "/"),
    ] {
        // It opens in a second browser as well, for as long as the run lasts.
        for _ in 0..2 {
            let welcome = open.get(&shown, "").await;
            assert_status(&welcome, "303");
            assert!(welcome.contains(&format!("\r\nlocation: {to}\r\n")), "{welcome}");
            assert!(welcome.contains(&set) && welcome.contains("\r\nreferrer-policy: no-referrer\r\n"), "{welcome}");
        }
    }
    // From a file that opens the browser: another site, so that a redirect would go without the strict cookie.
    let from_file = format!("Sec-Fetch-Site: cross-site\r\n{NAVIGATES}");
    let welcome = open.get(&format!("/x?a='b&gpucl_key={key}"), &from_file).await;
    assert_status(&welcome, "200");
    assert!(welcome.contains(&set) && welcome.contains("content=\"0;url=/x?a=&#39;b\">"), "{welcome}");
}

#[tokio::test]
async fn the_page_sees_its_address_and_credential_and_nothing_of_ours() {
    let open = Opened::open(page().await).await;
    let (host, key) = (&open.host, &open.key);
    let mine = open.cookie.trim_end().replace("Cookie: ", "");
    let headers = format!(
        "Cookie: theme=dark; {mine}; gpucl_old_dashboard=z\r\nCookie: lang=de\r\nAuthorization: Bearer mine\r\n\
         Origin: http://{host}\r\nReferer: http://{host}/jobs?gpucl=1\r\n\
         Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nX-A: b\r\n"
    );
    let seen = open.get("/x?y=1", &headers).await;
    assert_status(&seen, "200");
    let (answer, head) = seen.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("GET /x?y=1 HTTP/1.1\r\n"), "{head}");
    for wanted in [
        "\r\nhost: 127.0.0.1:8265\r\n",
        "\r\norigin: http://127.0.0.1:8265\r\n",
        "\r\nreferer: http://127.0.0.1:8265/jobs?gpucl=1\r\n",
        "\r\nauthorization: Bearer cluster-token\r\n",
        "\r\ncookie: theme=dark; lang=de\r\n",
        "\r\nx-a: b\r\n",
    ] {
        assert!(head.contains(wanted), "{wanted:?} is missing:\n{head}");
    }
    for ours in ["gpucl_", key.as_str(), ".localhost", "Bearer mine", "x-hop", "keep-alive", "h2c"] {
        assert!(!head.contains(ours), "{ours:?} was passed on:\n{head}");
    }
    // The answer neither sets nor removes our cookie, does not redirect away, and does not leak the name.
    for wanted in [
        "\r\nset-cookie: grafana_session=1; Path=/\r\n",
        "\r\nlocation: /login?a=b\r\n",
        "\r\nreferrer-policy: same-origin\r\n",
        "\r\ncontent-security-policy: frame-ancestors 'self'\r\n",
        "\r\nx-own: kept\r\n",
    ] {
        assert!(answer.contains(wanted), "{wanted:?} is missing:\n{answer}");
    }
    assert!(!answer.contains("gpucl_") && !answer.contains("clear-site-data"), "{answer}");
    // A referer of another page says nothing here.
    let foreign = open.get("/", &format!("{}Referer: http://evil.example/{host}\r\n", open.cookie)).await;
    assert!(!foreign.contains("referer"), "{foreign}");
}

#[tokio::test]
async fn other_names_and_other_pages_are_refused_even_with_the_key() {
    let open = Opened::open(page().await).await;
    let (port, host, cookie) = (open.port, &open.host, &open.cookie);
    let name = host.split(':').next().unwrap();
    for wrong in ["evil.example", name, "localhost:80", &format!("localhost:{port}"), &format!("grafana.{host}")] {
        assert_status(&open.get_at(wrong, "/", cookie).await, "421");
    }
    assert_status(&ask(port, &format!("GET / HTTP/1.1\r\n{cookie}Connection: close\r\n\r\n")).await, "400");
    for doubtful in [format!("http://{host}/"), "*".to_owned()] {
        let request = format!("OPTIONS {doubtful} HTTP/1.1\r\nHost: {host}\r\n{cookie}Connection: close\r\n\r\n");
        assert_status(&ask(port, &request).await, "400");
    }
    assert_status(&open.get("/", &format!("{cookie}Host: {host}\r\n")).await, "400");
    let bare = open.bare();
    for origin in ["null", "http://evil.example", &format!("http://{bare}"), &format!("http://grafana.{host}")] {
        assert_status(&open.get("/", &format!("{cookie}Origin: {origin}\r\n")).await, "403");
    }
    assert_status(
        &open.get("/", &format!("{cookie}Origin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n")).await,
        "200",
    );
    // No link, frame, picture or script of another page, whichever site it is of.
    for site in ["same-site", "cross-site", "unheard-of"] {
        for way in [NAVIGATES, "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n", "Sec-Fetch-Mode: no-cors\r\n"]
        {
            assert_status(&open.get("/", &format!("{cookie}Sec-Fetch-Site: {site}\r\n{way}")).await, "403");
        }
        // Nor does the key itself open it within another page.
        let frame = format!("Sec-Fetch-Site: {site}\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n");
        assert_status(&open.get(&format!("/?gpucl_key={}", open.key), &frame).await, "403");
    }
}

/// Grafana within Ray's page.
#[tokio::test]
async fn an_embedded_page_is_open_only_to_pages_of_the_run() {
    let run = PortalRun::named().unwrap();
    let shown = Page { name: "grafana".to_owned(), is_shown_by_others: true, ..page().await };
    let shown = Opened::of(Portal::open(&run, shown, None, None).await.unwrap()).await;
    let frame = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n";
    let answer = shown.get("/d/x", &format!("{}Sec-Fetch-Site: same-site\r\n{frame}", shown.cookie)).await;
    assert_status(&answer, "200");
    let parent = shown.host.split(['.', ':']).nth(1).unwrap();
    let policy = format!("\r\ncontent-security-policy: frame-ancestors 'self' http://*.{parent}.localhost:*\r\n");
    assert!(answer.contains(&policy), "{answer}");
    assert_status(&shown.get("/d/x", &format!("{}Sec-Fetch-Site: cross-site\r\n{frame}", shown.cookie)).await, "403");
    let script = format!("{}Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n", shown.cookie);
    assert_status(&shown.get("/d/x", &script).await, "403");

    // The embedding page gets the new address with the key; the rest of the answer is unchanged.
    let prefix = shown.portal.prefix();
    let ray = Page { grafana: Some(prefix.clone()), ..page().await };
    let ray = Opened::of(Portal::open(&run, ray, None, None).await.unwrap()).await;
    let reply = ray.get("/api/grafana_health", &format!("{}Accept-Encoding: gzip\r\n", ray.cookie)).await;
    let reply: serde_json::Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(reply["data"]["grafanaHost"], prefix.expose_secret());
    assert_eq!(reply["data"]["grafanaOrgId"], "1");
    let within = prefix.expose_secret().split_once(&shown.host).unwrap().1.to_owned() + "/d/x?a=1";
    let answer = shown.get(&within, &format!("Sec-Fetch-Site: same-site\r\n{frame}")).await;
    assert_status(&answer, "303");
    assert!(answer.contains("\r\nlocation: /d/x?a=1\r\n") && answer.contains("\r\nset-cookie: "), "{answer}");
}

#[tokio::test]
async fn large_bodies_and_upgrades_pass_both_ways() {
    let open = Opened::open(page().await).await;
    let (port, host, cookie) = (open.port, &open.host, &open.cookie);
    let post = format!(
        "POST /up HTTP/1.1\r\nHost: {host}\r\n{cookie}Connection: close\r\nContent-Length: {LARGE}\r\n\r\n{}",
        "x".repeat(LARGE)
    );
    let answer = ask(port, &post).await;
    assert_status(&answer, "200");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, "y".repeat(LARGE));

    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let upgrade = format!(
        "GET /socket HTTP/1.1\r\nHost: {host}\r\n{cookie}Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
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
    open.portal.close().await;
    assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn credentials_of_one_run_open_no_other() {
    let first = Opened::open(page().await).await;
    let (port, host, key, cookie) = (first.port, first.host.clone(), first.key.clone(), first.cookie.clone());
    first.portal.close().await;
    for loopback in ["127.0.0.1", "::1"] {
        assert!(TcpStream::connect((loopback, port)).await.is_err(), "something listens on {port} still");
    }
    // The port may stay.
    let second = Portal::open(&PortalRun::named().unwrap(), page().await, Some(port), None).await.unwrap();
    let second = Opened::of(second).await;
    assert_eq!((second.port, second.portal.displaced()), (port, None));
    assert_ne!((&second.host, &second.key), (&host, &key));
    assert_status(&second.get_at(&host, "/", &cookie).await, "421");
    assert_status(&second.get_at(&host, &format!("/?gpucl_key={key}"), "").await, "421");
    assert_status(&second.get("/", &cookie).await, "401");
    assert_status(&second.get(&format!("/?gpucl_key={key}"), "").await, "401");
}

/// Browsers ask `[::1]` first: who listened there would be sent the key.
#[tokio::test]
async fn a_port_is_taken_on_both_loopbacks_or_not_at_all() {
    let mut loopbacks = vec!["127.0.0.1", "::1"];
    if TcpListener::bind(("::1", 0)).await.is_err() {
        skipped("this machine has no IPv6, so nobody listens there");
        loopbacks.pop();
    }
    let open = Opened::open(page().await).await;
    for loopback in &loopbacks {
        let taken = TcpListener::bind((*loopback, open.port)).await.unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse, "{taken}");
    }
    for loopback in loopbacks {
        let somebody = TcpListener::bind((loopback, 0)).await.unwrap();
        let port = somebody.local_addr().unwrap().port();
        let run = PortalRun::named().unwrap();
        let moved = Portal::open(&run, page().await, Some(port), None).await.unwrap();
        assert_eq!(moved.displaced(), Some(port));
        assert_ne!(moved.port(), port);
        let asked = Portal::open(&run, page().await, None, Some(port)).await.unwrap_err();
        assert!(asked.hints()[0].contains("--port"), "{asked:?}");
    }
}

#[tokio::test]
async fn a_plain_page_is_at_the_loopback_address_with_key_cookie_and_credential() {
    let run = PortalRun::plain().unwrap();
    let open = Opened::of(Portal::open(&run, page().await, None, None).await.unwrap()).await;
    assert_eq!(open.host, open.bare());
    assert_status(&open.get("/", &open.cookie).await, "200");
    assert_status(&open.get("/", OWN).await, "200");
    assert_status(&open.get("/", "").await, "401");
    // A browser that was asked for the page's own login sends it along from then on.
    let both = format!("{}{OWN}Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", open.cookie, open.host);
    assert_status(&open.get("/", &both).await, "200");
    assert_status(&open.get("/", &both.replace(&open.cookie, "")).await, "401");
    for foreign in ["Origin: http://127.0.0.1:1\r\n", &format!("Sec-Fetch-Site: same-site\r\n{NAVIGATES}")] {
        assert_status(&open.get("/", &format!("{}{foreign}", open.cookie)).await, "403");
    }
}

#[tokio::test]
async fn a_page_that_is_down_is_reported_with_a_hint() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let open = Opened::open(page_at(&nobody)).await;
    let answer = open.get("/", &open.cookie).await;
    assert_status(&answer, "502");
    assert!(answer.contains("gpucl status"), "{answer}");
}

#[tokio::test]
async fn a_page_that_is_down_says_what_happened_to_who_looks_at_it() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let (ask, mut questions) = tokio::sync::mpsc::channel::<Question>(1);
    let asked = tokio::spawn(async move {
        let mut count = 0;
        while let Some(question) = questions.recv().await {
            count += 1;
            let happened = vec!["head ended <b> 9s ago; it is coming back".to_owned()];
            question.send(Down { happened, comes_back: count == 1 }).unwrap();
        }
        count
    });
    let run = PortalRun::named().unwrap().explained(ask);
    let open = Opened::of(Portal::open(&run, page_at(&nobody), None, None).await.unwrap()).await;
    // The scripts of the page ask in the background.
    let script = open.get("/api/version", &format!("{}Accept: application/json\r\n", open.cookie)).await;
    assert_status(&script, "502");
    assert!(!script.contains("head ended"), "{script}");
    let looks = format!("{}Accept: text/html,application/xhtml+xml\r\n", open.cookie);
    let (one, other) = tokio::join!(open.get("/", &looks), open.get("/", &looks));
    for answer in [one, other] {
        assert_status(&answer, "502");
        assert!(answer.contains("<p>head ended &lt;b&gt; 9s ago; it is coming back.</p>"), "{answer}");
        assert!(answer.contains("http-equiv=\"refresh\""), "{answer}");
    }
    open.portal.close().await;
    drop(run);
    assert_eq!(asked.await.unwrap(), 1, "one question for both");
}

#[tokio::test]
async fn heads_and_connections_have_their_limits() {
    let open = Opened::open(page().await).await;
    let (stream, long) = (TcpStream::connect(("127.0.0.1", open.port)).await.unwrap(), "a".repeat(70_000));
    let (mut from, mut to) = stream.into_split();
    let head = format!("GET / HTTP/1.1\r\nHost: {}\r\n{}X: {long}\r\n\r\n", open.host, open.cookie);
    let _ = to.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    // The end may come before the answer was read, since not all was taken.
    let _ = from.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer[..80]));
    assert_status(&open.get("/", &"X: a\r\n".repeat(200)).await, "431");
    // Who takes all places waits, and so do others, until one of them goes.
    let mut idle = Vec::new();
    for _ in 0..256 {
        idle.push(TcpStream::connect(("127.0.0.1", open.port)).await.unwrap());
    }
    assert!(timeout(Duration::from_millis(300), open.get("/", &open.cookie)).await.is_err(), "the 257th was served");
    idle.truncate(255);
    let answer = timeout(Duration::from_secs(30), open.get("/", &open.cookie)).await.unwrap();
    assert_status(&answer, "200");
}

/// By the clock of the test, which jumps to the next moment at which something is due.
#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_ends_the_connection() {
    let portal = Portal::open(&PortalRun::named().unwrap(), page_at("127.0.0.1:1"), None, None).await.unwrap();
    let begin = tokio::time::Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", portal.port())).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(9) && took < Duration::from_secs(30), "{took:?}");
}
