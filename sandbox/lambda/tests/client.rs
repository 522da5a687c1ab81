//! A stand-in with a client.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::CONTROL_HEADER;
pub(super) use super::super::super::client::Reply;
use super::super::super::client::{http, sent};
use super::super::{Config, Sandbox, User};

/// A valid public key.
pub(super) const PUBLIC_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICN+lJwsONkwrdsSnQsu1ydUkIuIg5oOC+Eslvmtt60T noname";

/// A type and a region with capacity, in the default configuration.
pub(super) const KIND: &str = "gpu_1x_a10";
pub(super) const REGION: &str = "us-east-1";

pub(super) struct Cloud {
    pub(super) sandbox: Sandbox,
    http: reqwest::Client,
    key: String,
}

/// A stand-in without limits and delays.
pub(super) async fn cloud() -> Cloud {
    with(Config::prompt()).await
}

pub(super) async fn with(config: Config) -> Cloud {
    let sandbox = Sandbox::start(config).await.unwrap();
    let key = sandbox.key(User::Alice);
    Cloud { sandbox, http: http(), key }
}

/// Lambda's delays without its limits: tests move the clock forward.
pub(super) fn slow() -> Config {
    Config {
        boot: Duration::from_secs(240),
        address: Duration::from_secs(90),
        terminating: Duration::from_secs(40),
        ..Config::prompt()
    }
}

impl Cloud {
    pub(super) async fn send(&self, authorization: &str, method: &str, path: &str, body: Value) -> Reply {
        let url = format!("{}/api/v1{path}", self.sandbox.base_url());
        sent(&self.http, method, &url, &[("authorization", authorization)], body).await.unwrap()
    }

    /// A request of Alice; fails without an answer.
    pub(super) async fn tried(&self, method: &str, path: &str, body: Value) -> reqwest::Result<Reply> {
        let url = format!("{}/api/v1{path}", self.sandbox.base_url());
        let authorization = format!("Bearer {}", self.key);
        sent(&self.http, method, &url, &[("authorization", &authorization)], body).await
    }

    pub(super) async fn call(&self, method: &str, path: &str, body: Value) -> Reply {
        self.tried(method, path, body).await.unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        let reply = self.call("GET", path, Value::Null).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.body["data"].clone()
    }

    pub(super) async fn steer(&self, method: &str, path: &str, body: Value) -> Reply {
        let url = format!("{}{path}", self.sandbox.control_url());
        let secret = (CONTROL_HEADER, self.sandbox.control_secret());
        sent(&self.http, method, &url, &[secret], body).await.unwrap()
    }

    /// A launch request with a key that exists.
    pub(super) fn asked(&self) -> Value {
        if self.sandbox.snapshot().ssh_keys.is_empty() {
            self.sandbox.add_ssh_key("ours", PUBLIC_KEY);
        }
        json!({"region_name": REGION, "instance_type_name": KIND, "ssh_key_names": ["ours"]})
    }

    /// Launches with additional fields.
    pub(super) async fn launch(&self, more: Value) -> Reply {
        let mut asked = self.asked();
        for (name, value) in more.as_object().into_iter().flatten() {
            asked[name] = value.clone();
        }
        self.call("POST", "/instance-operations/launch", asked).await
    }

    /// Launches an instance, and returns its id.
    pub(super) async fn launched(&self) -> String {
        id_of(&self.launch(json!({})).await)
    }

    pub(super) async fn terminate(&self, id: &str) -> Reply {
        self.call("POST", "/instance-operations/terminate", json!({"instance_ids": [id]})).await
    }

    pub(super) async fn status(&self, id: &str) -> String {
        self.get(&format!("/instances/{id}")).await["status"].as_str().unwrap().to_owned()
    }
}

#[track_caller]
pub(super) fn id_of(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.body["data"]["instance_ids"][0].as_str().unwrap().to_owned()
}

/// Expects an error with this status and code.
#[track_caller]
pub(super) fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status, reply.body["error"]["code"].as_str()), (status, Some(code)), "{reply:?}");
    assert!(reply.body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{reply:?}");
}
