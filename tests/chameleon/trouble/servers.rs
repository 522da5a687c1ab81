//! Servers that do not come up, and missing resources that they need.

use std::time::Duration;

use gpucl::sandbox::chameleon::ImageConfig;
use serde_json::Value;

use super::{Config, NO_SSH, Rule, Site, User, on_both};

on_both! {
    ci: []
    every: [
        a_server_that_never_answers_by_ssh_is_given_up_after_the_limit_of_the_spec
    ]
}

const NO_HOST: &str = "No valid host was found. There are not enough hosts available.";
const NO_DEPLOY: &str = "Failed to deploy instance: Timeout reached while waiting for callback for node";

#[test]
fn a_server_in_error_is_deleted_and_created_once_more() {
    let site = Site::stand_in();
    site.sandbox().fail_server(NO_DEPLOY);
    let spec = site.spec("", "");
    site.up_to_ssh(&spec)
        .says("failed to boot host-0")
        .says(&format!("it is in error: {NO_DEPLOY}: the machine did not boot its image"))
        .says("it is created again");
    assert_eq!(site.asked("POST", "/servers"), 2);
    assert_eq!(site.asked("DELETE", "/servers/"), 0);
    let held = site.ours();
    assert_eq!(held.counts(), [1, 1, 1, 1], "{held:?}");
    assert_eq!(held.servers[0].status, "ACTIVE");
    site.down();
}

#[test]
fn a_server_in_error_twice_fails_with_its_fault_explained() {
    let site = Site::stand_in();
    site.sandbox().fail_server(NO_HOST);
    site.sandbox().fail_server(NO_HOST);
    let spec = site.spec("", "");
    let up = site.run(&["up", &spec]).exits(1);
    up.says("error: failed to boot host-0")
        .says(&format!(
            "it is in error: {}: the host of the lease is in use or failed, or the lease is not active",
            NO_HOST.trim_end_matches('.')
        ))
        .says("left behind: ")
        .says("hint: gpucl up")
        .says("hint: gpucl down -c demo");
    assert_eq!(site.asked("POST", "/servers"), 2, "one retry, and no more");
    assert_eq!(site.asked("POST", "/leases"), 1, "the lease is good, and is kept");
    assert_eq!(site.ours().counts(), [1, 1, 1, 1]);
    // The next `up` goes on from there, and the server in error makes room.
    site.up_to_ssh(&spec);
    assert_eq!(site.ours().servers.iter().map(|server| server.status.as_str()).collect::<Vec<_>>(), ["ACTIVE"]);
    site.down();
}

#[test]
fn no_valid_host_on_an_own_lease_leaves_the_lease() {
    let site = Site::stand_in();
    let lease = site.lease_of(User::Alice, "mine", site.node(), None, 2);
    site.sandbox().fail_server(NO_HOST);
    site.sandbox().fail_server(NO_HOST);
    let spec = site.spec("lease: mine", "");
    site.run(&["up", &spec]).exits(1).says("No valid host was found");
    site.down();
    let held = site.of(User::Alice);
    assert_eq!(held.counts(), [1, 0, 0, 0], "{held:?}");
    assert_eq!((held.leases[0].id.as_str(), held.leases[0].status.as_str()), (lease.as_str(), "ACTIVE"));
}

fn a_server_that_never_answers_by_ssh_is_given_up_after_the_limit_of_the_spec(mut site: Site) {
    site.ssh_says(NO_SSH);
    let spec = site.spec("", "timeouts: { boot: 2s }");
    let begin = std::time::Instant::now();
    let up = site.up_to_ssh(&spec);
    let up = up.says("waiting for host-0 to answer by SSH").says("Connection timed out").says("timeouts.boot");
    assert!(begin.elapsed() < Duration::from_secs(120), "{}", up.stderr);
    let held = site.ours();
    assert_eq!(held.counts(), [1, 1, 1, 1], "what was booted is kept for the next `up`: {held:?}");
    assert_eq!(held.servers[0].status, "ACTIVE");
    assert_eq!(site.asked("POST", "/servers"), 1);
    site.down();
}

