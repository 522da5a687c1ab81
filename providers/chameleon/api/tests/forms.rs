//! Requests match those of the services' own clients; responses are read in all their formats.

use std::collections::BTreeMap;

use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::server::{Fake, Reply};
use crate::chameleon::api::{Allocation, Host, Lease, NewLease, NewReservation, NewServer, Server};

/// The n-th call recorded in this file.
pub(super) fn recorded(file: &str, number: usize) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("chameleon/fixtures").join(file);
    let all: Value = serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap();
    all[number].clone()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn lease(end: &str) -> Value {
    json!({"lease": {"id": "L1", "name": "demo", "status": "PENDING", "start_date": "2026-11-21T12:00:00.000000",
        "end_date": end, "reservations": [], "events": []}})
}

pub(super) fn new_lease() -> NewLease {
    NewLease {
        name: "demo".to_owned(),
        start: None,
        end: time("2026-11-21T15:00:31Z"),
        reservations: vec![NewReservation::host("node_name", "c03-04")],
    }
}

#[tokio::test]
async fn a_lease_is_asked_for_as_blazars_own_client_does() {
    let fake = Fake::start().await;
    fake.reply("POST /reservation", Reply::Json(201, lease("2026-11-21T15:00:00.000000")));
    let made = fake.site().create_lease(&new_lease()).await.unwrap();
    assert_eq!((made.id.as_str(), made.end), ("L1", time("2026-11-21T15:00:00Z")));
    let (asked, mut recorded) = (fake.asked().remove(0), recorded("blazar-create-lease.json", 0)["request"].take());
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/reservation/v1/leases"));
    for header in ["Accept", "Content-Type", "X-Auth-Token"] {
        assert_eq!(asked.header(header), recorded["headers"][header], "{header}");
    }
    // The recorded one also reserves a floating IP.
    recorded["body"]["reservations"].as_array_mut().unwrap().truncate(1);
    assert_eq!(asked.json(), recorded["body"]);
    let later = NewLease { start: Some(time("2026-11-21T14:00:00Z")), ..new_lease() };
    assert_eq!(later.body()["start_date"], "2026-11-21 14:00");
}

#[tokio::test]
async fn a_lease_is_moved_and_deleted_as_blazars_own_client_does() {
    let fake = Fake::start().await;
    fake.reply("PUT", Reply::Json(200, json!({"lease": {"id": "L1", "end_date": "2026-11-22 15:00"}})));
    fake.reply("GET /reservation", Reply::Json(200, lease("2026-11-22T15:00:00.000000")));
    fake.reply("DELETE", Reply::Text(204, "Content-Type: application/json\r\n", String::new()));
    let site = fake.site();
    assert_eq!(site.move_end("L1", time("2026-11-22T15:00:00Z")).await.unwrap().end, time("2026-11-22T15:00:00Z"));
    site.delete_lease("L1").await.unwrap();
    // The second time it is already gone, which is success.
    site.delete_lease("L1").await.unwrap();
    assert!(site.lease("L1").await.unwrap().is_none());
    let asked = fake.asked();
    for (one, number) in [(0, 2), (1, 1), (2, 3)] {
        let recorded = recorded("blazar-get-prolong-delete.json", number)["request"].take();
        assert_eq!(asked[one].method, recorded["method"]);
        assert_eq!(asked[one].path, recorded["path"]);
        assert_eq!(asked[one].json(), recorded["body"]);
        assert_eq!(asked[one].header("Accept"), "application/json");
    }
}

#[tokio::test]
async fn a_server_is_asked_for_as_novas_own_client_does() {
    let fake = Fake::start().await;
    fake.reply("POST /compute", Reply::Json(202, json!({"server": {"id": "S1", "adminPass": "x"}})));
    let new = NewServer {
        name: "node-demo".to_owned(),
        image: "IMAGE-ID".to_owned(),
        flavor: "FLAVOR-ID".to_owned(),
        network: "SHAREDNET1-ID".to_owned(),
        key_name: Some("gpucl-key".to_owned()),
        user_data: Some(SecretString::from("#cloud-config\n{}\n".to_owned())),
        reservation: "R1".to_owned(),
        metadata: BTreeMap::new(),
    };
    assert!(!format!("{new:?}").contains("cloud-config"));
    assert_eq!(fake.site().create_server(&new).await.unwrap(), "S1");
    let (asked, recorded) = (fake.asked().remove(0), recorded("nova-create-server.json", 0)["request"].take());
    assert_eq!(asked.path, recorded["path"]);
    assert_eq!(asked.json(), recorded["body"]);
    let tagged = NewServer { metadata: [("gpucl".to_owned(), "tag".to_owned())].into(), ..new };
    assert_eq!(tagged.body()["server"]["metadata"], json!({"gpucl": "tag"}));
}

