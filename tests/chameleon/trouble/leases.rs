//! Leases that changed, failed, or belong to others.

use std::time::Duration;

use serde_json::Value;

use super::{Config, Rule, Site, User, on_both};
use crate::support::until;

on_both! {
    ci: [
        a_lease_in_transition_is_deleted_as_soon_as_it_can_be
    ]
    every: [
        a_server_boots_only_once_its_reservation_is_active
        a_lease_in_transition_is_not_extended_and_says_so
        a_foreign_lease_with_the_same_name_is_left_alone
        a_lease_deleted_by_others_is_reported_as_gone
    ]
}

/// Blazar's answer while it starts, changes or ends a lease.
fn in_transition(method: &str, count: u32) -> Rule {
    let mut rule = Rule::new(method, "/reservation/v1/leases/", "status:500").times(count);
    rule.body = Some("{\"error_code\": 500, \"error_message\": \"Invalid lease status.\"}".to_owned());
    rule
}

fn the_lease(site: &Site) -> String {
    let ours = site.ours();
    assert_eq!(ours.leases.len(), 1, "{ours:?}");
    ours.leases[0].id.clone()
}

fn a_lease_in_transition_is_deleted_as_soon_as_it_can_be(site: Site) {
    site.run(&["lease", "--node", site.node(), "--hours", "1", "--name", "mine"]).exits(0);
    site.faults(vec![in_transition("DELETE", 2)]);
    site.run(&["lease", "delete", "mine", "--yes"]).exits(0).prints("lease mine is gone");
    assert_eq!(site.ours().counts(), [0; 4]);
}

fn a_lease_in_transition_is_not_extended_and_says_so(site: Site) {
    site.run(&["lease", "--node", site.node(), "--hours", "1", "--name", "mine"]).exits(0);
    let id = the_lease(&site);
    site.faults(vec![in_transition("PUT", 1)]);
    site.run(&["lease", "extend", "mine", "--hours", "1"])
        .exits(1)
        .says("Invalid lease status")
        .says("the lease ends at ")
        .says("as before")
        .says("hint: it is being changed; try again in a minute");
    assert_eq!(site.asked("PUT", &format!("/leases/{id}")), 1, "it is not tried again blindly");
    site.run(&["lease", "extend", "mine", "--hours", "1"]).exits(0).prints("lease mine ends at ");
    site.run(&["lease", "delete", "mine", "--yes"]).exits(0);
}

#[test]
fn a_starting_lease_is_deleted_once_it_has_started() {
    let config = Config { transition: Duration::from_millis(1500), ..Config::default() };
    let site = Site::with(config);
    let id = site.lease_of(User::Alice, "mine", "liqid02", None, 1);
    site.lease_becomes(User::Alice, &id, &["STARTING"]);
    site.run(&["lease", "delete", &id, "--yes"]).exits(0).prints("lease mine is gone");
    assert_eq!(site.of(User::Alice).counts(), [0; 4]);
}

#[test]
fn a_lease_in_error_is_reported_by_every_command_with_a_hint() {
    let site = Site::stand_in();
    site.run(&["lease", "--node", site.node(), "--hours", "1", "--name", "mine"]).exits(0);
    let id = the_lease(&site);
    assert!(site.sandbox().break_lease(&id));
    site.run(&["lease", "show", "mine"]).exits(0).prints("failed (ERROR)");
    site.run(&["lease", "wait", "mine"])
        .exits(1)
        .says("the reservation service failed on it (ERROR)")
        .says(&format!("hint: gpucl lease delete {id}"));
    let spec = site.spec("lease: mine", "");
    site.run(&["up", &spec])
        .exits(1)
        .says("failed to use the lease mine")
        .says("it is in ERROR")
        .says("gpucl lease delete");
    assert_eq!(site.ours().counts(), [1, 0, 0, 0], "nothing was booted on it");
    site.run(&["lease", "delete", "mine", "--yes"]).exits(0);
    assert_eq!(site.ours().counts(), [0; 4]);
}

#[test]
fn a_lease_of_up_in_error_is_created_once_more() {
    // Until the first tick it is pending, long enough for it to break.
    let site = Site::with(Config { lease_tick: Duration::from_secs(2), ..Config::default() });
    let spec = site.spec("", "");
    let broken = std::thread::scope(|scope| {
        let up = scope.spawn(|| site.up_to_ssh(&spec));
        let id = until("the lease is made", 20, || Some(site.ours().leases.first()?.id.clone()));
        assert!(site.sandbox().break_lease(&id));
        up.join().unwrap().says("the reservation service failed on it (ERROR)").says("it is created again");
        id
    });
    let held = site.ours();
    assert_eq!(held.counts(), [1, 1, 1, 1], "{held:?}");
    assert_ne!(held.leases[0].id, broken);
    site.down();
}

