//! Services that are overloaded, fail, or hang up; answers that are lost; clocks that differ.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::SignedDuration;

use super::{Config, Rule, Site, User, on_both};

on_both! {
    ci: [
        calls_whose_answers_are_lost_are_found_again_by_up_and_down
    ]
    every: [
        a_lease_whose_answer_was_lost_is_found_and_never_requested_twice
        a_busy_service_is_retried_after_the_time_it_gives
        a_failing_service_is_reported_and_the_next_command_resumes
    ]
}

/// Every call by which `up` and `down` change something.
const MADE: [(&str, &str); 5] = [
    ("POST", "/reservation/v1/leases$"),
    ("POST", "/os-keypairs$"),
    ("POST", "/floatingips$"),
    ("POST", "/servers$"),
    ("PUT", "/floatingips/"),
];
const REMOVED: [(&str, &str); 4] = [
    ("DELETE", "/servers/"),
    ("DELETE", "/floatingips/"),
    ("DELETE", "/os-keypairs/"),
    ("DELETE", "/reservation/v1/leases/"),
];

fn rules(calls: &[(&str, &str)], fault: &str) -> Vec<Rule> {
    calls.iter().map(|(method, path)| Rule::new(method, path, fault)).collect()
}

/// The result of each fault. They mostly wait, so all run at once when the first result is requested.
static MET: LazyLock<BTreeMap<&str, Result<(), String>>> = LazyLock::new(|| {
    let runs = |fault: &str| if ["status:429", "cut-after", "after:500", "malformed"].contains(&fault) { 1 } else { 6 };
    std::thread::scope(|scope| {
        let begun: Vec<_> = ALL.iter().map(|fault| (*fault, scope.spawn(|| meets(fault, runs(fault))))).collect();
        let why =
            |panic: Box<dyn Any + Send>| panic.downcast::<String>().map_or_else(|_| "it failed".to_owned(), |why| *why);
        begun.into_iter().map(|(fault, met)| (fault, met.join().map_err(why))).collect()
    })
});

/// Every changing call meets this fault once; checks the result.
#[track_caller]
fn every_call_meets(fault: &str) {
    assert_eq!(MET.get(fault), Some(&Ok(())), "{fault}");
}

/// `up` succeeds within `runs` runs, and creates nothing twice.
fn meets(fault: &str, runs: usize) {
    let site = Site::stand_in();
    comes_through(&site, fault, runs);
    let met = site.sandbox().log().iter().filter(|entry| entry.fault.as_deref() == Some(fault)).count();
    assert_eq!(met, MADE.len() + REMOVED.len(), "{fault}: each call met it once");
}

#[track_caller]
fn comes_through(site: &Site, fault: &str, runs: usize) {
    let spec = site.spec("", "");
    site.faults(rules(&MADE, fault));
    let mut failed = Vec::new();
    loop {
        let up = site.run(&["up", &spec]);
        assert_ne!(up.code, Some(0));
        let held = site.ours();
        assert!(held.counts().iter().all(|count| *count <= 1), "{fault}: made twice: {held:?}\n{}", up.stderr);
        if up.stderr.contains("failed to connect to host-0") {
            break;
        }
        let up = up.exits(1).says("Caused by:").says("hint: gpucl up").says("hint: gpucl down -c demo");
        failed.push(up.stderr);
        assert!(failed.len() < runs, "{fault}: `up` did not come through:\n{}", failed.join("\n"));
    }
    assert_eq!(site.ours().counts(), [1; 4]);
    site.faults(rules(&REMOVED, fault));
    let mut failed = Vec::new();
    loop {
        let down = site.run(&["down", "--yes", "-c", "demo"]);
        if down.code == Some(0) {
            break;
        }
        failed.push(down.says("hint: gpucl down -c demo").stderr);
        assert!(failed.len() < runs, "{fault}: `down` did not come through:\n{}", failed.join("\n"));
    }
    assert_eq!(site.ours().counts(), [0; 4], "{fault}");
}