#[tokio::test]
async fn a_token_is_asked_for_as_keystones_own_client_does() {
    let fake = Fake::start().await;
    let who = fake.site().who().await.unwrap();
    assert_eq!((who.user_name.as_str(), who.project_name.as_str()), ("jdoe@example.edu", "CHI-000000"));
    assert_eq!(who.restricted, Some(false));
    let (asked, recorded) =
        (fake.all().remove(0), recorded("keystone-application-credential.json", 0)["request"].take());
    assert_eq!(asked.path, recorded["path"]);
    assert_eq!(asked.header("Accept"), recorded["headers"]["Accept"]);
    assert_eq!(asked.json(), recorded["body"]);
}

#[tokio::test]
async fn addresses_networks_and_keys_have_neutrons_and_novas_forms() {
    let fake = Fake::start().await;
    let address = |port: Value| {
        json!({"floatingip": {"id": "F1", "floating_ip_address": "192.0.2.35", "description": "tag", "port_id": port,
            "fixed_ip_address": null, "status": "DOWN", "tags": [], "project_id": "2222bbbb"}})
    };
    fake.reply("POST /network", Reply::Json(201, address(Value::Null)));
    fake.reply("PUT /network", Reply::Json(200, address(json!("P1"))));
    fake.reply("PUT /network", Reply::Json(200, address(Value::Null)));
    fake.reply(
        "GET /network/v2.0/networks?name=a+b",
        Reply::Json(
            200,
            json!({"networks": [
        {"id": "N1", "name": "a b", "router:external": true, "shared": false}]}),
        ),
    );
    fake.reply(
        "GET /network/v2.0/ports?device_id=S1",
        Reply::Json(
            200,
            json!({"ports": [
        {"id": "P1", "device_id": "S1", "fixed_ips": [{"subnet_id": "x", "ip_address": "10.140.83.6"}]}]}),
        ),
    );
    fake.reply("POST /compute/v2.1/os-keypairs", Reply::Json(200, json!({"keypair": {}})));
    fake.reply(
        "GET /compute/v2.1/os-keypairs",
        Reply::Json(
            200,
            json!({"keypairs": [
        {"keypair": {"name": "k", "public_key": "ssh-ed25519 A", "fingerprint": "f"}}]}),
        ),
    );
    let site = fake.site();
    let made = site.create_floating_ip("N1", "tag").await.unwrap();
    assert_eq!((made.address.as_str(), made.port_id, made.fixed), ("192.0.2.35", None, None));
    assert_eq!(site.associate("F1", Some("P1")).await.unwrap().port_id.as_deref(), Some("P1"));
    assert_eq!(site.associate("F1", None).await.unwrap().port_id, None);
    site.delete_floating_ip("F1").await.unwrap();
    assert_eq!(site.networks("a b").await.unwrap()[0].id, "N1");
    assert_eq!(site.ports("S1").await.unwrap()[0].id, "P1");
    site.create_key_pair("k", "ssh-ed25519 A").await.unwrap();
    site.delete_key_pair("k/..").await.unwrap();
    assert_eq!(site.key_pairs().await.unwrap()[0].public_key, "ssh-ed25519 A");
    let asked = fake.asked();
    assert_eq!(asked[0].json(), json!({"floatingip": {"floating_network_id": "N1", "description": "tag"}}));
    assert_eq!(asked[1].json(), json!({"floatingip": {"port_id": "P1"}}));
    assert_eq!(asked[2].json(), json!({"floatingip": {"port_id": null}}));
    assert_eq!(asked[7].path, "/compute/v2.1/os-keypairs/k%2F..");
}

#[tokio::test]
async fn lists_are_read_to_their_last_page_at_our_own_address() {
    let fake = Fake::start().await;
    let next = "http://other.example/v2.1/servers/detail?marker=S1";
    let server = |id: &str| json!({"id": id, "name": id, "status": "ACTIVE"});
    fake.reply("GET /compute/v2.1/servers/detail?marker=S1", Reply::Json(200, json!({"servers": [server("S2")]})));
    fake.reply(
        "GET /compute/v2.1/servers/detail",
        Reply::Json(200, json!({"servers": [server("S1")], "servers_links": [{"rel": "next", "href": next}]})),
    );
    let image = |id: &str, rest: Value| {
        let mut body =
            json!({"images": [{"id": id, "name": "CC", "status": "active", "created_at": "2026-11-21T01:52:09Z"}]});
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        body
    };
    fake.reply("GET /image/v2/images?name=CC&marker=I1", Reply::Json(200, image("I2", json!({}))));
    fake.reply(
        "GET /image/v2/images?name=CC",
        Reply::Json(200, image("I1", json!({"next": "/v2/images?name=CC&marker=I1"}))),
    );
    let site = fake.site();
    let servers: Vec<String> = site.servers().await.unwrap().into_iter().map(|server| server.id).collect();
    assert_eq!(servers, ["S1", "S2"]);
    let images: Vec<String> = site.images("CC").await.unwrap().into_iter().map(|image| image.id).collect();
    assert_eq!(images, ["I1", "I2"]);
}

