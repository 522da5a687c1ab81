use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Config, Quirks, User};
use super::client::{blazar, says, site, with};

#[tokio::test]
async fn host_ids_have_gaps_and_properties_are_strings() {
    let site = site().await;
    let reply = site.get("/reservation/v1/os-hosts").await;
    let hosts = reply.body["hosts"].as_array().unwrap();
    let ids: Vec<&str> = hosts.iter().map(|host| host["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["1", "2", "3", "5", "6"]);
    let liqid = hosts.iter().find(|host| host["node_name"] == "liqid01").unwrap();
    assert_eq!((&liqid["gpu.gpu_count"], &liqid["vcpus"]), (&json!("2"), &json!(2)));
    assert_ne!(liqid["hypervisor_hostname"], "liqid01");
    blazar(&site.get("/reservation/v1/os-hosts/9999").await, 404, "Object with {'host_id': '9999'} not found");
}

#[tokio::test]
async fn a_lease_has_the_life_cycle_of_the_real_service() {
    let site = site().await;
    let made = site.lease("liqid01", &site.hour(1), &site.hour(3)).await;
    let lease = &made.body["lease"];
    assert_eq!((made.status, &lease["status"]), (201, &json!("PENDING")));
    assert_eq!(lease["start_date"].as_str().unwrap().len(), "2026-11-21T01:55:00.000000".len());
    assert_eq!(lease["created_at"].as_str().unwrap().len(), "2026-11-21 01:53:56".len());
    assert_eq!(lease["reservations"][0]["status"], "pending");
    assert_eq!(lease["events"].as_array().unwrap().len(), 3);
    let path = format!("/reservation/v1/leases/{}", lease["id"].as_str().unwrap());
    let reply = site.get("/reservation/v1/os-hosts/allocations").await;
    let taken = json!({"id": lease["reservations"][0]["id"], "lease_id": lease["id"], "start_date": lease["start_date"],
        "end_date": lease["end_date"]});
    let of =
        |id: &str| reply.body["allocations"].as_array().unwrap().iter().find(|one| one["resource_id"] == id).cloned();
    assert_eq!(of("2"), Some(json!({"resource_id": "2", "reservations": [taken]})));
    assert_eq!(of("3"), Some(json!({"resource_id": "3", "reservations": []})));
    site.sandbox.advance(Duration::from_secs(3601));
    let reply = site.until(&path, |reply| reply.body["lease"]["status"] == "ACTIVE").await;
    assert_eq!(reply.body["lease"]["reservations"][0]["status"], "active");
    site.sandbox.advance(Duration::from_secs(7201));
    let reply = site.until(&path, |reply| reply.body["lease"]["status"] == "TERMINATED").await;
    assert_eq!(reply.body["lease"]["reservations"][0]["status"], "deleted");
    assert!(!site.get("/reservation/v1/os-hosts/allocations").await.body.to_string().contains("lease_id"));
    assert_eq!(site.call("DELETE", &path, Value::Null).await.status, 204);
}

#[tokio::test]
async fn a_conflict_is_a_500_and_neighbours_are_none() {
    let site = site().await;
    assert_eq!(site.lease("liqid01", &site.hour(1), &site.hour(3)).await.status, 201);
    let none = "Not enough hosts available";
    blazar(&site.lease("liqid01", &site.hour(2), &site.hour(4)).await, 500, none);
    blazar(&site.lease("nosuch", &site.hour(2), &site.hour(4)).await, 500, none);
    blazar(&site.lease("broken01", &site.hour(2), &site.hour(4)).await, 500, none);
    assert_eq!(site.lease("liqid01", &site.hour(3), &site.hour(4)).await.status, 201);
    assert_eq!(site.sandbox.snapshot().leases.len(), 2);
}

#[tokio::test]
async fn invalid_requests_get_the_messages_of_the_real_service() {
    let site = site().await;
    let (soon, later) = (site.hour(1), site.hour(2));
    let mut asked = site.asked("liqid01", &soon, &later);
    let mut ask = async |properties: &str, status: u16, text: &str| {
        asked["reservations"][0]["resource_properties"] = json!(properties);
        blazar(&site.call("POST", "/reservation/v1/leases", asked.clone()).await, status, text);
    };
    ask("[\"==\", \"$no_such_property\", \"1\"]", 500, "BlazarDBNotFound: A database error occurred").await;
    ask("[\"==\", \"$node_name\"", 400, "Malformed requirements [\"==\", \"$node_name\"").await;
    ask("[\"=\", \"$gpu.gpu_count\", 4]", 400, "Malformed requirements ['=', '$gpu.gpu_count', 4]").await;
    blazar(&site.lease("liqid01", &later, &soon).await, 400, "End date must be later than start date.");
    let past = site.hour(-2);
    blazar(&site.lease("liqid01", &past, &later).await, 400, "Start date must be later than current date");
    let text =
        "Lease duration of 720000 seconds must be less than or equal to the maximum lease duration of 604800 seconds.";
    blazar(&site.lease("liqid01", &soon, &site.hour(201)).await, 403, text);
    let text = "2026-11-21T10:00:00Z is an invalid date. Required format: %Y-%m-%d %H:%M";
    blazar(&site.lease("liqid01", "2026-11-21T10:00:00Z", &later).await, 400, text);
    let reply = site.call("POST", "/reservation/v1/leases", json!({})).await;
    blazar(&reply, 400, "Missing parameter end_date, name, start_date");
    let id = "00000000-0000-0000-0000-000000000000";
    for method in ["GET", "DELETE"] {
        let reply = site.call(method, &format!("/reservation/v1/leases/{id}"), Value::Null).await;
        blazar(&reply, 404, &format!("Object with {{'lease_id': '{id}'}} not found"));
    }
    assert!(site.sandbox.snapshot().is_empty());
}

#[tokio::test]
async fn without_an_accept_header_it_says_500_and_acts() {
    let site = site().await;
    let url = format!("{}/reservation/v1/leases", site.sandbox.auth_url().strip_suffix("/identity/v3").unwrap());
    let asked = site.asked("liqid01", "now", &site.hour(1));
    let request = crate::util::http::loopback_client().build().unwrap().post(url).header("accept", "").json(&asked);
    let reply = request.header("x-auth-token", site.sandbox.token(User::Alice)).send().await.unwrap();
    assert_eq!((reply.status().as_u16(), reply.headers()["content-type"].to_str().unwrap()), (500, "text/plain"));
    assert!(reply.text().await.unwrap().ends_with("400 Bad Request: Content type '' isn't supported"));
    assert_eq!(site.sandbox.snapshot().leases.len(), 1);
}

#[tokio::test]
async fn a_lease_is_extended_unless_another_one_follows() {
    let site = site().await;
    let (id, _) = site.active("liqid01").await;
    let path = format!("/reservation/v1/leases/{id}");
    let reply = site.call("PUT", &path, json!({"end_date": site.hour(5)})).await;
    assert_eq!((reply.status, &reply.body["lease"]["status"]), (200, &json!("UPDATING")));
    assert_eq!(site.get(&path).await.body["lease"]["status"], "ACTIVE");
    let end = site.get(&path).await.body["lease"]["end_date"].clone();
    let reply = site.call("PUT", &path, json!({"prolong_for": "1h"})).await;
    assert_eq!((reply.status, &reply.body["lease"]["end_date"]), (200, &end));
    let behind = (
        site.sandbox.now() + jiff::SignedDuration::from_hours(6),
        site.sandbox.now() + jiff::SignedDuration::from_hours(7),
    );
    site.sandbox.foreign_lease("liqid01", behind.0, behind.1).unwrap();
    blazar(&site.call("PUT", &path, json!({"end_date": site.hour(8)})).await, 500, "Not enough hosts available");
    let lease = site.get(&path).await.body["lease"].clone();
    assert_eq!((&lease["status"], &lease["end_date"]), (&json!("ACTIVE"), &end));
    let reply = site.call("PUT", &path, json!({"end_date": site.hour(-1)})).await;
    blazar(&reply, 400, "End date must be later than current and start date");
}

/// At the real service the lease becomes unusable. Chameleon's fork leaves it unchanged.
#[tokio::test]
async fn an_extension_that_is_too_long_breaks_the_lease() {
    for (quirks, status, after) in [(Quirks::default(), 403, "ERROR"), (Quirks::chameleon(), 400, "ACTIVE")] {
        let site = with(Config { quirks, ..Config::default() }).await;
        let (id, _) = site.active("liqid01").await;
        let path = format!("/reservation/v1/leases/{id}");
        let reply = site.call("PUT", &path, json!({"end_date": site.hour(200)})).await;
        assert_eq!(reply.status, status);
        assert!(reply.body["error_message"].as_str().unwrap().contains("maximum lease duration of 604800 seconds"));
        assert_eq!(site.get(&path).await.body["lease"]["status"], after);
    }
}

#[tokio::test]
async fn a_lease_in_transition_cannot_be_changed() {
    let site = with(Config { transition: Duration::from_secs(600), ..Config::default() }).await;
    let made = site.lease("liqid01", "now", &site.hour(3)).await;
    let path = format!("/reservation/v1/leases/{}", made.body["lease"]["id"].as_str().unwrap());
    site.until(&path, |reply| reply.body["lease"]["status"] == "STARTING").await;
    blazar(&site.call("DELETE", &path, Value::Null).await, 500, "Invalid lease status.");
    blazar(&site.call("PUT", &path, json!({"end_date": site.hour(4)})).await, 500, "Invalid lease status.");
    site.sandbox.advance(Duration::from_secs(601));
    assert_eq!(site.call("DELETE", &path, Value::Null).await.status, 204);
}

#[tokio::test]
async fn leases_are_listed_by_project_and_open_by_id() {
    let site = site().await;
    let (id, _) = site.active("liqid01").await;
    let path = format!("/reservation/v1/leases/{id}");
    let count = |reply: &Value| reply["leases"].as_array().unwrap().len();
    assert_eq!(count(&site.by(User::Bob, "GET", "/reservation/v1/leases", Value::Null).await.body), 1);
    assert_eq!(count(&site.by(User::Carol, "GET", "/reservation/v1/leases", Value::Null).await.body), 0);
    let reply = site.by(User::Carol, "PUT", &path, json!({"name": "carol-was-here"})).await;
    assert_eq!((reply.status, &reply.body["lease"]["name"]), (200, &json!("carol-was-here")));
    assert_eq!(site.by(User::Carol, "DELETE", &path, Value::Null).await.status, 204);
    assert_eq!(site.get(&path).await.status, 404);
}

#[tokio::test]
async fn lease_names_are_unique_if_configured() {
    let site = site().await;
    assert_eq!(site.lease("liqid01", "now", &site.hour(1)).await.status, 201);
    assert_eq!(site.lease("liqid02", "now", &site.hour(1)).await.status, 201);
    let site = with(Config { unique_lease_names: true, ..Config::default() }).await;
    assert_eq!(site.lease("liqid01", "now", &site.hour(1)).await.status, 201);
    let reply = site.lease("liqid02", "now", &site.hour(1)).await;
    blazar(&reply, 409, "The lease with name: gpucl-test already exists");
}

#[tokio::test]
async fn chameleon_enforces_service_units_and_the_extension_window() {
    let quirks = Quirks { service_units: Some(2.0), enforcement_400: false, ..Quirks::chameleon() };
    let site = with(Config { quirks, ..Config::default() }).await;
    let text = "Reservation for project CHI-TEST would spend 3.00 SUs, only 2.00 left";
    let reply = site.lease("liqid01", &site.hour(1), &site.hour(4)).await;
    blazar(&reply, 403, text);
    site.sandbox.change(|config| config.quirks = Quirks::chameleon());
    let made = site.lease("liqid01", &site.hour(1), &site.hour(60)).await;
    assert_eq!(made.body["lease"]["reservations"][0]["on_start"], "default");
    let path = format!("/reservation/v1/leases/{}", made.body["lease"]["id"].as_str().unwrap());
    let reply = site.call("PUT", &path, json!({"end_date": site.hour(61)})).await;
    blazar(&reply, 400, "Lease can only be extended within 172800 seconds of the leases current end time.");
    let reply = site.get("/reservation/v1/os-hosts/2/allocation").await;
    assert_eq!(reply.body["allocation"]["reservations"][0]["extras"]["user_name"], "alice");
    says(&site.call("DELETE", &path, Value::Null).await, 200, json!({}));
}
