//! The services of one row of the matrix: a stand-in of its own, or the real ones behind a proxy of its own. Inspected
//! past the program.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use gpucl::sandbox::CONTROL_HEADER;
use gpucl::sandbox::chameleon::{Config, Sandbox, User};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::matrix::Cloud as _;

/// The host of all rows, unless `GPUCL_MATRIX_NODE` names another.
const NODE: &str = "c03-04";

/// How long a host may be in use by others.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20 * 60);

enum Running {
    StandIn { sandbox: Sandbox },
    External,
    Real(Child),
}

/// Services, as Alice.
pub(crate) struct Services {
    pub(crate) auth_url: String,
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) secret: String,
    /// The host that is booked and booted.
    pub(crate) node: String,
    pub(crate) user_id: String,
    control: String,
    /// What a stand-in's control wants; the testbed's wants nothing.
    control_secret: String,
    /// Past the faults: identity, reservation, compute, network.
    direct: [String; 4],
    running: Running,
    client: reqwest::Client,
    token: tokio::sync::OnceCell<String>,
    /// Resources made by hand that no row may touch; at shared services these are the only ones known to stay.
    kept: std::sync::Mutex<Vec<String>>,
}

/// Something that the services hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thing {
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    /// Where its tag is: the end of a lease's name, a key pair's name, a description, metadata.
    pub(crate) label: String,
    /// When it ends; leases only.
    pub(crate) end: String,
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap()
}

/// One test at a time uses the hosts of the real services.
pub(crate) fn turn() -> std::fs::File {
    let file = std::fs::File::create(concat!(env!("CARGO_TARGET_TMPDIR"), "/chameleon.lock")).unwrap();
    file.lock().unwrap();
    file
}

/// Where the real services say how they are reached.
fn credentials_file() -> PathBuf {
    let root =
        std::env::var_os("GPUCL_OPENSTACK_ROOT").map_or_else(|| "/var/tmp/gpucl-openstack".into(), PathBuf::from);
    root.join("credentials.json")
}

impl Services {
    pub(crate) async fn stand_in() -> Self {
        Self::stand_in_with(Config::default()).await
    }

    pub(crate) async fn stand_in_with(config: Config) -> Self {
        let sandbox = Sandbox::start(config).await.unwrap();
        let credentials = sandbox.credentials(User::Alice);
        let base = sandbox.auth_url().strip_suffix("/identity/v3").unwrap().to_owned();
        let at = |path: &str| format!("{base}{path}");
        Self {
            auth_url: sandbox.auth_url(),
            region: sandbox.region(),
            id: credentials.id,
            secret: credentials.secret,
            node: NODE.to_owned(),
            user_id: credentials.user_id,
            control: sandbox.control_url(),
            control_secret: sandbox.control_secret().to_owned(),
            direct: [at("/identity/v3"), at("/reservation/v1"), at("/compute/v2.1"), at("/network/v2.0")],
            running: Running::StandIn { sandbox },
            client: client(),
            token: tokio::sync::OnceCell::new(),
            kept: std::sync::Mutex::default(),
        }
    }

    /// The real ones, by a proxy with faults that ends with this process.
    pub(crate) fn real() -> Self {
        let file = credentials_file();
        let testbed: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let mut child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/openstack/faults"))
            .args(["--listen", "127.0.0.1:0", "--with-parent", "--credentials"])
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let proxy: Value = serde_json::from_str(&line).unwrap();
        let text = |value: &Value| value.as_str().unwrap().trim_end_matches('/').to_owned();
        let alice = &testbed["accounts"]["alice"];
        let services = &testbed["services"];
        Self {
            auth_url: text(&proxy["auth_url"]),
            region: text(&testbed["region_name"]),
            id: text(&alice["unrestricted"]["id"]),
            secret: text(&alice["unrestricted"]["secret"]),
            node: std::env::var("GPUCL_MATRIX_NODE").unwrap_or_else(|_| NODE.to_owned()),
            user_id: text(&alice["user_id"]),
            control: text(&proxy["control_url"]),
            control_secret: String::new(),
            direct: [
                text(&services["identity"]),
                text(&services["reservation"]),
                text(&services["compute"]),
                format!("{}/v2.0", text(&services["network"])),
            ],
            running: Running::Real(child),
            client: client(),
            token: tokio::sync::OnceCell::new(),
            kept: std::sync::Mutex::default(),
        }
    }

    pub(crate) fn is_real(&self) -> bool {
        matches!(self.running, Running::Real(_))
    }

    /// A token for inspections, created once.
    async fn token(&self) -> String {
        self.token.get_or_init(|| self.new_token()).await.clone()
    }