#[test]
fn no_floating_ip_is_left_at_the_site() {
    let site = Site::with(Config { floating_ips: 0, ..Config::default() });
    let spec = site.spec("", "");
    site.run(&["up", &spec])
        .exits(1)
        .says("no floating IP is left for the project")
        .says("hint: release one that is not in use, or ask for a higher quota")
        .says("hint: gpucl down -c demo");
    let held = site.ours();
    assert_eq!((held.counts()[1], held.counts()[2]), (0, 0), "no server without its address: {held:?}");
    site.down();
}

#[test]
fn an_exhausted_address_quota_lists_idle_addresses_and_takes_none() {
    let site = Site::with(Config { floating_ip_quota: 1, ..Config::default() });
    let (_, networks) = site.call(User::Alice, "GET", "/network/v2.0/networks?name=public", &Value::Null);
    let body = serde_json::json!({"floatingip": {"floating_network_id": networks["networks"][0]["id"]}});
    let (status, made) = site.call(User::Bob, "POST", "/network/v2.0/floatingips", &body);
    assert_eq!(status, 201, "{made}");
    let address = made["floatingip"]["floating_ip_address"].as_str().unwrap();
    let spec = site.spec("", "");
    site.run(&["up", &spec])
        .exits(1)
        .says(&format!("the project has some that are not in use: {address}"))
        .says(&format!("hint: if one of them is yours: `provider: {{name: chameleon, floating_ip: {address}}}`"));
    site.down();
    // With permission it uses the idle address, and leaves it behind at the end.
    let spec = site.spec(&format!("floating_ip: {address}"), "");
    site.up_to_ssh(&spec);
    site.down();
    let left = site.sandbox().snapshot().floating_ips;
    assert_eq!(left.iter().map(|one| (one.address.as_str(), &one.port)).collect::<Vec<_>>(), [(address, &None)]);
}

#[test]
fn an_exhausted_quota_of_servers_is_reported_with_a_hint() {
    let site = Site::with(Config { instance_quota: 0, ..Config::default() });
    let spec = site.spec("", "");
    site.run(&["up", &spec])
        .exits(1)
        .says("Quota exceeded for instances: Requested 1, but already used 0 of 0 instances")
        .says("hint: delete what is not needed any more, or ask the site for more");
    assert_eq!(site.asked("POST", "/servers"), 1, "a quota is not tried again");
    assert_eq!(site.ours().servers, []);
    site.down();
}

#[test]
fn an_exhausted_quota_of_key_pairs_is_reported_with_a_hint() {
    let site = Site::with(Config { key_pair_quota: 0, ..Config::default() });
    let spec = site.spec("", "");
    site.run(&["up", &spec])
        .exits(1)
        .says("Quota exceeded")
        .says("hint: delete what is not needed any more, or ask the site for more");
    assert_eq!((site.ours().servers, site.ours().keys), (vec![], vec![]), "no server without its key");
    site.down();
}

#[test]
fn exhausted_service_units_are_reported() {
    let mut config = Config::default();
    config.quirks = gpucl::sandbox::chameleon::Quirks { service_units: Some(0.5), ..config.quirks };
    let site = Site::with(config);
    site.run(&["lease", "--node", "liqid02", "--hours", "3"])
        .exits(1)
        .says("would spend")
        .says("hint: ask for less time, or ask the project's PI for more service units");
    assert_eq!(site.ours().counts(), [0; 4]);
}

fn image(name: &str, visibility: &str) -> ImageConfig {
    ImageConfig { visibility: visibility.to_owned(), ..ImageConfig::new(name) }
}

/// The images that servers were asked for with.
fn images_asked(site: &Site) -> Vec<String> {
    let log = site.sandbox().log();
    let asked = log.iter().filter(|entry| entry.method == "POST" && entry.path.ends_with("/servers"));
    asked.filter_map(|entry| Some(entry.body.as_ref()?["server"]["imageRef"].as_str()?.to_owned())).collect()
}

