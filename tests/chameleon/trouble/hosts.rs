//! Hosts and times that cannot be had.

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
        a_host_that_does_not_exist_is_told_from_one_that_is_taken
        more_than_seven_days_are_refused_before_anybody_is_asked
        a_date_in_the_past_is_refused_before_anybody_is_asked
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
    // What is offered can be had: the first by us, the second by somebody else.
    run_shown(&site.env, &offered[0]).exits(0).prints("is made");
    let bob = site.user(User::Bob);
    run_shown(&bob, &offered[1]).exits(0).prints("is made");
    let leases = site.of(User::Bob).leases;
    assert!(leases.iter().any(|lease| lease.id == theirs), "theirs is untouched");
    assert_eq!(site.ours().counts(), [1, 0, 0, 0]);
}

#[test]
fn a_host_that_is_taken_between_the_look_and_the_call_is_told_as_taken() {
    let site = Site::stand_in();
    site.faults(vec![Rule::new("POST", "/leases$", "delay:1.5")]);
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
    site.run(&["lease", "list"]).exits(0).says("no lease of yours");
}

#[test]
fn a_host_that_fails_between_the_look_and_the_call_is_told_with_where_to_look() {
    let site = Site::stand_in();
    let mut rule = Rule::new("POST", "/leases$", "status:500");
    rule.body = Some("{\"error_code\": 500, \"error_message\": \"Not enough hosts available\"}".to_owned());
    site.faults(vec![rule]);
    site.run(&["lease", "--node", "liqid02", "--hours", "1"])
        .exits(1)
        .says("Not enough hosts available")
        .says("the calendar shows the host as free: it may have failed a moment ago, or be kept for others")
        .says("hint: gpucl calendar --node liqid02");
    assert_eq!(site.asked("POST", "/leases"), 1);
    assert_eq!(site.ours().counts(), [0; 4]);
}

fn a_host_that_does_not_exist_is_told_from_one_that_is_taken(site: Site) {
    site.run(&["lease", "--node", "liqid2", "--hours", "1"])
        .exits(6)
        .says("no host is called `liqid2`")
        .says("hint: did you mean `liqid02`?");
    site.run(&["lease", "--node", "nowhere", "--hours", "1"])
        .exits(6)
        .says("no host is called `nowhere`")
        .says("gpucl calendar --all");
    let spec = site.spec("", "").clone();
    let text = std::fs::read_to_string(site.env.work().join(&spec)).unwrap().replace(site.node(), "c03-09");
    site.env.write(&spec, &text);
    site.run(&["up", &spec]).exits(6).says("no host is called `c03-09`");
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

fn more_than_seven_days_are_refused_before_anybody_is_asked(site: Site) {
    let refused = site.run(&["lease", "--node", site.node(), "--hours", "170"]).exits(2);
    let refused = refused.says("7 d 2 h is more than the site allows, which is 7 d").says("hint: free: ");
    assert!(!offered(&refused).is_empty(), "{}", refused.stderr);
    assert_eq!(site.asked("POST", "/leases"), 0);
    // With a yes to less it is the longest that there is.
    site.run(&["lease", "--node", site.node(), "--hours", "170", "--shorten", "--dry-run"])
        .exits(0)
        .prints("it is 7 d long: the site allows no more");
    assert_eq!(site.ours().counts(), [0; 4]);
}

#[test]
fn a_site_that_allows_less_than_usual_is_understood_by_its_words() {
    let site = Site::with(Config { longest_lease: Duration::from_secs(72 * 3600), ..Config::default() });
    site.run(&["lease", "--node", "liqid02", "--hours", "100"])
        .exits(1)
        .says("must be less than or equal to the maximum lease duration of 259200 seconds")
        .says("hint: ask for less time");
    assert_eq!(site.asked("POST", "/leases"), 1);
    assert_eq!(site.ours().counts(), [0; 4]);
}

fn a_date_in_the_past_is_refused_before_anybody_is_asked(site: Site) {
    for arguments in [
        ["--start", "2026-01-02 10:00", "--hours", "1"],
        ["--start", "now", "--until", "2026-01-02 10:00"],
        ["--start", "next", "--until", "2026-01-02T10:00:00Z"],
    ] {
        let arguments: Vec<&str> = ["lease", "--node", site.node()].into_iter().chain(arguments).collect();
        site.run(&arguments).exits(2).says("Fri 2 Jan 10:00 UTC is over").says("hint: free: ");
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
fn a_lease_across_the_change_of_the_clocks_is_asked_in_utc_and_told_in_both() {
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
fn a_time_that_the_clocks_show_twice_or_never_is_not_guessed() {
    let mut site = Site::stand_in();
    site.env.set("TZ", "America/Chicago");
    site.run(&["lease", "--node", "liqid02", "--start", "2027-11-06 20:00", "--until", "2027-11-07 01:30"])
        .exits(2)
        .says("2027-11-07 01:30 is there twice, the clocks are put back then; say which you mean: 2027-11-07T01:30:00-05:00")
        .says("2027-11-07T01:30:00-06:00");
    site.run(&["lease", "--node", "liqid02", "--start", "2027-03-14 02:30", "--hours", "1"])
        .exits(2)
        .says("2027-03-14 02:30 does not exist, the clocks are put forward then");
    assert_eq!(site.asked("POST", "/leases"), 0);
}
