//! A real browser without a window: Chromium, driven over its debugging port.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Timeout of every wait.
const WITHIN: Duration = Duration::from_secs(20);

/// A browser with an empty profile and one tab. It ends with the test.
pub(crate) struct Browser {
    child: Child,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    calls: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) async fn start() -> Self {
        let profile = tempfile::Builder::new().prefix("gpucl-test-").tempdir().unwrap();
        let child = Command::new("chromium")
            // As root it has no sandbox of its own; it sees nothing but the pages of the tests.
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--no-proxy-server", "--disable-dev-shm-usage", "--remote-debugging-port=0"])
            // No name but those of this machine, and those by the browser's own rules.
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("this test needs Debian's package chromium: {error}"));
        let (port, path) = debugging_port(profile.path()).await;
        let (socket, _) = connect_async(format!("ws://127.0.0.1:{port}{path}")).await.unwrap();
        let mut this = Self { child, socket, session: String::new(), calls: 0, _profile: profile };
        let target = this.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = this.call("Target.attachToTarget", attach).await;
        this.session = session["sessionId"].as_str().unwrap().to_owned();
        this
    }

    /// Runs a command of the debugging protocol, and returns its result.
    pub(crate) async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).await.unwrap_or_else(|reply| panic!("{method}: {reply}"))
    }

    /// The same; an error of the browser is returned as it is.
    async fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.calls += 1;
        let number = self.calls;
        let mut call = json!({"id": number, "method": method, "params": parameters});
        if !self.session.is_empty() {
            call["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(call.to_string())).await.unwrap();
        let answer = async {
            loop {
                let message = self.socket.next().await.unwrap().unwrap();
                let Message::Text(text) = message else { continue };
                let reply: Value = serde_json::from_str(&text).unwrap();
                if reply["id"] == json!(number) {
                    return if reply["error"].is_null() { Ok(reply["result"].clone()) } else { Err(reply) };
                }
            }
        };
        timeout(WITHIN, answer).await.unwrap_or_else(|_| panic!("{method} was not answered"))
    }

    /// Types an address into the tab.
    pub(crate) async fn visit(&mut self, url: &str) {
        let reply = self.call("Page.navigate", json!({"url": url, "transitionType": "typed"})).await;
        assert!(reply["errorText"].is_null(), "{url}: {reply}");
        self.until("document.readyState === 'complete'").await;
    }

    /// Evaluates an expression in the page.
    pub(crate) async fn ask(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        // An evaluation during a navigation gets no answer, or one without a value.
        self.try_call("Runtime.evaluate", parameters)
            .await
            .map_or(Value::Null, |reply| reply["result"]["value"].clone())
    }

    /// Waits until an expression in the page is true.
    pub(crate) async fn until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.ask(expression).await != json!(true) {
            if begin.elapsed() > WITHIN {
                let page = self.ask("location.href + '\\n' + document.documentElement.outerHTML").await;
                panic!("{expression} did not come true:\n{}", page.as_str().unwrap_or_default());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The debugging port, which the browser writes into its profile.
async fn debugging_port(profile: &Path) -> (u16, String) {
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
        if let Some((port, path)) = text.split_once('\n')
            && let Ok(port) = port.parse()
        {
            return (port, path.trim().to_owned());
        }
        assert!(begin.elapsed() < WITHIN, "chromium did not say where it can be driven");
        sleep(Duration::from_millis(50)).await;
    }
}