#[test]
fn an_ambiguous_private_image_is_not_guessed() {
    let mut config = Config::default();
    config.images.extend([image("mine", "private"), image("mine", "private")]);
    let site = Site::with(config);
    let spec = site.spec("image: mine", "");
    let up = site.run(&["up", &spec]).exits(1);
    let up = up
        .says("failed to find the image mine")
        .says("several images have that name, and none is public: ")
        .says("hint: use its id");
    assert_eq!(site.ours().counts(), [0; 4], "nothing was asked for");
    site.run(&["status", "-c", "demo"]).exits(6);
    // By the id it is one.
    let id = up.stderr.split("none is public: ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let spec = site.spec(&format!("image: {id}"), "");
    site.up_to_ssh(&spec);
    assert_eq!(images_asked(&site), [id]);
    site.down();
}

#[test]
fn the_newest_of_several_public_images_with_one_name_is_used() {
    let mut config = Config::default();
    config.images.extend([image("CC-Ubuntu24.04-ROCm", "public")]);
    let site = Site::with(config);
    let (_, listed) = site.call(User::Alice, "GET", "/image/v2/images?name=CC-Ubuntu24.04-ROCm", &Value::Null);
    let mut images: Vec<(String, String)> = listed["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["created_at"].as_str().unwrap().to_owned(), one["id"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(images.len(), 2);
    images.sort();
    let spec = site.spec("", "");
    site.up_to_ssh(&spec);
    assert_eq!(images_asked(&site), [images[1].1.clone()]);
    site.down();
}

#[test]
fn a_missing_image_is_found_before_anything_is_created() {
    let site = Site::stand_in();
    let spec = site.spec("image: CC-Ubuntu18.04", "");
    site.run(&["up", &spec])
        .exits(1)
        .says("failed to find the image CC-Ubuntu18.04")
        .says("hint: choose another with `provider.image:` in the spec");
    assert_eq!(site.ours().counts(), [0; 4]);
    site.run(&["status", "-c", "demo"]).exits(6);
}

#[test]
fn a_missing_network_is_found_before_anything_is_created() {
    let site = Site::with(Config { networks: vec!["sharednet2".to_owned()], ..Config::default() });
    let spec = site.spec("", "");
    site.run(&["up", &spec])
        .exits(1)
        .says("failed to find the network sharednet1")
        .says("the site has no network of that name")
        .says("hint: choose another with `provider.network:` in the spec");
    assert_eq!(site.ours().counts(), [0; 4]);
    site.run(&["plan", &spec]).exits(1).says("failed to find the network sharednet1");
    let spec = site.spec("network: sharednet2", "");
    site.up_to_ssh(&spec);
    site.down();
}

#[test]
fn a_server_deleted_by_others_while_booting_is_created_once_more() {
    let site = Site::with(Config { boot: Duration::from_secs(3), ..Config::default() });
    let spec = site.spec("", "");
    std::thread::scope(|scope| {
        let up = scope.spawn(|| site.up_to_ssh(&spec));
        let id = crate::support::until("a server is there", 30, || Some(site.ours().servers.first()?.id.clone()));
        let (status, _) = site.call(User::Bob, "DELETE", &format!("/compute/v2.1/servers/{id}"), &Value::Null);
        assert_eq!(status, 204);
        let up = up.join().unwrap();
        up.says("the server no longer exists: its lease ended, or somebody deleted it");
    });
    assert_eq!(site.asked("POST", "/servers"), 2);
    assert_eq!(site.ours().counts(), [1, 1, 1, 1]);
    site.down();
}

#[test]
fn an_unattachable_address_is_reported_and_attached_by_the_next_up() {
    let site = Site::stand_in();
    site.faults(vec![Rule::new("PUT", "/floatingips/[^/]+$", "status:404")]);
    let spec = site.spec("", "");
    site.run(&["up", &spec]).exits(6).says("hint: gpucl up");
    assert_eq!(site.ours().counts(), [1, 1, 1, 1]);
    site.up_to_ssh(&spec);
    assert_eq!(site.ours().addresses.iter().map(|one| one.status.as_str()).collect::<Vec<_>>(), ["ACTIVE"]);
    site.down();
}
