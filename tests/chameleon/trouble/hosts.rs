//! Unavailable hosts and times.

use std::time::Duration;

use serde_json::Value;

use super::{Config, Rule, Site, User, on_both};
use crate::support::{Outcome, until};

on_both! {
    ci: [
        a_host_that_cannot_be_reserved_says_so
    ]
    every: [
        a_host_that_is_taken_is_refused_with_free_slots
        a_nonexistent_host_is_distinguished_from_a_taken_one
        more_than_seven_days_are_refused_before_any_request
        a_date_in_the_past_is_refused_before_any_request
    ]
}

/// The commands of the free slots that were offered.
fn offered(outcome: &Outcome) -> Vec<String> {
    let hints = outcome.stderr.lines().filter(|line| line.starts_with("hint: free: "));
    hints.filter_map(|line| line.split_once(": gpucl ")).map(|(_, command)| command.to_owned()).collect()
}

/// Runs a command as it was shown.
fn run_shown(env: &crate::support::TestEnv, command: &str) -> Outcome {
    let words = command.split('"').enumerate().flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().collect::<Vec<_>>(),
        _ => vec![part],
    });
    env.run(&words.collect::<Vec<_>>())
}

fn a_host_that_is_taken_is_refused_with_free_slots(site: Site) {
    let node = site.node();
    let theirs = site.lease_of(User::Bob, "theirs", node, None, 2);
    let refused = site
        .run(&["lease", "--node", node, "--hours", "1", "--start", "now"])
        .exits(1)
        .says("failed to reserve hosts")
        .says(&format!("{node} is taken: "));
    let offered = offered(&refused);
    assert!(offered.len() >= 2, "{}", refused.stderr);
    assert_eq!(site.ours().counts(), [0; 4]);
    assert_eq!(site.asked("POST", "/leases"), usize::from(!site.is_real()), "only Bob asked, past the program");
    // The offered slots are available: the first for us, the second for another user.
    run_shown(&site.env, &offered[0]).exits(0).prints("is made");
    let bob = site.user(User::Bob);
    run_shown(&bob, &offered[1]).exits(0).prints("is made");
    let leases = site.of(User::Bob).leases;
    assert!(leases.iter().any(|lease| lease.id == theirs), "theirs is untouched");
    assert_eq!(site.ours().counts(), [1, 0, 0, 0]);
}

#[test]
fn a_second_lease_right_after_ones_own_is_refused_as_against_the_policy() {
    let site = Site::stand_in();
    let node = site.node();
    site.run(&["lease", "--node", node, "--hours", "3"]).exits(0).prints("is active");
    site.run(&["lease", "--node", node, "--hours", "3"]).exits(1).says("against the site's policy");
    assert_eq!(site.ours().counts(), [1, 0, 0, 0]);
}

#[test]
fn a_host_taken_between_check_and_request_is_reported_as_taken() {
    let site = Site::stand_in();
    site.faults(vec![Rule::new("POST", "/leases$", "delay:3")]);
    let looked = "/os-hosts/allocations";
    let refused = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.run(&["lease", "--node", "liqid02", "--hours", "1"]));
        until("the program has looked", 20, || (site.asked("GET", looked) > 0).then_some(()));
        std::thread::sleep(Duration::from_millis(300));
        let now = site.sandbox().now();
        site.sandbox().foreign_lease("liqid02", now, now + Duration::from_secs(7200)).unwrap();
        run.join().unwrap()
    });
    let refused = refused.exits(1).says("liqid02 is taken: ").says("the service says: Not enough hosts available");
    assert!(offered(&refused).len() >= 2, "{}", refused.stderr);
    assert_eq!(site.asked("POST", "/leases"), 1, "it is not tried again");
    assert_eq!(site.ours().counts(), [0; 4]);
    assert_eq!(site.sandbox().snapshot().leases.len(), 1);
    site.run(&["lease", "list"]).exits(0).says("you have no leases");
}

#[test]
fn a_host_failing_between_check_and_request_is_reported_with_a_hint() {
    let site = Site::stand_in();
    let mut rule = Rule::new("POST", "/leases$", "status:500");
    rule.body = Some("{\"error_code\": 500, \"error_message\": \"Not enough hosts available\"}".to_owned());
    site.faults(vec![rule]);
    site.run(&["lease", "--node", "liqid02", "--hours", "1"])
        .exits(1)
        .says("Not enough hosts available")
        .says("the calendar shows the host as free: it may have just failed, or be reserved for others")
        .says("hint: gpucl calendar --node liqid02");
    assert_eq!(site.asked("POST", "/leases"), 1);
    assert_eq!(site.ours().counts(), [0; 4]);
}

fn a_nonexistent_host_is_distinguished_from_a_taken_one(site: Site) {
    site.run(&["lease", "--node", "liqid2", "--hours", "1"])
        .exits(6)
        .says("there is no host `liqid2`")
        .says("hint: did you mean `liqid02`?");
    site.run(&["lease", "--node", "nowhere", "--hours", "1"])
        .exits(6)
        .says("there is no host `nowhere`")
        .says("gpucl calendar --all");
    let spec = site.spec("", "").clone();
    let text = std::fs::read_to_string(site.env.work().join(&spec)).unwrap().replace(site.node(), "c03-09");
    site.env.write(&spec, &text);
    site.run(&["up", &spec]).exits(6).says("there is no host `c03-09`");
    assert_eq!(site.asked("POST", "/leases"), 0);
    assert_eq!(site.ours().counts(), [0; 4]);
    site.run(&["status", "-c", "demo"]).exits(6);
}

