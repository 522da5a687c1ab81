//! The end of a cluster: said before, moved by a command, by its agent or by somebody else, and kept although nobody answers.

use serde_json::{Value, json};

use gpucl::sandbox::chameleon::User;

use super::{ACTS_WITHIN, folder, gone, is_ready, log};
use crate::chameleon::site::Site;
use crate::support::{until, until_or};

const SAVES: &str = "end: { save: [{ from: results, to: here:results }] }";

fn status(site: &Site) -> Value {
    site.run(&["status", "--offline", "--output", "json", "-c", "demo"]).exits(0).json()[0].clone()
}

/// The end that `status` shows, in hours from now.
fn hours_left(site: &Site) -> f64 {
    let end = status(site)["end"]["at"].clone();
    let at: jiff::Timestamp = end.as_str().unwrap_or_else(|| panic!("no end: {end}")).parse().unwrap();
    at.duration_since(jiff::Timestamp::now()).as_secs_f64() / 3600.0
}

/// A cluster with a lease of three hours, as far as services without hosts carry it.
fn with_lease(site: &Site, more: &str) {
    let file = site.spec("hours: 3", &format!("timeouts: {{ boot: 2s }}\n{more}\n"));
    let _ = site.run(&["up", "--yes", &file]).exits(1).says("failed to connect to host-0");
}

#[test]
fn plan_says_what_happens_at_the_end_and_what_is_lost() {
    let site = Site::stand_in();
    let file = site.spec("hours: 3", SAVES);
    let _ = site
        .run(&["plan", &file])
        .exits(0)
        .prints("10m before the lease ends at")
        .prints("$GPUCL_DATA/results of every host, to the folder results beside the spec, on this machine")
        .prints("lost all the same: the data folders of its hosts but `results`, its object store")
        .prints("only while this machine is on and awake: copying to it");
    let file = site.spec("hours: 3", "");
    let _ = site.run(&["plan", &file]).exits(0).prints("what is on the hosts' disks is lost at").prints("`end: {save");
}

#[test]
fn the_end_is_the_earliest_and_keep_moves_lease_and_deadline() {
    let site = Site::stand_in();
    with_lease(&site, &format!("deadline: 2h\n{SAVES}"));
    let before = status(&site);
    assert_eq!(before["end"]["why"], "deadline", "{before}");
    assert!(hours_left(&site) < 2.01, "{before}");
    let kept = site.run(&["keep", "30m", "-c", "demo", "--output", "json"]).exits(0).json();
    assert_eq!((&kept[0]["type"], &kept[0]["end"]["why"]), (&json!("kept"), &json!("deadline")));
    assert!((hours_left(&site) - 2.5).abs() < 0.02);
    // Beyond the lease: both are moved.
    let _ = site.run(&["keep", "2h", "-c", "demo"]).exits(0).prints("it ends at");
    let left = hours_left(&site);
    assert!(left > 4.4 && left < 4.6, "{left}");
    let lease = site.ours().leases[0].id.clone();
    let (_, seen) = site.call(User::Alice, "GET", &format!("/reservation/v1/leases/{lease}"), &Value::Null);
    println!("{}", seen["lease"]["end_date"]);
    // The next `up` with the same limits keeps what was given.
    up_again(&site);
    assert!(hours_left(&site) > 4.4);
    site.down();
}

#[track_caller]
fn up_again(site: &Site) {
    let _ = site.run(&["up", "--yes", "cluster.yaml"]).exits(1).says("failed to connect to host-0");
}

#[test]
fn keep_refuses_what_would_cost_too_much_and_changes_nothing() {
    let site = Site::stand_in();
    with_lease(&site, "max_cost: 4 SU");
    let before = hours_left(&site);
    let refused = site.run(&["keep", "2h", "-c", "demo"]).exits(2);
    let _ = refused.says("its cost reaches `max_cost`, 4").says("nothing was changed").says("higher `max_cost:`");
    assert!((hours_left(&site) - before).abs() < 0.02, "it was moved");
    let _ = site.run(&["keep", "soon", "-c", "demo"]).exits(2).says("`soon` is not a duration");
    site.down();
}

/// Two hours before the warning it asks; `max_cost` is never exceeded, and why not is in the agent's log.
#[test]
fn a_lease_is_extended_early_and_never_beyond_the_cost_limit() {
    let site = Site::stand_in();
    with_lease(&site, "max_cost: 3.5 SU\nend: { warning: 2h, then: extend }");
    is_ready(&site.env);
    until_or(
        "the reason",
        60,
        || log(&site.env).contains("its cost reaches `max_cost`").then_some(()),
        || log(&site.env),
    );
    assert!(hours_left(&site) < 3.01);
    site.down();
    let other = Site::stand_in();
    with_lease(&other, "end: { warning: 2h, then: extend }");
    is_ready(&other.env);
    until_or("an extension", 60, || (hours_left(&other) > 3.9).then_some(()), || log(&other.env));
    other.down();
}

/// Somebody else shortens the lease, and no host answers: it is learned, and the cluster is taken down at its end.
#[test]
#[ignore = "testbed"]
fn a_lease_that_somebody_shortens_is_known_and_its_end_kept_although_no_host_answers() {
    let site = Site::stand_in();
    with_lease(&site, SAVES);
    let lease = site.ours().leases[0].id.clone();
    let end = jiff::Timestamp::now() + std::time::Duration::from_secs(120);
    let body = json!({ "end_date": end.strftime("%Y-%m-%d %H:%M").to_string() });
    let (code, answer) = site.call(User::Alice, "PUT", &format!("/reservation/v1/leases/{lease}"), &body);
    assert_eq!(code, 200, "{answer}");
    is_ready(&site.env);
    until_or("it is known", 60, || (hours_left(&site) < 0.05).then_some(()), || log(&site.env));
    until_or("it is gone", 120 + ACTS_WITHIN, || (!folder(&site.env).exists()).then_some(()), || log(&site.env));
    gone(&site);
    let _ = until("the reason", 10, || {
        Some(site.run(&["status", "-c", "demo"]).exits(6)).filter(|outcome| outcome.stderr.contains("the lease ends"))
    });
}
