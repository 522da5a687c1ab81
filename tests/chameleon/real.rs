//! The real services of `testbed/openstack`: a separate proxy for faults, and direct requests past the program.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use gpucl::sandbox::chameleon::{Rule, User};
use serde_json::{Value, json};

use super::site::{Held, Thing};

/// Prefix of the owners in these tests: leftovers of an aborted test are recognized by it, and nothing else is touched.
pub(crate) const OWNERS: &str = "test";

/// The real services behind a proxy; what a test leaves on its hosts goes with it.
pub(crate) struct Real {
    credentials: Value,
    auth_url: String,
    control_url: String,
    proxy: Child,
    /// Leases that were made past the program.
    pub(crate) made: Mutex<Vec<String>>,
    _turn: File,
}

/// One request; the answer's status and body.
pub(crate) async fn send(token: &str, method: &str, url: &str, body: &Value) -> (u16, Value) {
    let (status, _, body) = send_all(token, method, url, body).await;
    (status, body)
}

async fn send_all(token: &str, method: &str, url: &str, body: &Value) -> (u16, String, Value) {
    // The crypto provider is set once per process; setting it again has no effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.request(method.parse().unwrap(), url).header("accept", "application/json");
    if !token.is_empty() {
        request = request.header("x-auth-token", token);
    }
    if !body.is_null() {
        request = request.json(body);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let made = answer.headers().get("x-subject-token").and_then(|token| token.to_str().ok()).unwrap_or_default();
    let made = made.to_owned();
    let text = answer.text().await.unwrap();
    (status, made, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

impl Real {
    /// Starts a proxy. One test at a time has the hosts.
    /// What is left on these hosts goes at its end.
    pub(crate) fn open() -> Self {
        Self::at(&std::env::var_os("GPUCL_OPENSTACK_ROOT").map_or("/var/tmp/gpucl-openstack".into(), PathBuf::from))
    }

    /// Likewise, for the site with this state.
    pub(crate) fn at(root: &Path) -> Self {
        let file = root.join("credentials.json");
        // Of this machine, and not of this checkout: there is one testbed.
        let turn = File::create(root.join("tests.lock")).unwrap();
        turn.lock().unwrap();
        let text = std::fs::read(&file).unwrap_or_else(|error| panic!("run testbed/openstack/up first: {error}"));
        let mut proxy = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/openstack/faults"))
            .args(["--listen", "127.0.0.1:0", "--with-parent", "--credentials"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let printed: Value = serde_json::from_str(&line).unwrap();
        let url = |key: &str| printed[key].as_str().unwrap().to_owned();
        let real = Self {
            credentials: serde_json::from_slice(&text).unwrap(),
            auth_url: url("auth_url"),
            control_url: url("control_url"),
            proxy,
            made: Mutex::default(),
            _turn: turn,
        };
        // Leftovers of an aborted test.
        assert!(real.clear_now(), "leases of earlier tests do not go");
        real
    }

    pub(crate) fn account(&self, user: User) -> &Value {
        &self.credentials["accounts"][user.name()]
    }

    /// The services' own address for logging in, past the proxy.
    pub(crate) fn auth_url(&self) -> &str {
        self.credentials["auth_url"].as_str().unwrap()
    }

    /// Where and with what a user logs in.
    pub(crate) fn login(&self, user: User) -> (String, String, String, String) {
        let kind = if user == User::AliceRestricted { "restricted" } else { "unrestricted" };
        let credential = &self.account(user)[kind];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (
            self.auth_url.clone(),
            text(&self.credentials["region_name"]),
            text(&credential["id"]),
            text(&credential["secret"]),
        )
    }

    pub(crate) async fn faults(&self, rules: &[Rule]) {
        let (status, answer) = send("", "PUT", &format!("{}/rules", self.control_url), &json!(rules)).await;
        assert!(status < 300, "{answer}");
    }

    pub(crate) async fn log(&self) -> Vec<Value> {
        let (_, log) = send("", "GET", &format!("{}/log", self.control_url), &Value::Null).await;
        log.as_array().or_else(|| log["log"].as_array()).cloned().unwrap_or_default()
    }

    async fn token(&self, user: User) -> String {
        let credential = &self.account(user)["unrestricted"];
        let body = json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential":
            {"id": credential["id"], "secret": credential["secret"]}}}});
        let url = format!("{}/auth/tokens", self.credentials["auth_url"].as_str().unwrap());
        let (status, token, answer) = send_all("", "POST", &url, &body).await;
        assert_eq!(status, 201, "{answer}");
        token
    }

    /// One request to a service, past the proxy; `path` is as at the stand-in: `/reservation/v1/leases`.
    pub(crate) async fn call(&self, user: User, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let token = self.token(user).await;
        self.call_with(&token, method, path, body).await
    }

    async fn call_with(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (service, rest) = path.trim_start_matches('/').split_once('/').unwrap();
        let base = self.credentials["services"][service].as_str().unwrap();
        // Some of the addresses have the version, some have not.
        let base = ["/v2.1", "/v1", "/v3"].iter().find_map(|end| base.strip_suffix(end)).unwrap_or(base);
        send(token, method, &format!("{base}/{rest}"), body).await
    }

    /// What a user sees of leases, servers, addresses and keys.
    pub(crate) async fn all(&self, user: User) -> Held {
        let token = self.token(user).await;
        let list = async |path: &str, key: &str| -> Vec<Value> {
            let (status, answer) = self.call_with(&token, "GET", path, &Value::Null).await;
            assert_eq!(status, 200, "{path}: {answer}");
            answer[key].as_array().cloned().unwrap_or_default()
        };
        let thing = |value: &Value, name: &str, user: &str| {
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            Thing { id: text("id"), name: text(name), status: text("status"), user: text(user) }
        };
        let me = self.account(user)["user_id"].as_str().unwrap().to_owned();
        let keys = list("/compute/v2.1/os-keypairs", "keypairs").await;
        let addresses = list("/network/v2.0/floatingips", "floatingips").await;
        Held {
            leases: list("/reservation/v1/leases", "leases")
                .await
                .iter()
                .map(|one| thing(one, "name", "user_id"))
                .collect(),
            servers: list("/compute/v2.1/servers/detail", "servers")
                .await
                .iter()
                .map(|one| thing(one, "name", "user_id"))
                .collect(),
            // Neutron does not say who created it.
            addresses: addresses
                .iter()
                .map(|one| Thing { user: me.clone(), ..thing(one, "description", "") })
                .collect(),
            keys: keys
                .iter()
                .map(|one| thing(&one["keypair"], "name", ""))
                .map(|one| Thing { id: one.name.clone(), user: me.clone(), ..one })
                .collect(),
        }
    }

    /// Deletes the leases of these tests, and with them the servers there; returns whether they are gone within minutes.
    async fn clear(&self) -> bool {
        for _ in 0..180 {
            if self.delete_leases().await == 0 {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        false
    }

    fn clear_now(&self) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.clear())
    }

    async fn delete_leases(&self) -> usize {
        let mut left = 0;
        for user in [User::Alice, User::Bob] {
            let token = self.token(user).await;
            let (_, answer) = self.call_with(&token, "GET", "/reservation/v1/leases", &Value::Null).await;
            for lease in answer["leases"].as_array().into_iter().flatten() {
                let text = |key: &str| lease[key].as_str().unwrap_or_default().to_owned();
                let is_made = self.made.lock().unwrap().contains(&text("id"));
                let is_ours = is_made || text("name").contains(&format!(" gpucl-{OWNERS}"));
                if text("status") != "TERMINATED" && is_ours {
                    let path = format!("/reservation/v1/leases/{}", lease["id"].as_str().unwrap());
                    // A starting lease refuses deletion, and is deleted at the next attempt.
                    let _ = self.call_with(&token, "DELETE", &path, &Value::Null).await;
                    left += 1;
                }
            }
        }
        left
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let is_clear = self.clear_now();
        // Our own child, which nobody else waits for.
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
        assert!(is_clear || std::thread::panicking(), "leases of this test do not go");
    }
}