/// A host that the service has lost from its pool fails each lease: what helps is another host.
#[test]
fn a_lease_of_up_in_error_twice_fails_with_a_hint() {
    let site = Site::with(Config { lease_tick: Duration::from_secs(2), ..Config::default() });
    let spec = site.spec("", "");
    std::thread::scope(|scope| {
        let up = scope.spawn(|| site.run(&["up", &spec]).exits(1));
        let mut broken = String::new();
        for _ in 0..2 {
            let other = || Some(site.ours().leases.first()?.id.clone()).filter(|id| *id != broken);
            broken = until("another lease", 20, other);
            assert!(site.sandbox().break_lease(&broken));
        }
        up.join()
            .unwrap()
            .says("it is created again")
            .says("error: failed to wait for the lease demo")
            .says(&format!("hint: gpucl lease delete {broken}"))
            .says("its host is out of order: `gpucl calendar` shows others")
            .says("hint: gpucl down -c demo");
    });
    assert_eq!(site.asked("POST", "/leases"), 2, "one retry, and no more");
    site.down();
}

#[test]
fn a_degraded_lease_is_reported_and_used() {
    let site = Site::stand_in();
    site.run(&["lease", "--node", site.node(), "--hours", "1", "--name", "mine"]).exits(0);
    assert!(site.sandbox().degrade(&the_lease(&site)));
    let degraded = "degraded: some of its hosts have failed";
    site.run(&["lease", "list"]).exits(0).prints(degraded);
    site.run(&["lease", "show", "mine"]).exits(0).prints(degraded);
    let warning = "the lease mine is degraded: one of its hosts has failed, and the service found no other";
    site.run(&["lease", "wait", "mine"]).exits(0).says(warning);
    let spec = site.spec("", "");
    site.up_to_ssh(&spec).says(warning);
    site.down_keeping_leases(1);
}

fn a_foreign_lease_with_the_same_name_is_left_alone(site: Site) {
    let theirs = site.lease_of(User::Bob, "demo", site.other_node(), None, 1);
    let web = site.lease_of(User::Alice, "demo", "c03-05", Some(Duration::from_secs(2 * 86400)), 1);
    site.run(&["lease", "--node", site.node(), "--hours", "1", "--name", "demo"]).exits(0);
    let made = the_lease(&site);
    // A name that several have is not guessed.
    let several = site.run(&["lease", "show", "demo"]).exits(6).says("several leases have that name: ");
    assert!([&theirs, &web, &made].iter().all(|id| several.stderr.contains(id.as_str())), "{}", several.stderr);
    site.run(&["lease", "delete", "demo", "--yes"])
        .exits(6)
        .says("several leases have that name")
        .says("hint: use its id");
    site.run(&["lease", "delete", &made, "--yes"]).exits(0);
    assert_eq!(site.ours().counts(), [0; 4]);
    let left: Vec<String> =
        [User::Alice, User::Bob].iter().flat_map(|user| site.of(*user).leases).map(|lease| lease.id).collect();
    assert!(left.contains(&theirs) && left.contains(&web), "{left:?}");
}

#[test]
fn with_unique_lease_names_the_tag_distinguishes_leases() {
    let site = Site::with(Config { unique_lease_names: true, ..Config::default() });
    site.lease_of(User::Bob, "demo", "liqid01", None, 1);
    site.run(&["lease", "--node", "liqid02", "--hours", "1", "--name", "demo"]).exits(0);
    site.run(&["lease", "--node", "c03-04", "--hours", "1", "--name", "demo"]).exits(0);
    let spec = site.spec("", "");
    site.up_to_ssh(&spec);
    assert_eq!(site.ours().counts(), [3, 1, 1, 1]);
    site.down_keeping_leases(2);
}

#[test]
fn with_unique_lease_names_an_ended_lease_makes_room() {
    let site = Site::with(Config { unique_lease_names: true, ..Config::default() });
    let spec = site.spec("hours: 1", "");
    site.up_to_ssh(&spec);
    let spec = site.spec("hours: 4", "");
    let before = the_lease(&site);
    site.sandbox().advance(Duration::from_secs(2 * 3600));
    assert_eq!(site.ours().counts()[..2], [0, 0], "its end took the server");
    site.up_to_ssh(&spec);
    assert_eq!(site.ours().counts(), [1, 1, 1, 1]);
    assert_ne!(the_lease(&site), before);
    let all = site.sandbox().snapshot().leases;
    assert!(!all.iter().any(|lease| lease.id == before), "the old one had the name: {all:?}");
    site.down();
}

