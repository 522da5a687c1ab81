//! A stand-in, and somebody who uses it.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::CONTROL_HEADER;
pub(super) use super::super::super::client::Reply;
use super::super::super::client::{http, sent};
use super::super::{Config, Sandbox, User};

/// A key of the right form.
pub(super) const PUBLIC_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICN+lJwsONkwrdsSnQsu1ydUkIuIg5oOC+Eslvmtt60T noname";

/// A type and a region that have some, in the default configuration.
pub(super) const KIND: &str = "gpu_1x_a10";
pub(super) const REGION: &str = "us-east-1";

pub(super) struct Cloud {
    pub(super) sandbox: Sandbox,
    http: reqwest::Client,
    key: String,
}

/// One in which nobody waits.
pub(super) async fn cloud() -> Cloud {
    with(Config::prompt()).await
}

pub(super) async fn with(config: Config) -> Cloud {
    let sandbox = Sandbox::start(config).await.unwrap();
    let key = sandbox.key(User::Alice);
    Cloud { sandbox, http: http(), key }
}

/// Lambda's times, and no limits: a clock that is turned is what makes it go on.
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

    /// As Alice; an error when there is no answer.
    pub(super) async fn tried(&self, method: &str, path: &str, body: Value) -> reqwest::Result<Reply> {
        let url = format!("{}/api/v1{path}", self.sandbox.base_url());
        let authorization = format!("Bearer {}", self.key);
        sent(&self.http, method, &url, &[("authorization", &authorization)], body).await
    }

    pub(super) async fn call(&self, method: &str, path: &str, body: Value) -> Reply {
        self.tried(method, path, body).await.unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        let told = self.call("GET", path, Value::Null).await;
        assert_eq!(told.status, 200, "{told:?}");
        told.body["data"].clone()
    }

    pub(super) async fn steer(&self, method: &str, path: &str, body: Value) -> Reply {
        let url = format!("{}{path}", self.sandbox.control_url());
        let secret = (CONTROL_HEADER, self.sandbox.control_secret());
        sent(&self.http, method, &url, &[secret], body).await.unwrap()
    }

    /// A launch with a key that is there.
    pub(super) fn asked(&self) -> Value {
        if self.sandbox.snapshot().ssh_keys.is_empty() {
            self.sandbox.add_ssh_key("ours", PUBLIC_KEY);
        }
        json!({"region_name": REGION, "instance_type_name": KIND, "ssh_key_names": ["ours"]})
    }

    /// The same, and more.
    pub(super) async fn launch(&self, more: Value) -> Reply {
        let mut asked = self.asked();
        for (name, value) in more.as_object().into_iter().flatten() {
            asked[name] = value.clone();
        }
        self.call("POST", "/instance-operations/launch", asked).await
    }

    /// The id of one that was launched.
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
pub(super) fn id_of(told: &Reply) -> String {
    assert_eq!(told.status, 200, "{told:?}");
    told.body["data"]["instance_ids"][0].as_str().unwrap().to_owned()
}

/// An error with this status and code.
#[track_caller]
pub(super) fn refused(told: &Reply, status: u16, code: &str) {
    assert_eq!((told.status, told.body["error"]["code"].as_str()), (status, Some(code)), "{told:?}");
    assert!(told.body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{told:?}");
}