#[test]
fn every_changing_call_refused_with_429_is_retried() {
    every_call_meets("status:429");
}

#[test]
fn every_changing_call_that_fails_with_500_is_checked_before_a_retry() {
    every_call_meets("status:500");
}

#[test]
fn every_changing_call_that_meets_a_502_is_checked_before_a_retry() {
    every_call_meets("status:502");
}

#[test]
fn every_changing_call_that_meets_a_503_is_checked_before_a_retry() {
    every_call_meets("status:503");
}

#[test]
fn every_changing_call_cut_before_it_acts_is_checked_before_a_retry() {
    every_call_meets("cut-before");
}

#[test]
fn every_changing_call_whose_answer_is_lost_is_found_again() {
    every_call_meets("cut-after");
}

#[test]
fn every_changing_call_that_acts_and_answers_500_is_found_again() {
    every_call_meets("after:500");
}

#[test]
fn every_changing_call_whose_answer_is_not_json_is_found_again() {
    every_call_meets("malformed");
}

const ALL: [&str; 8] =
    ["status:429", "status:500", "status:502", "status:503", "cut-before", "cut-after", "after:500", "malformed"];

#[test]
fn a_failed_extension_says_when_the_lease_ends() {
    let site = Site::stand_in();
    site.run(&["lease", "--node", "liqid02", "--hours", "1", "--name", "mine"]).exits(0);
    for fault in ALL {
        let before = site.sandbox().snapshot().leases[0].end;
        site.faults(vec![Rule::new("PUT", "/reservation/v1/leases/", fault)]);
        let extended = site.run(&["lease", "extend", "mine", "--hours", "1"]);
        let after = site.sandbox().snapshot().leases[0].end;
        if extended.code == Some(0) {
            assert_eq!(after, before + SignedDuration::from_hours(1), "{fault}");
            extended.prints("lease mine ends at ");
        } else {
            assert!(["status:500", "status:502", "status:503", "cut-before"].contains(&fault), "{fault}");
            assert_eq!(after, before, "{fault}");
            extended.exits(1).says("failed to").says("as before").says("hint: ");
        }
        assert_eq!(site.ours().counts(), [1, 0, 0, 0]);
    }
}

#[test]
fn a_failed_login_is_retried_since_it_changes_nothing() {
    let site = Site::stand_in();
    for fault in ALL.iter().filter(|fault| **fault != "malformed") {
        site.faults(vec![Rule::new("POST", "/auth/tokens$", fault)]);
        site.run(&["calendar", "--node", "liqid02"]).exits(0);
    }
    site.faults(vec![Rule::new("POST", "/auth/tokens$", "malformed")]);
    site.run(&["calendar", "--node", "liqid02"])
        .exits(1)
        .says("failed to authenticate at CHI@UC")
        .says("hint: is there a proxy or a captive portal between this machine and the site?");
}

#[test]
fn failed_reading_calls_are_retried() {
    let site = Site::stand_in();
    for fault in ALL {
        site.faults(vec![
            Rule::new("GET", "/reservation/v1/os-hosts$", fault),
            Rule::new("GET", "/os-hosts/allocations$", fault),
            Rule::new("GET", "/reservation/v1/leases$", fault),
        ]);
        site.run(&["lease", "list"]).exits(0);
    }
}

#[test]
fn a_permanently_failing_service_is_reported_after_a_few_attempts() {
    let site = Site::stand_in();
    site.faults(vec![Rule::new("GET", "/os-hosts$", "status:503").times(100)]);
    site.run(&["lease", "--node", "liqid02", "--hours", "1"])
        .exits(1)
        .says("the service answered 503")
        .says("hint: the service is having problems; try again in a few minutes");
    let asked = site.asked("GET", "/os-hosts");
    assert!((2..=8).contains(&asked), "{asked}");
    assert_eq!(site.sandbox().snapshot().count(), 0);
}

