//! A client for the tests of the stand-in.

use serde_json::{Value, json};

use super::super::super::CONTROL_HEADER;
pub(super) use super::super::super::client::Reply;
use super::super::super::client::{http, sent};
use super::super::{Config, Sandbox, User};

/// A stand-in with a client.
pub(super) struct Site {
    pub(super) sandbox: Sandbox,
    http: reqwest::Client,
    token: String,
}

pub(super) async fn site() -> Site {
    with(Config::default()).await
}

pub(super) async fn with(config: Config) -> Site {
    let sandbox = Sandbox::start(config).await.unwrap();
    let token = sandbox.token(User::Alice);
    Site { sandbox, http: http(), token }
}

impl Site {
    pub(super) async fn send(&self, token: &str, method: &str, path: &str, body: Value) -> reqwest::Result<Reply> {
        let url = format!("{}{path}", self.sandbox.auth_url().strip_suffix("/identity/v3").unwrap());
        let headers = [("x-auth-token", token)];
        sent(&self.http, method, &url, if token.is_empty() { &[] } else { &headers }, body).await
    }

    pub(super) async fn call(&self, method: &str, path: &str, body: Value) -> Reply {
        self.send(&self.token, method, path, body).await.unwrap()
    }

    /// Asks the control, as who holds its secret.
    pub(super) async fn steer(&self, method: &str, path: &str, body: Value) -> Reply {
        let url = format!("{}{path}", self.sandbox.control_url());
        let secret = (CONTROL_HEADER, self.sandbox.control_secret());
        sent(&self.http, method, &url, &[secret], body).await.unwrap()
    }

    pub(super) async fn by(&self, user: User, method: &str, path: &str, body: Value) -> Reply {
        self.send(&self.sandbox.token(user), method, path, body).await.unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, Value::Null).await
    }

    /// A time so many hours from now, as Blazar reads it.
    pub(super) fn hour(&self, hours: i64) -> String {
        (self.sandbox.now() + jiff::SignedDuration::from_hours(hours)).strftime("%Y-%m-%d %H:%M").to_string()
    }

    pub(super) fn asked(&self, node: &str, start: &str, end: &str) -> Value {
        json!({"name": "gpucl-test", "start_date": start, "end_date": end, "events": [], "reservations": [{
            "resource_type": "physical:host", "min": 1, "max": 1, "hypervisor_properties": "",
            "resource_properties": format!("[\"==\", \"$node_name\", \"{node}\"]")}]})
    }

    pub(super) async fn lease(&self, node: &str, start: &str, end: &str) -> Reply {
        self.call("POST", "/reservation/v1/leases", self.asked(node, start, end)).await
    }

    /// An ACTIVE lease: its id and its reservation's.
    pub(super) async fn active(&self, node: &str) -> (String, String) {
        let made = self.lease(node, "now", &self.hour(3)).await;
        assert_eq!(made.status, 201, "{made:?}");
        let lease = &made.body["lease"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (id, reservation) = (text(&lease["id"]), text(&lease["reservations"][0]["id"]));
        self.until(&format!("/reservation/v1/leases/{id}"), |reply| reply.body["lease"]["status"] == "ACTIVE").await;
        (id, reservation)
    }

    pub(super) async fn until(&self, path: &str, is_so: impl Fn(&Reply) -> bool) -> Reply {
        for _ in 0..4000 {
            let reply = self.get(path).await;
            if is_so(&reply) {
                return reply;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{path} never was so: {:?}", self.get(path).await)
    }

    pub(super) async fn network(&self, name: &str) -> String {
        let reply = self.get(&format!("/network/v2.0/networks?name={name}")).await;
        reply.body["networks"][0]["id"].as_str().unwrap().to_owned()
    }

    pub(super) async fn server_asked(&self, reservation: Option<&str>) -> Value {
        let image = self.get("/image/v2/images?name=CC-Ubuntu24.04-CUDA").await.body["images"][0]["id"].clone();
        let mut body = json!({"server": {"name": "gpucl-test", "imageRef": image, "flavorRef": "baremetal", "min_count": 1,
            "max_count": 1, "networks": [{"uuid": self.network("sharednet1").await}], "metadata": {"gpucl": "tag"}}});
        if let Some(reservation) = reservation {
            body["os:scheduler_hints"] = json!({"reservation": reservation});
        }
        body
    }

    /// Creates a server, and waits until it leaves BUILD.
    pub(super) async fn server(&self, reservation: Option<&str>) -> Value {
        let made = self.call("POST", "/compute/v2.1/servers", self.server_asked(reservation).await).await;
        assert_eq!(made.status, 202, "{made:?}");
        let path = format!("/compute/v2.1/servers/{}", made.body["server"]["id"].as_str().unwrap());
        self.until(&path, |reply| reply.body["server"]["status"] != "BUILD").await.body["server"].take()
    }

    pub(super) async fn floating(&self) -> Reply {
        let network = self.network("public").await;
        let body = json!({"floatingip": {"floating_network_id": network, "description": "gpucl-tag"}});
        self.call("POST", "/network/v2.0/floatingips", body).await
    }
}

#[track_caller]
pub(super) fn says(reply: &Reply, status: u16, body: Value) {
    assert_eq!((reply.status, &reply.body), (status, &body));
}

/// Expects an error in Blazar's format.
#[track_caller]
pub(super) fn blazar(reply: &Reply, status: u16, text: &str) {
    says(reply, status, json!({"error_code": status, "error_message": text, "error_name": status}));
}
