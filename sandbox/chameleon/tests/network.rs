use serde_json::{Value, json};

use super::super::{Config, User};
use super::client::{says, site, with};

#[tokio::test]
async fn an_attached_floating_ip_is_active_at_the_next_request() {
    let site = site().await;
    let (_, reservation) = site.active("liqid01").await;
    let server = site.server(Some(&reservation)).await;
    let id = server["id"].as_str().unwrap();
    let made = site.floating().await;
    let address = &made.body["floatingip"];
    assert_eq!((made.status, &address["status"], &address["description"]), (201, &json!("DOWN"), &json!("gpucl-tag")));
    let path = format!("/network/v2.0/floatingips/{}", address["id"].as_str().unwrap());
    let port = site.get(&format!("/network/v2.0/ports?device_id={id}")).await.body["ports"][0]["id"].clone();
    let reply = site.call("PUT", &path, json!({"floatingip": {"port_id": port}})).await;
    assert_eq!((reply.status, &reply.body["floatingip"]["status"]), (200, &json!("DOWN")));
    assert_eq!(site.get(&path).await.body["floatingip"]["status"], "ACTIVE");
    let server = site.get(&format!("/compute/v2.1/servers/{id}")).await.body["server"].clone();
    assert_eq!(server["addresses"]["sharednet1"][1]["addr"], address["floating_ip_address"]);
    let found = site.get("/network/v2.0/floatingips?description=gpucl-tag").await.body;
    assert_eq!(found["floatingips"].as_array().unwrap().len(), 1);
    // After the server is deleted, its address stays, detached.
    site.call("DELETE", &format!("/compute/v2.1/servers/{id}"), Value::Null).await;
    let reply = site.until(&path, |reply| reply.body["floatingip"]["port_id"].is_null()).await;
    assert_eq!(reply.body["floatingip"]["status"], "DOWN");
    assert_eq!(site.by(User::Carol, "DELETE", &path, Value::Null).await.status, 404);
    assert_eq!(site.call("DELETE", &path, Value::Null).await.status, 204);
    let reply = site.call("DELETE", &path, Value::Null).await;
    let text = format!("Floating IP {} could not be found", address["id"].as_str().unwrap());
    says(&reply, 404, json!({"NeutronError": {"type": "FloatingIPNotFound", "message": text, "detail": ""}}));
}

#[tokio::test]
async fn the_pool_and_the_quota_run_out() {
    let site = with(Config { floating_ips: 1, floating_ip_quota: 2, ..Config::default() }).await;
    assert_eq!(site.floating().await.status, 201);
    let reply = site.floating().await;
    let text = format!("No more IP addresses available on network {}.", site.network("public").await);
    says(&reply, 409, json!({"NeutronError": {"type": "IpAddressGenerationFailure", "message": text, "detail": ""}}));
    site.sandbox.change(|config| config.floating_ip_quota = 1);
    let text = "Quota exceeded for resources: ['floatingip'].";
    says(&site.floating().await, 409, json!({"NeutronError": {"type": "OverQuota", "message": text, "detail": ""}}));
}

#[tokio::test]
async fn images_and_networks_are_found_by_name() {
    let mut config = Config::default();
    config.images.push(super::super::ImageConfig::new("CC-Ubuntu24.04-CUDA"));
    config.networks.clear();
    let site = with(config).await;
    let images = site.get("/image/v2/images?name=CC-Ubuntu24.04-CUDA&status=active").await.body;
    let images = images["images"].as_array().unwrap();
    assert_eq!(images.len(), 2);
    assert!(images[0]["created_at"].as_str() > images[1]["created_at"].as_str());
    assert_eq!(site.get("/network/v2.0/networks?name=sharednet1").await.body, json!({"networks": []}));
    let reply = site.get("/network/v2.0/networks?router:external=true").await.body;
    assert_eq!(reply["networks"][0]["name"], "public");
    let reply = site.get("/network/v2.0/floatingips?nosuch=1").await;
    let text = "['nosuch'] is invalid attribute for filtering";
    says(&reply, 400, json!({"NeutronError": {"type": "HTTPBadRequest", "message": text, "detail": ""}}));
}