#[test]
fn an_unreachable_site_is_reported() {
    let mut site = Site::stand_in();
    // A port of this machine where nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    site.env.set("OS_AUTH_URL", &format!("http://127.0.0.1:{port}/v3"));
    site.run(&["lease", "--node", "liqid02", "--hours", "1"])
        .exits(1)
        .says("127.0.0.1 cannot be reached: Connection refused")
        .says("hint: check that this machine is online");
}

fn a_lease_whose_answer_was_lost_is_found_and_never_requested_twice(site: Site) {
    site.faults(vec![Rule::new("POST", "/reservation/v1/leases$", "cut-after")]);
    site.run(&["lease", "--node", site.node(), "--hours", "1", "--name", "mine"])
        .exits(0)
        .says("checking whether the lease exists anyway")
        .prints("lease mine is active");
    assert_eq!(site.asked("POST", "/leases"), 1);
    assert_eq!(site.ours().counts(), [1, 0, 0, 0]);
    site.run(&["lease", "delete", "mine", "--yes"]).exits(0);
    assert_eq!(site.ours().counts(), [0; 4]);
}

fn a_busy_service_is_retried_after_the_time_it_gives(site: Site) {
    let mut rule = Rule::new("POST", "/reservation/v1/leases$", "status:429").times(2);
    rule.headers.insert("Retry-After".to_owned(), "1".to_owned());
    site.faults(vec![rule]);
    let begin = std::time::Instant::now();
    site.run(&["lease", "--node", site.node(), "--hours", "1"]).exits(0);
    assert!(begin.elapsed() >= Duration::from_secs(2), "it said twice that it wants a second");
    assert_eq!(site.asked("POST", "/leases"), 3);
    assert_eq!(site.ours().counts(), [1, 0, 0, 0]);
}

fn a_failing_service_is_reported_and_the_next_command_resumes(site: Site) {
    site.faults(vec![Rule::new("POST", "/reservation/v1/leases$", "status:503")]);
    let arguments = ["lease", "--node", site.node(), "--hours", "1", "--name", "mine"];
    site.run(&arguments)
        .exits(1)
        .says("left behind: unknown")
        .says("hint: the service is having problems; try again in a few minutes")
        .says("hint: gpucl lease list   # looks for what may have been created");
    assert_eq!(site.asked("POST", "/leases"), 1, "what may have been done is not repeated blindly");
    assert_eq!(site.ours().counts(), [0; 4]);
    site.run(&["lease", "list"]).exits(0).says("the lease mine, requested by an earlier command, was not made");
    site.run(&arguments).exits(0).prints("lease mine is active");
    assert_eq!(site.ours().counts(), [1, 0, 0, 0]);
}

fn calls_whose_answers_are_lost_are_found_again_by_up_and_down(site: Site) {
    comes_through(&site, "cut-after", 1);
}

#[test]
fn a_clock_behind_the_sites_is_reported_when_a_start_is_refused() {
    let site = Site::with(Config { clock_offset: SignedDuration::from_mins(30), ..Config::default() });
    let soon = (jiff::Timestamp::now() + SignedDuration::from_mins(5)).strftime("%Y-%m-%d %H:%M").to_string();
    site.run(&["lease", "--node", "liqid02", "--start", &soon, "--hours", "1"])
        .exits(1)
        .says("Start date must be later than current date")
        .says("the site's clock is 30 min ahead of this machine's")
        .says("check this machine's clock: `date -u`");
    assert_eq!(site.ours().counts(), [0; 4]);
}

#[test]
fn different_clocks_do_not_prevent_a_lease_from_now() {
    for minutes in [-20, 20] {
        let site = Site::with(Config { clock_offset: SignedDuration::from_mins(minutes), ..Config::default() });
        let spec = site.spec("hours: 2", "");
        site.up_to_ssh(&spec);
        assert_eq!(site.ours().counts(), [1; 4], "{minutes}");
        site.down();
        site.run(&["lease", "--node", "liqid02", "--hours", "2", "--start", "now"]).exits(0).prints("is active");
        assert_eq!(site.of(User::Alice).counts(), [1, 0, 0, 0]);
    }
}