fn a_host_that_cannot_be_reserved_says_so(site: Site) {
    let refused = site.run(&["lease", "--node", "broken01", "--hours", "1"]).exits(1);
    let refused = refused.says("broken01 cannot be reserved: not reservable");
    assert!(!refused.stderr.contains("taken"), "{}", refused.stderr);
    assert_eq!(site.asked("POST", "/leases"), 0);
    assert_eq!(site.ours().counts(), [0; 4]);
}

fn more_than_seven_days_are_refused_before_any_request(site: Site) {
    let refused = site.run(&["lease", "--node", site.node(), "--hours", "170"]).exits(2);
    let refused = refused.says("7 d 2 h is longer than the site allows, which is 7 d").says("hint: free: ");
    assert!(!offered(&refused).is_empty(), "{}", refused.stderr);
    assert_eq!(site.asked("POST", "/leases"), 0);
    // With a yes to less it is the longest that there is.
    site.run(&["lease", "--node", site.node(), "--hours", "170", "--shorten", "--dry-run"])
        .exits(0)
        .prints("its length is 7 d: the site allows no more");
    assert_eq!(site.ours().counts(), [0; 4]);
}

#[test]
fn a_sites_shorter_limit_is_read_from_its_message() {
    let site = Site::with(Config { longest_lease: Duration::from_secs(72 * 3600), ..Config::default() });
    site.run(&["lease", "--node", "liqid02", "--hours", "100"])
        .exits(1)
        .says("must be less than or equal to the maximum lease duration of 259200 seconds")
        .says("hint: ask for less time");
    assert_eq!(site.asked("POST", "/leases"), 1);
    assert_eq!(site.ours().counts(), [0; 4]);
}

fn a_date_in_the_past_is_refused_before_any_request(site: Site) {
    for arguments in [
        ["--start", "2026-01-02 10:00", "--hours", "1"],
        ["--start", "now", "--until", "2026-01-02 10:00"],
        ["--start", "next", "--until", "2026-01-02T10:00:00Z"],
    ] {
        let arguments: Vec<&str> = ["lease", "--node", site.node()].into_iter().chain(arguments).collect();
        site.run(&arguments).exits(2).says("Fri 2 Jan 10:00 UTC is in the past").says("hint: free: ");
    }
    assert_eq!(site.asked("POST", "/leases"), 0);
    assert_eq!(site.ours().counts(), [0; 4]);
}

/// What was asked of the service: start and end.
fn dates_asked(site: &Site) -> Vec<(String, String)> {
    let log = site.sandbox().log();
    let asked = log.iter().filter(|entry| entry.method == "POST" && entry.path.ends_with("/leases"));
    let text = |body: &Value, key: &str| body[key].as_str().unwrap_or_default().to_owned();
    asked
        .filter_map(|entry| entry.body.as_ref())
        .map(|body| (text(body, "start_date"), text(body, "end_date")))
        .collect()
}

#[test]
fn a_lease_across_a_dst_change_is_requested_in_utc_and_shown_in_both() {
    let mut site = Site::stand_in();
    site.env.set("TZ", "America/Chicago");
    // In the night to 7 November 2027 the clocks are put back at 2: these 12 hours by the clock are 13.
    site.run(&["lease", "--node", "liqid02", "--start", "2027-11-06 20:00", "--until", "2027-11-07 08:00"])
        .exits(0)
        .says("Sat 6 Nov 20:00 CDT to Sun 7 Nov 08:00 CST (Sun 7 Nov 01:00 to 14:00 UTC)")
        .says("  long   13 h");
    assert_eq!(dates_asked(&site), [("2027-11-07 01:00".to_owned(), "2027-11-07 14:00".to_owned())]);
    // And in the night to 14 March 2027 they are put forward: 5 hours from 23:30 on end at 5:30.
    site.run(&["lease", "--node", "liqid02", "--start", "2027-03-13 23:30", "--hours", "5"])
        .exits(0)
        .says("Sat 13 Mar 23:30 CST to Sun 14 Mar 05:30 CDT (Sun 14 Mar 05:30 to 10:30 UTC)");
    assert_eq!(dates_asked(&site)[1], ("2027-03-14 05:30".to_owned(), "2027-03-14 10:30".to_owned()));
    let held: Vec<String> = site.sandbox().snapshot().leases.iter().map(|lease| lease.end.to_string()).collect();
    assert_eq!(held, ["2027-11-07T14:00:00Z", "2027-03-14T10:30:00Z"]);
}

#[test]
fn an_ambiguous_or_skipped_local_time_is_not_guessed() {
    let mut site = Site::stand_in();
    site.env.set("TZ", "America/Chicago");
    site.run(&["lease", "--node", "liqid02", "--start", "2027-11-06 20:00", "--until", "2027-11-07 01:30"])
        .exits(2)
        .says("2027-11-07 01:30 occurs twice: the clocks go back then; write one of: 2027-11-07T01:30:00-05:00")
        .says("2027-11-07T01:30:00-06:00");
    site.run(&["lease", "--node", "liqid02", "--start", "2027-03-14 02:30", "--hours", "1"])
        .exits(2)
        .says("2027-03-14 02:30 does not exist: the clocks go forward then");
    assert_eq!(site.asked("POST", "/leases"), 0);
}