fn a_lease_deleted_by_others_is_reported_as_gone(site: Site) {
    site.run(&["lease", "--node", site.node(), "--hours", "1", "--name", "mine"]).exits(0);
    let id = the_lease(&site);
    // The service does not protect leases from others of the project.
    let (status, _) = site.call(User::Bob, "DELETE", &format!("/reservation/v1/leases/{id}"), &Value::Null);
    assert!(status < 300, "{status}");
    until("it is gone", 60, || site.ours().leases.is_empty().then_some(()));
    for command in ["show", "wait", "delete"] {
        site.run(&["lease", command, &id, "--yes"])
            .exits(6)
            .says(&format!("failed to find the lease {id}"))
            .says("the project has no lease of that name or id")
            .says("hint: gpucl lease list --all");
    }
    site.run(&["lease", "extend", &id, "--hours", "1"]).exits(6).says("the project has no lease of that name or id");
    let spec = site.spec(&format!("lease: {id}"), "");
    site.run(&["up", &spec]).exits(6).says("the project has no lease of that name or id");
    assert_eq!(site.ours().counts(), [0; 4]);
}

#[test]
fn a_lease_deleted_by_others_during_up_is_recreated_with_its_servers() {
    let site = Site::with(Config { boot: Duration::from_secs(3), ..Config::default() });
    let spec = site.spec("", "");
    let first = std::thread::scope(|scope| {
        let up = scope.spawn(|| site.up_to_ssh(&spec));
        until("a server boots", 30, || (!site.ours().servers.is_empty()).then_some(()));
        let id = the_lease(&site);
        assert!(site.sandbox().delete_lease(&id));
        up.join().unwrap().says("the server no longer exists: its lease ended, or somebody deleted it");
        id
    });
    let held = site.ours();
    assert_eq!(held.counts(), [1, 1, 1, 1], "{held:?}");
    assert_ne!(held.leases[0].id, first);
    site.down();
}

#[test]
fn an_adopted_lease_deleted_during_up_is_not_replaced() {
    let site = Site::with(Config { boot: Duration::from_secs(3), ..Config::default() });
    let lease = site.lease_of(User::Alice, "mine", site.node(), None, 2);
    let spec = site.spec("lease: mine", "");
    std::thread::scope(|scope| {
        let up = scope.spawn(|| site.run(&["up", &spec]));
        until("a server boots", 30, || (!site.ours().servers.is_empty()).then_some(()));
        assert!(site.sandbox().delete_lease(&lease));
        let up = up.join().unwrap();
        assert_ne!(up.code, Some(0));
        up.says("its lease ended, or somebody deleted it").says("hint: gpucl down -c demo");
    });
    assert_eq!(site.of(User::Alice).leases, [], "no other lease was made in its place");
    site.down();
}

#[test]
fn a_lease_that_ends_during_up_fails_it_with_the_end_time() {
    let site = Site::with(Config { boot: Duration::from_secs(600), ..Config::default() });
    site.lease_of(User::Alice, "mine", site.node(), None, 1);
    let spec = site.spec("lease: mine", "");
    std::thread::scope(|scope| {
        let up = scope.spawn(|| site.run(&["up", &spec]));
        until("a server boots", 30, || (!site.ours().servers.is_empty()).then_some(()));
        site.sandbox().advance(Duration::from_secs(3601));
        let up = up.join().unwrap();
        assert_ne!(up.code, Some(0));
        up.says("its lease ended, or somebody deleted it")
            .says("failed to boot host-0")
            .says("the lease mine ended at ")
            .says("hint: gpucl lease --node c03-05 --hours 3")
            .says("hint: gpucl down -c demo");
    });
    assert_eq!(site.asked("POST", "/servers"), 1, "a lease that is over takes no other");
    assert_eq!(site.ours().servers, []);
    assert_eq!(site.asked("POST", "/leases"), 1, "that of the web form, and no other");
    site.down();
}

fn a_server_boots_only_once_its_reservation_is_active(site: Site) {
    if !site.is_real() {
        // The service checks for due events every few seconds.
        site.sandbox().change(|config| config.lease_tick = Duration::from_secs(4));
    }
    let spec = site.spec("", "");
    site.up_to_ssh(&spec).says("waiting for the lease demo to become active");
    assert_eq!(site.asked("POST", "/servers"), 1, "one for a pending reservation would have ended in ERROR");
    let held = site.ours();
    assert_eq!(held.counts(), [1, 1, 1, 1], "{held:?}");
    assert_eq!(held.servers[0].status, "ACTIVE");
    site.down();
}

#[test]
fn an_outage_does_not_end_the_wait_for_a_lease() {
    let site = Site::with(Config { lease_tick: Duration::from_secs(8), ..Config::default() });
    let spec = site.spec("", "");
    std::thread::scope(|scope| {
        let up = scope.spawn(|| site.up_to_ssh(&spec));
        let id = until("a lease", 60, || site.ours().leases.first().map(|lease| lease.id.clone()));
        until("a look at it", 60, || (site.asked("GET", &format!("/leases/{id}")) > 0).then_some(()));
        // A check fails only after four requests.
        site.faults(vec![Rule::new("GET", &format!("/leases/{id}$"), "status:503").times(8)]);
        up.join().unwrap().says("retrying until the wait's time limit").says("the service responds again");
    });
    assert_eq!(site.asked("POST", "/leases"), 1);
    site.down();
}