#[test]
fn leases_are_read_in_all_their_forms() {
    let lease: Lease = serde_json::from_value(json!({
        "id": 7, "name": "demo", "start_date": "2026-11-21T01:28:00.000000", "end_date": "2026-11-21 04:28",
        "created_at": "2026-11-21 01:26:36", "status": "SOMETHING_NEW", "degraded": "true", "unknown": {"a": 1},
        "reservations": "[{\"id\": \"R1\", \"resource_type\": \"physical:host\", \"min\": \"1\", \"max\": 2, \
            \"resource_properties\": \"[\\\"==\\\", \\\"$node_name\\\", \\\"liqid01\\\"]\", \"missing_resources\": true}]",
    }))
    .unwrap();
    assert_eq!((lease.id.as_str(), lease.degraded, lease.user_id.as_str()), ("7", true, ""));
    assert_eq!(lease.start, time("2026-11-21T01:28:00Z"));
    assert_eq!(lease.end, time("2026-11-21T04:28:00Z"));
    let reservation = &lease.reservations[0];
    assert_eq!((reservation.is_host(), reservation.missing_resources), (true, true));
    assert_eq!(reservation.asked("node_name").as_deref(), Some("liqid01"));
    assert_eq!(reservation.asked("uid"), None);
}

#[test]
fn hosts_keep_all_reported_properties_as_text() {
    let host: Host = serde_json::from_value(json!({
        "id": "2", "hypervisor_hostname": "168b0629", "vcpus": "2", "memory_mb": 8192, "reservable": true,
        "node_name": "liqid01", "gpu.gpu_count": "1", "placement.rack": 3, "status": null,
    }))
    .unwrap();
    assert_eq!((host.property("vcpus"), host.reservable, host.name()), (Some("2"), true, "liqid01"));
    assert_eq!((host.property("gpu.gpu_count"), host.property("placement.rack")), (Some("1"), Some("3")));
    assert_eq!((host.property("status"), host.property("su_factor")), (None, None));
    let bare: Host = serde_json::from_value(json!({"id": 3, "hypervisor_hostname": "c03-04"})).unwrap();
    assert_eq!((bare.property("id"), bare.name(), bare.reservable), (Some("3"), "c03-04", true));
    assert!(serde_json::from_value::<Host>(json!({"node_name": "x"})).is_err());
}

#[test]
fn allocations_may_omit_the_times() {
    let taken: Allocation = serde_json::from_value(json!({"resource_id": 2, "reservations": [
        {"id": "R1", "lease_id": "L1", "start_date": "2026-11-21T01:55:00.000000", "end_date": "2026-11-21T02:55:00.000000",
         "extras": {"project": "CHI-1"}},
        {"id": "R2", "lease_id": "L2"},
    ]}))
    .unwrap();
    assert_eq!(taken.resource_id, "2");
    assert_eq!(taken.reservations[0].end, Some(time("2026-11-21T02:55:00Z")));
    assert_eq!(taken.reservations[0].extras["project"], "CHI-1");
    assert_eq!(taken.reservations[1].start, None);
}

#[test]
fn a_server_is_read_with_its_addresses_and_its_fault() {
    let server: Server = serde_json::from_value(json!({
        "id": "S1", "name": "n", "status": "ERROR", "created": "2026-11-21T01:55:08Z", "metadata": {"gpucl": "t"},
        "fault": {"code": 500, "message": "No valid host was found. "}, "key_name": null,
        "OS-EXT-AZ:availability_zone": "blazar_R1", "OS-EXT-STS:task_state": "spawning",
        "addresses": {"sharednet1": [
            {"addr": "10.140.83.6", "OS-EXT-IPS:type": "fixed"}, {"addr": "192.0.2.35", "OS-EXT-IPS:type": "floating"}]},
    }))
    .unwrap();
    assert_eq!(server.fault.as_deref(), Some("No valid host was found."));
    assert_eq!(server.task.as_deref(), Some("spawning"));
    let floating: Vec<(&str, bool)> = server.addresses.iter().map(|one| (one.ip.as_str(), one.floating)).collect();
    assert_eq!(floating, [("10.140.83.6", false), ("192.0.2.35", true)]);
}
