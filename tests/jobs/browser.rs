//! The portal in a real browser.

#![expect(clippy::unwrap_used, reason = "what a test stands on may fail it")]

use std::sync::{Arc, Mutex};

use gpucl::cli::portal::{Page, Portal, PortalRun, Upstream, open_browser};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::support::Browser;

/// A small server that keeps what it was sent. It answers by a function of the head.
struct Site {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start(answer: impl Fn(&str) -> (u16, String, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&heads));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&kept)));
            }
        });
        Self { port, heads }
    }

    /// What came so far.
    fn came(&self) -> String {
        self.heads.lock().unwrap().concat()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: Arc<impl Fn(&str) -> (u16, String, String)>,
    kept: Arc<Mutex<Vec<String>>>,
) {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    kept.lock().unwrap().push(head.clone());
    let (status, headers, body) = answer(&head);
    if status == 101 {
        let text = format!("HTTP/1.1 101 x\r\n{headers}Connection: upgrade\r\n\r\n");
        // A text of four letters, not masked, and the end of it all later.
        let _ = stream.write_all(&[text.as_bytes(), b"\x81\x04live"].concat()).await;
        let _ = stream.read_buf(&mut bytes).await;
        return;
    }
    let text = format!(
        "HTTP/1.1 {status} x\r\nContent-Type: text/html\r\nContent-Length: {}\r\n{headers}Connection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
}

fn page(name: &str, site: &Site) -> Page {
    Page {
        name: name.to_owned(),
        address: format!("127.0.0.1:{}", site.port),
        upstream: Upstream::Here(format!("127.0.0.1:{}", site.port)),
        inject: None,
        credentials: Vec::new(),
        is_shown_by_others: false,
        grafana: None,
    }
}

async fn open(run: &PortalRun, page: Page) -> Portal {
    Portal::open(run, page, None, None).await.unwrap()
}

fn address(portal: &Portal) -> String {
    portal.url().split("/?").next().unwrap().to_owned()
}

fn is_by_ray(head: &str) -> bool {
    head.contains("authorization: Bearer cluster-token\r\n")
}

/// A page without it is asked for `/favicon.ico`, at any later moment: the tests count requests.
const NO_ICON: &str = "<link rel=icon href='data:,'>";

/// A minimal version of Ray's page: its data needs the token, and it embeds Grafana from the given address.
async fn ray() -> Site {
    Site::start(|head| {
        if !is_by_ray(head) {
            return (401, String::new(), "no token".to_owned());
        }
        if head.starts_with("GET /api/grafana_health ") {
            return (200, String::new(), r#"{"data":{"grafanaHost":"http://127.0.0.1:3000"}}"#.to_owned());
        }
        let script = "addEventListener('message', said => document.title = said.data);\
            fetch('/api/grafana_health').then(reply => reply.json()).then(reply => {\
            let frame = document.createElement('iframe'); frame.src = reply.data.grafanaHost + '/d/ray?panelId=1';\
            document.body.append(frame) })";
        (200, String::new(), format!("<title>ray</title>{NO_ICON}<body>the real page<script>{script}</script>"))
    })
    .await
}

fn ray_page(site: &Site) -> Page {
    Page { inject: Some("Bearer cluster-token".to_owned().into()), ..page("dashboard", site) }
}

/// A stand-in for Grafana. Like the real one, it keeps the login in a strict cookie, and talks only to its own address.
async fn grafana() -> Site {
    Site::start(|head| {
        let host = header(head, "host").unwrap_or_default();
        if head.starts_with("GET /login ") {
            let cookie = "Set-Cookie: grafana_session=abc; Path=/; HttpOnly; SameSite=Strict\r\n".to_owned();
            return (200, cookie, "<title>logged in</title>".to_owned());
        }
        if header(head, "cookie") != Some("grafana_session=abc") {
            return (
                200,
                String::new(),
                "<title>log in</title><script>parent.postMessage('log in', '*')</script>".into(),
            );
        }
        if let Some(key) = header(head, "sec-websocket-key") {
            if header(head, "origin") != Some(&format!("http://{host}")) {
                return (403, String::new(), String::new());
            }
            let accept = derive_accept_key(key.as_bytes());
            return (101, format!("Upgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n"), String::new());
        }
        let script = "let live = new WebSocket('ws://' + location.host + '/api/live/ws');\
            live.onmessage = said => parent.postMessage('panel ' + said.data, '*')";
        (200, String::new(), format!("<title>panel</title><script>{script}</script>"))
    })
    .await
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "testbed"]
async fn no_other_server_of_this_machine_gets_or_uses_the_cookie() {
    let ray = ray().await;
    let run = PortalRun::named().unwrap();
    let portal = open(&run, ray_page(&ray)).await;
    let target = address(&portal);
    let bare = format!("http://127.0.0.1:{}", portal.port());
    // It even knows the name of the run, which it cannot.
    let page = move |target: &str| {
        format!(
            "<title>stranger</title><a id=link href='{target}/linked'>x</a><iframe src='{target}/framed'></iframe>\
             <img src='{target}/image'><script src='{target}/script'></script>\
             <form id=form method=post action='{target}/posted'></form>\
             <script>fetch('{target}/fetched', {{mode: 'no-cors', credentials: 'include'}}).catch(() => 0);\
             new WebSocket('{target}/socket'.replace('http', 'ws'))</script>"
        )
    };
    let pages = format!("{}{}", page(&target), page(&bare));
    let stranger = Site::start(move |_| (200, String::new(), pages.clone())).await;

    let mut browser = Browser::start().await;
    browser.visit(&portal.url()).await;
    browser.until("document.title === 'ray'").await;
    assert_eq!(browser.ask("location.href").await, format!("{target}/"), "the key left the address");
    assert_eq!(browser.ask("document.cookie").await, "", "no script reads the cookie");
    let before = ray.came().len();
    for name in ["127.0.0.1", "localhost", "other.localhost"] {
        for act in ["link').click()", "form').submit()"] {
            browser.visit(&format!("http://{name}:{}/", stranger.port)).await;
            browser.until("document.title === 'stranger'").await;
            browser.ask(&format!("document.getElementById('{act}")).await;
            browser.until("document.title.startsWith('gpucl: 403')").await;
        }
    }
    assert_eq!(&ray.came()[before..], "", "a request of another server's page was passed on");
    let cookies: Vec<String> =
        stranger.came().lines().filter(|line| line.starts_with("Cookie")).map(str::to_owned).collect();
    assert!(!stranger.came().contains("gpucl_"), "another server got our cookie: {cookies:?}");
    // The page itself is open as before.
    browser.visit(&target).await;
    browser.until("document.title === 'ray'").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "testbed"]
async fn grafana_works_within_rays_page_with_its_strict_cookie() {
    let (ray, grafana) = (ray().await, grafana().await);
    let mut browser = Browser::start().await;
    for run in [PortalRun::named().unwrap(), PortalRun::plain().unwrap()] {
        let shown = Page { is_shown_by_others: true, ..page("grafana", &grafana) };
        let shown = open(&run, shown).await;
        let portal = open(&run, Page { grafana: Some(shown.prefix()), ..ray_page(&ray) }).await;
        // Without a login, Ray's page shows Grafana's login form: the frame itself is let in.
        browser.visit(&portal.url()).await;
        browser.until("document.title === 'log in'").await;
        browser.visit(&shown.url().replace("/?", "/login?")).await;
        browser.until("document.title === 'logged in'").await;
        browser.visit(&address(&portal)).await;
        // The panel, and what is sent to it live.
        browser.until("document.title === 'panel live'").await;
        let asked = grafana.came();
        assert!(!asked.contains("gpucl_") && !asked.contains(".gpucl") && !asked.contains(".localhost"), "{asked}");
    }
}

/// The address from a file, as `gpucl dashboard` opens the browser, and typed into a second one; then a new run.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "testbed"]
async fn a_file_opens_the_page_and_a_new_run_opens_to_nothing_old() {
    let ray = ray().await;
    let portal = open(&PortalRun::named().unwrap(), ray_page(&ray)).await;
    let (old, port) = (portal.url(), portal.port());
    let folder = tempfile::Builder::new().prefix("gpucl-test-").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let opener = open_browser("true", &old, folder.path()).unwrap();
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let mut browser = Browser::start().await;
    browser.visit(&format!("file://{}", file.display())).await;
    browser.until("document.title === 'ray'").await;
    assert_eq!(browser.ask("location.href").await, format!("{}/", address(&portal)));
    drop(opener);
    assert!(!file.exists(), "the file with the key is gone");
    portal.close().await;

    let run = PortalRun::named().unwrap();
    let portal = Portal::open(&run, ray_page(&ray), Some(port), None).await.unwrap();
    assert_eq!(portal.port(), port);
    let before = ray.came().len();
    for url in [old.clone(), old.split('?').next().unwrap().to_owned()] {
        browser.visit(&url).await;
        browser.until("document.title.startsWith('gpucl: 421')").await;
    }
    browser.visit(&address(&portal)).await;
    browser.until("document.title.startsWith('gpucl: 401')").await;
    assert_eq!(&ray.came()[before..], "");
    browser.visit(&portal.url()).await;
    browser.until("document.title === 'ray'").await;
}