    async fn new_token(&self) -> String {
        let body = json!({"auth": {"identity": {"methods": ["application_credential"],
            "application_credential": {"id": self.id, "secret": self.secret}}}});
        let answer = self.client.post(format!("{}/auth/tokens", self.direct[0])).json(&body).send().await.unwrap();
        answer.headers()["x-subject-token"].to_str().unwrap().to_owned()
    }

    /// One request past faults and program: `reservation`, `compute` or `network`.
    pub(crate) async fn ask(&self, method: Method, service: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let base = match service {
            "reservation" => &self.direct[1],
            "compute" => &self.direct[2],
            _ => &self.direct[3],
        };
        let mut request = self.client.request(method, format!("{base}{path}"));
        request = request.header("X-Auth-Token", self.token().await).header("Accept", "application/json");
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }

    /// One request through the faults, as by a client that checks nothing. `None` without an answer.
    pub(crate) async fn post_blindly(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let url = format!("{}{path}", self.auth_url.strip_suffix("/identity/v3").unwrap());
        let request = self.client.post(url).header("X-Auth-Token", self.token().await).json(body);
        let answer = request.header("Accept", "application/json").send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, serde_json::from_slice(&answer.bytes().await.ok()?).unwrap_or_default()))
    }

    fn steer(&self, method: Method, what: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}/{what}", self.control)).header(CONTROL_HEADER, &self.control_secret)
    }

    /// Replaces the injected faults.
    pub(crate) async fn rules(&self, rules: &[Value]) {
        let answer = self.steer(Method::PUT, "rules").json(rules).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    pub(crate) async fn forget_log(&self) {
        let _ = self.steer(Method::DELETE, "log").send().await.unwrap();
    }

    pub(crate) async fn log(&self) -> Vec<Value> {
        let answer = self.steer(Method::GET, "log").send().await.unwrap();
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    /// How many things were made: requests that took effect, whatever was answered.
    pub(crate) async fn made(&self, kind: &str) -> usize {
        let path = match kind {
            "lease" => "/leases",
            "key_pair" => "/os-keypairs",
            "floating_ip" => "/floatingips",
            _ => "/servers",
        };
        let took_effect = |entry: &&Value| {
            let status = entry["service_status"].as_u64().or(entry["status"].as_u64()).unwrap_or(0);
            let is_success = (200..300).contains(&status);
            match entry["fault"].as_str().and_then(|fault| fault.split(':').next()) {
                None => is_success,
                // The stand-in does not show what it would have answered.
                Some("cut-after" | "after" | "malformed") => entry["service_status"].is_null() || is_success,
                Some(_) => false,
            }
        };
        let is_it = |entry: &&Value| entry["method"] == "POST" && entry["path"].as_str().unwrap().ends_with(path);
        self.log().await.iter().filter(is_it).filter(took_effect).count()
    }

    pub(crate) fn kept(&self) -> Vec<String> {
        self.kept.lock().unwrap().clone()
    }

    /// Deletes the resources made by hand.
    pub(crate) async fn remove_kept(&self) {
        for thing in self.not_ours().await {
            self.remove(&thing).await;
        }
    }

    /// Makes a key pair that no row may touch.
    pub(crate) async fn add_key(&self, name: &str) {
        let public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG3kRkzRHAVtbvzPvEDvXNHXFpGd1f0DZ1VqHlHz5mhP x";
        let body = json!({"keypair": {"name": name, "public_key": public}});
        let (status, answer) = self.ask(Method::POST, "compute", "/os-keypairs", Some(body)).await;
        assert!(status < 300, "{answer}");
        self.kept.lock().unwrap().push(name.to_owned());
    }

    /// Makes an address that no row may touch.
    pub(crate) async fn add_address(&self, description: &str) {
        let body = self.new_address(description).await;
        let (status, answer) = self.ask(Method::POST, "network", "/floatingips", Some(body)).await;
        assert!(status < 300, "{answer}");
    }

    /// Makes an address that leads to a server of this user, which gpucl knows nothing of.
    pub(crate) async fn add_used_address(&self, description: &str) -> String {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let lease = self.add_lease("his", 60).await;
        let image =
            self.ask(Method::GET, "compute", "/servers/detail", None).await.1["servers"][0]["image"]["id"].clone();
        let network =
            self.ask(Method::GET, "network", "/networks?name=sharednet1", None).await.1["networks"][0]["id"].clone();
        let active = loop {
            let active =
                self.ask(Method::GET, "reservation", &format!("/leases/{lease}"), None).await.1["lease"].clone();
            if active["status"] == "ACTIVE" {
                break active;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        };
        let body = json!({"server": {"name": "his", "imageRef": image, "flavorRef": "baremetal", "min_count": 1, "max_count": 1,
            "networks": [{"uuid": network}]}, "os:scheduler_hints": {"reservation": active["reservations"][0]["id"]}});
        let (status, server) = self.ask(Method::POST, "compute", "/servers", Some(body)).await;
        assert_eq!(status, 202, "{server}");
        let ports = format!("/ports?device_id={}", text(&server["server"]["id"]));
        let port = loop {
            let port = self.ask(Method::GET, "network", &ports, None).await.1["ports"][0]["id"].clone();
            if port.is_string() {
                break port;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        };
        let body = self.new_address(description).await;
        let id = text(&self.ask(Method::POST, "network", "/floatingips", Some(body)).await.1["floatingip"]["id"]);
        let body = json!({"floatingip": {"port_id": port}});
        let (status, answer) = self.ask(Method::PUT, "network", &format!("/floatingips/{id}"), Some(body)).await;
        assert_eq!(status, 200, "{answer}");
        id
    }

    /// Creates an address with the same description and tags as this one.
    pub(crate) async fn add_copied_address(&self, of: &str) -> String {
        let seen = self.ask(Method::GET, "network", &format!("/floatingips/{of}"), None).await.1["floatingip"].clone();
        let body = self.new_address(seen["description"].as_str().unwrap()).await;
        let made = self.ask(Method::POST, "network", "/floatingips", Some(body)).await.1["floatingip"].clone();
        let id = made["id"].as_str().unwrap().to_owned();
        let body = json!({"tags": seen["tags"]});
        let (status, answer) = self.ask(Method::PUT, "network", &format!("/floatingips/{id}/tags"), Some(body)).await;
        assert_eq!(status, 200, "{answer}");
        id
    }

    /// The same services as another user.
    pub(crate) fn as_bob(&self) -> Option<Self> {
        let Running::StandIn { sandbox } = &self.running else { return None };
        let credentials = sandbox.credentials(User::Bob);
        Some(Self {
            id: credentials.id,
            secret: credentials.secret,
            node: self.node.clone(),
            user_id: credentials.user_id,
            auth_url: self.auth_url.clone(),
            region: self.region.clone(),
            control: self.control.clone(),
            control_secret: self.control_secret.clone(),
            direct: self.direct.clone(),
            running: Running::External,
            client: self.client.clone(),
            token: tokio::sync::OnceCell::new(),
            kept: std::sync::Mutex::default(),
        })
    }

    pub(crate) async fn new_address(&self, description: &str) -> Value {
        let networks = self.ask(Method::GET, "network", "/networks?name=public", None).await.1;
        json!({"floatingip": {"floating_network_id": networks["networks"][0]["id"], "description": description}})
    }

    /// Makes a lease from now on as a person does in the web form.
    pub(crate) async fn add_lease(&self, name: &str, minutes: i64) -> String {
        self.add_lease_in(name, 0, minutes).await
    }

    /// The same, starting `hours` from now.
    pub(crate) async fn add_lease_in(&self, name: &str, hours: i64, minutes: i64) -> String {
        let at = |by: jiff::SignedDuration| (jiff::Timestamp::now() + by).strftime("%Y-%m-%d %H:%M").to_string();
        let from = jiff::SignedDuration::from_hours(hours);
        let start = if hours == 0 { "now".to_owned() } else { at(from) };
        let end = at(from + jiff::SignedDuration::from_mins(minutes));
        let body = json!({"name": name, "start_date": start, "end_date": end,
            "events": [], "before_end_date": "", "reservations": [{"resource_type": "physical:host", "min": 1, "max": 1,
            "hypervisor_properties": "", "resource_properties": format!("[\"=\", \"$node_name\", \"{}\"]", self.node)}]});
        let begun = std::time::Instant::now();
        let answer = loop {
            let (status, answer) = self.ask(Method::POST, "reservation", "/leases", Some(body.clone())).await;
            if status < 300 {
                break answer;
            }
            // Others use the hosts as well, one after the other.
            assert!(self.is_real() && begun.elapsed() < PATIENCE, "{answer}");
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        };
        let id = answer["lease"]["id"].as_str().unwrap().to_owned();
        self.kept.lock().unwrap().push(id.clone());
        id
    }

    /// Deletes a resource that a test created directly, and waits until it is gone.
    pub(crate) async fn remove(&self, thing: &Thing) {
        let (service, path) = match thing.kind {
            "lease" => ("reservation", format!("/leases/{}", thing.id)),
            "key_pair" => ("compute", format!("/os-keypairs/{}", thing.id)),
            "floating_ip" => ("network", format!("/floatingips/{}", thing.id)),
            _ => ("compute", format!("/servers/{}", thing.id)),
        };
        for _ in 0..60 {
            self.ask(Method::DELETE, service, &path, None).await;
            if !self.held().await.iter().any(|held| held.kind == thing.kind && held.id == thing.id) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        panic!("{thing:?} does not go");
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        if let Running::Real(child) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
