use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Config, User};
use super::client::{says, site, with};

const NO_HOST: &str = "No valid host was found. There are not enough hosts available.";

#[tokio::test]
async fn a_server_comes_up_on_the_reserved_host() {
    let site = site().await;
    let (_, reservation) = site.active("liqid02").await;
    let server = site.server(Some(&reservation)).await;
    assert_eq!((&server["status"], &server["metadata"]), (&json!("ACTIVE"), &json!({"gpucl": "tag"})));
    assert_eq!(server["OS-EXT-AZ:availability_zone"], format!("blazar_{reservation}"));
    assert_eq!(server["addresses"]["sharednet1"][0]["OS-EXT-IPS:type"], "fixed");
    assert_eq!(site.sandbox.snapshot().servers[0].host.as_deref(), Some("liqid02"));
}

#[tokio::test]
async fn a_bad_hint_is_accepted_and_ends_in_error() {
    let site = site().await;
    let made = site.lease("liqid01", &site.hour(1), &site.hour(3)).await;
    let pending = made.body["lease"]["reservations"][0]["id"].as_str().unwrap().to_owned();
    let (lease, full) = site.active("liqid02").await;
    site.server(Some(&full)).await;
    for hint in [pending.as_str(), full.as_str(), lease.as_str(), "nonsense"] {
        let server = site.server(Some(hint)).await;
        assert_eq!(server["status"], "ERROR");
        assert_eq!((&server["fault"]["code"], &server["fault"]["message"]), (&json!(500), &json!(NO_HOST)));
        assert_eq!((&server["hostId"], &server["addresses"]), (&json!(""), &json!({})));
        let path = format!("/compute/v2.1/servers/{}", server["id"].as_str().unwrap());
        assert_eq!(site.call("DELETE", &path, Value::Null).await.status, 204);
        site.until(&path, |reply| reply.status == 404).await;
    }
    // Without a hint it goes to a host outside Blazar, while one is free.
    assert_eq!(site.server(None).await["status"], "ACTIVE");
    assert_eq!(site.server(None).await["status"], "ERROR");
}

#[tokio::test]
async fn a_deleted_server_is_gone_only_after_a_while() {
    let site = with(Config { deletion: Duration::from_secs(600), ..Config::default() }).await;
    let (_, reservation) = site.active("liqid01").await;
    let server = site.server(Some(&reservation)).await;
    let path = format!("/compute/v2.1/servers/{}", server["id"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(site.call("DELETE", &path, Value::Null).await.status, 204);
    }
    assert_eq!(site.get(&path).await.body["server"]["OS-EXT-STS:task_state"], "deleting");
    // Its host is not free yet.
    assert_eq!(site.server(Some(&reservation)).await["status"], "ERROR");
    site.sandbox.advance(Duration::from_secs(601));
    let id = server["id"].as_str().unwrap();
    let text = format!("Instance {id} could not be found.");
    says(&site.get(&path).await, 404, json!({"itemNotFound": {"code": 404, "message": text}}));
}

#[tokio::test]
async fn deleting_a_lease_deletes_its_servers() {
    let site = site().await;
    let (lease, reservation) = site.active("liqid01").await;
    let server = site.server(Some(&reservation)).await;
    assert_eq!(site.call("DELETE", &format!("/reservation/v1/leases/{lease}"), Value::Null).await.status, 204);
    assert_eq!(site.get(&format!("/compute/v2.1/servers/{}", server["id"].as_str().unwrap())).await.status, 404);
    assert!(site.sandbox.snapshot().is_empty());
}

#[tokio::test]
async fn a_server_fails_on_request() {
    let site = site().await;
    let (_, reservation) = site.active("liqid01").await;
    site.sandbox.fail_server("Build of instance aborted: Failed to provision");
    let server = site.server(Some(&reservation)).await;
    assert_eq!(server["fault"]["message"], "Build of instance aborted: Failed to provision");
}

#[tokio::test]
async fn servers_belong_to_the_project_and_quotas_are_enforced() {
    let site = with(Config { instance_quota: 1, ..Config::default() }).await;
    let server = site.server(None).await;
    let path = format!("/compute/v2.1/servers/{}", server["id"].as_str().unwrap());
    assert_eq!(site.by(User::Bob, "GET", &path, Value::Null).await.status, 200);
    assert_eq!(site.by(User::Carol, "GET", &path, Value::Null).await.status, 404);
    let reply = site.call("POST", "/compute/v2.1/servers", site.server_asked(None).await).await;
    let text = "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances";
    says(&reply, 403, json!({"forbidden": {"code": 403, "message": text}}));
}

#[tokio::test]
async fn key_pairs_belong_to_the_user() {
    let site = with(Config { key_pair_quota: 1, ..Config::default() }).await;
    let key = |name: &str| json!({"keypair": {"name": name, "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 test"}});
    let path = "/compute/v2.1/os-keypairs";
    assert_eq!(site.call("POST", path, key("gpucl")).await.status, 200);
    let reply = site.call("POST", path, key("gpucl")).await;
    says(&reply, 409, json!({"conflictingRequest": {"code": 409, "message": "Key pair 'gpucl' already exists."}}));
    let reply = site.call("POST", path, key("other")).await;
    says(&reply, 403, json!({"forbidden": {"code": 403, "message": "Quota exceeded, too many key pairs."}}));
    assert_eq!(site.by(User::Bob, "GET", "/compute/v2.1/os-keypairs/gpucl", Value::Null).await.status, 404);
    assert_eq!(site.by(User::Bob, "POST", path, key("gpucl")).await.status, 200);
    assert_eq!(site.call("DELETE", "/compute/v2.1/os-keypairs/gpucl", Value::Null).await.status, 202);
    assert_eq!(site.sandbox.snapshot().key_pairs.len(), 1);
}
