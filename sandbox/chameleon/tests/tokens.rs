use serde_json::{Value, json};

use super::super::{Config, Rule, Service, User};
use super::client::{blazar, says, site, with};

fn with_credential(id: &str, secret: &str) -> Value {
    json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential": {"id": id, "secret": secret}}}})
}

#[tokio::test]
async fn a_token_describes_its_credential_and_scope() {
    let site = site().await;
    for (user, restricted) in [(User::Alice, false), (User::AliceRestricted, true)] {
        let known = site.sandbox.credentials(user);
        let asked = with_credential(&known.id, &known.secret);
        let reply = site.send("", "POST", "/identity/v3/auth/tokens", asked).await.unwrap();
        let token = &reply.body["token"];
        assert_eq!(reply.status, 201);
        assert!(reply.headers["x-subject-token"].to_str().unwrap().starts_with("gAAAAA"));
        assert_eq!(token["application_credential"]["restricted"], restricted);
        assert_eq!((&token["user"]["id"], &token["project"]["id"]), (&json!(known.user_id), &json!(known.project_id)));
        let kinds: Vec<&str> =
            token["catalog"].as_array().unwrap().iter().filter_map(|entry| entry["type"].as_str()).collect();
        assert_eq!(kinds, ["identity", "reservation", "compute", "image", "network"]);
        assert_eq!(token["expires_at"].as_str().unwrap().len(), "2026-11-21T05:53:53.000000Z".len());
    }
}

#[tokio::test]
async fn a_wrong_secret_and_an_unknown_id_get_different_errors() {
    let site = site().await;
    let known = site.sandbox.credentials(User::Alice);
    let reply = site.send("", "POST", "/identity/v3/auth/tokens", with_credential(&known.id, "wrong")).await.unwrap();
    let unauthorized = json!({"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}});
    says(&reply, 401, unauthorized.clone());
    let id = "00000000000000000000000000000000";
    let reply = site.send("", "POST", "/identity/v3/auth/tokens", with_credential(id, "x")).await.unwrap();
    let text = "Could not find Application Credential: 00000000000000000000000000000000.";
    says(&reply, 404, json!({"error": {"code": 404, "message": text, "title": "Not Found"}}));
    site.sandbox.revoke(User::Alice);
    let asked = with_credential(&known.id, &known.secret);
    assert_eq!(site.send("", "POST", "/identity/v3/auth/tokens", asked).await.unwrap().status, 404);
    for path in ["/reservation/v1/leases", "/compute/v2.1/servers", "/network/v2.0/floatingips"] {
        says(&site.send("gAAAAAno", "GET", path, Value::Null).await.unwrap(), 401, unauthorized.clone());
    }
}

#[tokio::test]
async fn a_token_expires() {
    let site = site().await;
    assert_eq!(site.get("/reservation/v1/leases").await.status, 200);
    site.sandbox.fault(Rule::new("GET", "^/compute/", "token-expire")).unwrap();
    assert_eq!(site.get("/compute/v2.1/servers").await.status, 401);
    assert_eq!(site.get("/reservation/v1/leases").await.status, 401);
}

#[tokio::test]
async fn an_access_token_is_exchanged_for_a_scoped_token() {
    let site = site().await;
    let url = format!("{}/OS-FEDERATION/identity_providers/chameleon/protocols/openid/auth", site.sandbox.auth_url());
    let access = site.sandbox.access_token(User::Carol);
    let reply =
        crate::util::http::loopback_client().build().unwrap().post(url).bearer_auth(access).send().await.unwrap();
    assert_eq!(reply.status(), 201);
    let unscoped = reply.headers()["x-subject-token"].to_str().unwrap().to_owned();
    assert_eq!(site.send(&unscoped, "GET", "/reservation/v1/leases", Value::Null).await.unwrap().status, 401);
    let projects = site.send(&unscoped, "GET", "/identity/v3/auth/projects", Value::Null).await.unwrap().body;
    let project = &projects["projects"][0];
    assert_eq!(project["name"], "CHI-OTHER");
    let asked = json!({"auth": {"identity": {"methods": ["token"], "token": {"id": unscoped}},
        "scope": {"project": {"id": project["id"]}}}});
    let reply = site.send("", "POST", "/identity/v3/auth/tokens", asked).await.unwrap();
    assert_eq!((reply.status, &reply.body["token"]["project"]["name"]), (201, &json!("CHI-OTHER")));
}

#[tokio::test]
async fn a_restricted_credential_reads_but_cannot_create_leases() {
    let site = site().await;
    let known = site.sandbox.credentials(User::AliceRestricted);
    let asked = with_credential(&known.id, &known.secret);
    let reply = site.send("", "POST", "/identity/v3/auth/tokens", asked).await.unwrap();
    let token = reply.headers["x-subject-token"].to_str().unwrap();
    assert_eq!(site.send(token, "GET", "/reservation/v1/leases", Value::Null).await.unwrap().status, 200);
    let asked = site.asked("liqid01", "now", &site.hour(1));
    let reply = site.send(token, "POST", "/reservation/v1/leases", asked).await.unwrap();
    let body =
        json!({"error_code": 500, "error_message": "Internal Server Error", "error_name": "INTERNAL_SERVER_ERROR"});
    says(&reply, 500, body);
    assert!(site.sandbox.snapshot().is_empty());
    blazar(&site.lease("nosuch", "now", &site.hour(1)).await, 500, "Not enough hosts available");
}

#[tokio::test]
async fn a_catalog_can_lack_a_service_and_a_clock_can_be_wrong() {
    let config = Config {
        without: [Service::Reservation].into(),
        clock_offset: jiff::SignedDuration::from_mins(-10),
        ..Config::default()
    };
    let site = with(config).await;
    let reply = site.get("/identity/v3/auth/catalog").await;
    assert!(!reply.body.to_string().contains("reservation"));
    let date = reply.headers["date"].to_str().unwrap().to_owned();
    let served = jiff::fmt::rfc2822::parse(&date).unwrap().timestamp();
    let behind = jiff::Timestamp::now().duration_since(served).as_secs();
    assert!((599..620).contains(&behind), "{behind}");
}
