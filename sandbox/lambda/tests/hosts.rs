use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use super::super::{Boot, Config, Hosts};
use super::client::{Cloud, PUBLIC_KEY, cloud, id_of, with};
use crate::error::{Error, ErrorKind, Result};

/// Fake hosts that record the calls; `bad` fails to boot, `slow` takes a while, `stays` cannot be ended.
#[derive(Debug, Default)]
struct Made {
    /// The boots that have ended well, and the ends.
    calls: Mutex<Vec<String>>,
    /// The names of the hosts whose boot has begun.
    begun: Mutex<Vec<String>>,
    /// The ids of hosts that cannot be ended.
    stay: Mutex<Vec<String>>,
}

#[async_trait]
impl Hosts for Made {
    async fn boot(&self, instance: &Boot) -> Result<SocketAddr> {
        self.begun.lock().unwrap().push(instance.hostname.clone());
        if instance.hostname.starts_with("bad") {
            return Err(Error::new(ErrorKind::Internal, "boot it"));
        }
        assert_eq!((instance.public_keys.len(), instance.gpus), (1, 1));
        if instance.hostname == "slow" {
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        self.calls.lock().unwrap().push(format!("boot {} {:?}", instance.hostname, instance.user_data));
        if instance.hostname == "stays" {
            self.stay.lock().unwrap().push(instance.id.clone());
        }
        Ok("127.0.0.9:2222".parse().unwrap())
    }

    async fn end(&self, id: &str) -> Result<()> {
        if self.stay.lock().unwrap().iter().any(|stays| stays == id) {
            return Err(Error::new(ErrorKind::Internal, "end it").because("it stays"));
        }
        self.calls.lock().unwrap().push(format!("end {id}"));
        Ok(())
    }
}

async fn until(cloud: &Cloud, id: &str, status: &str) {
    for _ in 0..2000 {
        if cloud.status(id).await == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{id} never was {status}: {:?}", cloud.sandbox.snapshot());
}

#[tokio::test]
async fn hosts_start_and_end_with_their_instances() {
    let made = Arc::new(Made::default());
    let cloud = with(Config { hosts: Some(made.clone()), ..Config::prompt() }).await;
    cloud.sandbox.add_machine("somebody's", &[]);
    let id = id_of(&cloud.launch(json!({"hostname": "host1", "user_data": "#cloud-config"})).await);
    until(&cloud, &id, "active").await;
    assert_eq!(cloud.get(&format!("/instances/{id}")).await["ip"], json!("127.0.0.9"));
    let bad = id_of(&cloud.launch(json!({"hostname": "bad"})).await);
    until(&cloud, &bad, "unhealthy").await;
    assert_eq!(*made.calls.lock().unwrap(), ["boot host1 Some(\"#cloud-config\")"]);
    cloud.terminate(&id).await;
    for _ in 0..2000 {
        if made.calls.lock().unwrap().len() > 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(made.calls.lock().unwrap()[1], format!("end {id}"));
    let last = cloud.launched().await;
    until(&cloud, &last, "active").await;
    // A host that comes up while the stand-in shuts down is ended too.
    let slow = id_of(&cloud.launch(json!({"hostname": "slow"})).await);
    for _ in 0..2000 {
        if made.begun.lock().unwrap().last().is_some_and(|name| name == "slow") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cloud.sandbox.check().unwrap();
    cloud.sandbox.shutdown().await.unwrap();
    let seen = made.calls.lock().unwrap().clone();
    assert!(seen.contains(&format!("end {last}")), "{seen:?}");
    assert_eq!(seen[seen.len() - 3..].iter().filter(|line| line.starts_with("boot slow")).count(), 1, "{seen:?}");
    assert!(seen.last() == Some(&format!("end {slow}")) || seen[seen.len() - 2] == format!("end {slow}"), "{seen:?}");
}

#[tokio::test]
async fn a_host_that_cannot_be_ended_is_reported() {
    let cloud = with(Config { hosts: Some(Arc::new(Made::default())), ..Config::prompt() }).await;
    let id = id_of(&cloud.launch(json!({"hostname": "stays"})).await);
    until(&cloud, &id, "active").await;
    let error = cloud.sandbox.shutdown().await.unwrap_err();
    assert!(format!("{error:?}").contains("it stays"), "{error:?}");
}

#[tokio::test]
async fn the_control_lists_needed_hosts_and_takes_their_addresses() {
    let cloud = with(Config { wired: true, ..Config::prompt() }).await;
    let id = id_of(&cloud.launch(json!({"user_data": "#cloud-config"})).await);
    assert_eq!(cloud.status(&id).await, "booting", "it has no host yet");
    let wanted = cloud.steer("GET", "/instances", json!(null)).await.body;
    let wanted = wanted.as_array().unwrap().first().unwrap();
    assert_eq!(
        (&wanted["id"], &wanted["user_data"], &wanted["public_keys"], &wanted["gpus"], &wanted["is_wired"]),
        (&json!(id), &json!("#cloud-config"), &json!([PUBLIC_KEY]), &json!(1), &json!(false))
    );
    let wired = cloud.steer("POST", &format!("/instances/{id}"), json!({"ip": "127.0.0.5", "answers": false})).await;
    assert_eq!(wired.status, 204);
    let shown = cloud.get(&format!("/instances/{id}")).await;
    assert_eq!((&shown["status"], &shown["ip"]), (&json!("active"), &json!("127.0.0.5")));
    assert!(!cloud.sandbox.snapshot().instances[0].answers);
    cloud.steer("POST", &format!("/instances/{id}"), json!({"ip": "127.0.0.5", "answers": true})).await;
    assert!(cloud.sandbox.snapshot().instances[0].answers);
    cloud.terminate(&id).await;
    assert_eq!(cloud.steer("GET", "/instances", json!(null)).await.body, json!([]));
    assert_eq!(cloud.steer("POST", "/instances/nobody", json!({"ip": "127.0.0.5"})).await.status, 400);
    assert_eq!(cloud.steer("POST", &format!("/instances/{id}"), json!({})).await.status, 400);
}

/// Without the network, code in this process gets the same answers as over a socket.
#[tokio::test]
async fn it_answers_without_a_socket() {
    let cloud = cloud().await;
    let detached = super::super::Sandbox::detached(Config::prompt());
    assert_eq!(detached.base_url(), "");
    let asked = |key: &str, rule: Option<&str>| {
        if let Some(rule) = rule {
            detached.fault(super::super::Rule::new("GET", ".", rule)).unwrap();
        }
        let request = axum::http::Request::builder().uri("/api/v1/regions").header("authorization", key.to_owned());
        detached.answer(request.body(axum::body::Body::empty()).unwrap())
    };
    let key = format!("Bearer {}", detached.key(super::super::User::Alice));
    let answer = asked(&key, None).await;
    assert_eq!(answer.status(), 200);
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()["data"], cloud.get("/regions").await);
    assert_eq!(asked("Bearer nonsense", None).await.status(), 401);
    let cut = asked(&key, Some("cut-after")).await;
    assert!(axum::body::to_bytes(cut.into_body(), 1 << 20).await.is_err());
    assert_eq!((detached.validated().requests, detached.validated().answers), (3, 2));
}
