//! Leases and the calendar through their commands, and their state at Blazar afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use gpucl::sandbox::chameleon::User;
use jiff::Timestamp;
use serde_json::Value;

use super::site::Site;
use crate::support::{Outcome, TestEnv, until};

/// The host that these tests have for themselves.
const NODE: &str = "liqid01";
/// The names of leases that stand for other people's begin so.
const BUSY: &str = "gpucl-test-busy";

/// A site, and two people who use it. Their leases go with it, whatever becomes of the test.
struct Scene {
    site: Site,
    bob: TestEnv,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let tags: Vec<String> = [&self.site.env, &self.bob].into_iter().filter_map(tag_of).collect();
        for user in [User::Alice, User::Bob, User::Carol] {
            for lease in leases(&self.site, user) {
                let name = text(&lease["name"]);
                if name.starts_with(BUSY) || tags.iter().any(|tag| name.contains(tag)) {
                    let path = format!("/reservation/v1/leases/{}", text(&lease["id"]));
                    self.site.call(user, "DELETE", &path, &Value::Null);
                }
            }
        }
    }
}

fn tag_of(env: &TestEnv) -> Option<String> {
    let owner = std::fs::read_to_string(env.home().join(".config/gpucl/owner")).ok()?;
    Some(format!("gpucl-{}-", owner.lines().next().unwrap_or_default()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A time of Blazar's, which is UTC and does not say so.
fn time(value: &Value) -> Timestamp {
    let text = text(value).replace(' ', "T");
    format!("{text}Z").parse().unwrap_or_else(|error| panic!("{value}: {error}"))
}

fn hours(hours: i64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_hours(hours)
}

/// The leases that a user sees.
fn leases(site: &Site, user: User) -> Vec<Value> {
    let (status, answer) = site.call(user, "GET", "/reservation/v1/leases", &Value::Null);
    assert_eq!(status, 200, "{answer}");
    answer["leases"].as_array().cloned().unwrap_or_default()
}

/// One lease, as a plain GET shows it; nothing when it is gone.
fn lease(site: &Site, id: &str) -> Option<Value> {
    let (status, answer) = site.call(User::Alice, "GET", &format!("/reservation/v1/leases/{id}"), &Value::Null);
    match status {
        200 => Some(answer["lease"].clone()),
        404 => None,
        _ => panic!("{status}: {answer}"),
    }
}

fn hosts(site: &Site) -> Vec<Value> {
    let (status, answer) = site.call(User::Alice, "GET", "/reservation/v1/os-hosts", &Value::Null);
    assert_eq!(status, 200, "{answer}");
    answer["hosts"].as_array().cloned().unwrap_or_default()
}

fn allocations(site: &Site) -> Vec<Value> {
    let (status, answer) = site.call(User::Alice, "GET", "/reservation/v1/os-hosts/allocations", &Value::Null);
    assert_eq!(status, 200, "{answer}");
    answer["allocations"].as_array().cloned().unwrap_or_default()
}

/// The ids of the hosts that Blazar has given a lease.
fn hosts_of(site: &Site, lease: &str) -> Vec<String> {
    let holds = |one: &&Value| one["reservations"].as_array().into_iter().flatten().any(|it| it["lease_id"] == lease);
    allocations(site).iter().filter(holds).map(|one| text(&one["resource_id"])).collect()
}

fn id_of(site: &Site, node: &str) -> String {
    let hosts = hosts(site);
    let host = hosts.iter().find(|host| host["node_name"] == node);
    text(&host.unwrap_or_else(|| panic!("there is no {node}"))["id"])
}

/// The id that `gpucl lease` printed.
fn printed_id(outcome: &Outcome) -> String {
    let line = outcome.stdout.lines().find_map(|line| line.trim_start().strip_prefix("id "));
    line.unwrap_or_else(|| panic!("no id was printed: {}", outcome.stdout)).trim().to_owned()
}

/// The words of a command from a hint.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in command.split('"').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

fn scene(site: Site) -> Scene {
    let bob = site.user(User::Bob);
    Scene { site, bob }
}

/// Each of these on the stand-in, and on the real services.
macro_rules! on_both {
    ($($name:ident)*) => { $(
        mod $name {
            #[test]
            fn on_the_stand_in() {
                super::$name(&super::scene(super::Site::stand_in()));
            }

            #[test]
            #[ignore = "testbed"]
            fn on_the_real_services() {
                super::$name(&super::scene(super::Site::real()));
            }
        }
    )* };
}

on_both! {
    a_free_host_is_leased_by_its_name
    a_busy_host_is_leased_at_its_next_slot
    a_refusal_offers_slots_that_another_user_gets
    a_lease_is_what_blazar_says_from_its_start_to_its_end
    the_calendar_is_what_the_service_reports
}

fn a_free_host_is_leased_by_its_name(scene: &Scene) {
    let site = &scene.site;
    let made = site.run(&["lease", "--node", "liqid01", "--hours", "3"]).exits(0);
    let id = printed_id(&made);
    let seen = lease(site, &id).unwrap();
    assert_eq!(seen["status"], "ACTIVE", "{seen}");
    assert_eq!(seen["user_id"], site.user_id(User::Alice));
    assert_eq!(hosts_of(site, &id), [id_of(site, "liqid01")]);
    let (start, end) = (time(&seen["start_date"]), time(&seen["end_date"]));
    // It ends three hours after the minute in which it was asked for; the service may begin it in the next one.
    let length = end.duration_since(start);
    assert!(length <= hours(3) && length >= hours(3) - jiff::SignedDuration::from_mins(1), "{length}: {seen}");
    assert!(made.stdout.contains("is active: liqid01"), "{}", made.stdout);
}

fn a_busy_host_is_leased_at_its_next_slot(scene: &Scene) {
    let site = &scene.site;
    let busy = site.lease_of(User::Carol, BUSY, NODE, None, 2);
    let busy_until = time(
        &site.call(User::Carol, "GET", &format!("/reservation/v1/leases/{busy}"), &Value::Null).1["lease"]["end_date"],
    );
    let made = site.run(&["lease", "--node", NODE, "--hours", "3"]).exits(0);
    let id = printed_id(&made);
    let seen = lease(site, &id).unwrap();
    assert_eq!(seen["status"], "PENDING", "{seen}");
    assert_eq!(hosts_of(site, &id), [id_of(site, NODE)]);
    // The gap to neighbours is ten minutes, and it begins right after it.
    assert_eq!(time(&seen["start_date"]).duration_since(busy_until), jiff::SignedDuration::from_mins(10), "{seen}");
    assert!(made.stdout.contains("it begins in"), "{}", made.stdout);
}

fn a_refusal_offers_slots_that_another_user_gets(scene: &Scene) {
    let site = &scene.site;
    site.lease_of(User::Carol, BUSY, NODE, None, 2);
    let before = leases(site, User::Alice).len();
    let refused = site.run(&["lease", "--node", NODE, "--hours", "3", "--start", "now"]).exits(1);
    assert_eq!(leases(site, User::Alice).len(), before, "a refused ask made something");
    let offered: Vec<Vec<String>> = refused
        .stderr
        .lines()
        .filter(|line| line.contains("free: "))
        .filter_map(|line| line.split_once(": gpucl "))
        .map(|(_, command)| words(command))
        .collect();
    assert!(offered.len() >= 2, "{}", refused.stderr);
    for command in offered {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let made = scene.bob.run(&command).exits(0);
        let seen = lease(site, &printed_id(&made)).unwrap();
        assert_eq!((text(&seen["status"]), text(&seen["user_id"])), ("PENDING".to_owned(), site.user_id(User::Bob)));
        let asked: jiff::civil::DateTime =
            command[command.iter().position(|word| *word == "--start").unwrap() + 1].parse().unwrap();
        assert_eq!(time(&seen["start_date"]), asked.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp());
        assert_eq!(hosts_of(site, &text(&seen["id"])), [id_of(site, NODE)]);
    }
}

fn a_lease_is_what_blazar_says_from_its_start_to_its_end(scene: &Scene) {
    let site = &scene.site;
    // Time passes as it likes there; at the real services a start that is near is waited for by the first command.
    let ahead = Duration::from_secs(if site.is_real() { 60 } else { 180 });
    let start = (Timestamp::now() + ahead).strftime("%Y-%m-%d %H:%M").to_string();
    let arguments = ["lease", "--node", NODE, "--start", &start, "--hours", "1", "--name", "mine"];
    let id = printed_id(&site.run(&arguments).exits(0));
    if !site.is_real() {
        site.sandbox().advance(ahead);
    }
    site.run(&["lease", "wait", "mine"]).exits(0).prints("lease mine is active: liqid01");
    let active = lease(site, &id).unwrap();
    assert_eq!(active["status"], "ACTIVE");

    let listed = site.run(&["lease", "list", "--output", "json"]).exits(0).json();
    let me = site.user_id(User::Alice);
    let there: BTreeSet<String> = leases(site, User::Alice)
        .iter()
        .filter(|lease| lease["user_id"] == me && lease["status"] != "TERMINATED")
        .map(|lease| text(&lease["id"]))
        .collect();
    assert_eq!(listed.iter().map(|lease| text(&lease["id"])).collect::<BTreeSet<_>>(), there);
    assert!(there.contains(&id));

    let shown = site.run(&["lease", "show", "mine", "--output", "json"]).exits(0).json().remove(0);
    let time_of = |key: &str| shown[key].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!((text(&shown["id"]), text(&shown["status"])), (id.clone(), "ACTIVE".to_owned()));
    assert_eq!(text(&shown["name"]), text(&active["name"]));
    assert_eq!((time_of("start"), time_of("end")), (time(&active["start_date"]), time(&active["end_date"])));
    assert_eq!(shown["hosts"], serde_json::json!([NODE]));

    site.run(&["lease", "extend", "mine", "--hours", "1"]).exits(0).prints("lease mine ends at");
    let extended = lease(site, &id).unwrap();
    assert_eq!(extended["status"], "ACTIVE");
    assert_eq!(time(&extended["end_date"]).duration_since(time(&active["end_date"])), hours(1), "{extended}");
    assert_eq!(time(&extended["start_date"]), time(&active["start_date"]));

    site.run(&["lease", "delete", "mine", "--yes"]).exits(0).prints("lease mine is gone");
    assert_eq!(lease(site, &id), None);
    assert_eq!(hosts_of(site, &id), Vec::<String>::new());
}

fn the_calendar_is_what_the_service_reports(scene: &Scene) {
    let site = &scene.site;
    let other = site.lease_of(User::Carol, BUSY, NODE, Some(Duration::from_secs(3600)), 2);
    let bobs = site.lease_of(User::Bob, BUSY, NODE, Some(Duration::from_secs(4 * 3600)), 1);
    let mine = site.lease_of(User::Alice, BUSY, NODE, Some(Duration::from_secs(6 * 3600)), 1);
    // Others may use the services: what is compared was there before and after.
    let (shown, reported) = until("the allocations stay as they are", 120, || {
        let before = allocations(site);
        let shown = site.run(&["calendar", "--all", "--days", "14", "--output", "json"]).exits(0).json();
        (before == allocations(site)).then_some((shown, before))
    });

    // Every host of Blazar's is a line, and each line is one.
    let rows: BTreeSet<(String, String)> = shown.iter().map(|row| (text(&row["id"]), text(&row["name"]))).collect();
    let there: BTreeSet<(String, String)> =
        hosts(site).iter().map(|host| (text(&host["id"]), text(&host["node_name"]))).collect();
    assert_eq!(rows, there);

    // Every allocation is a booking, and each booking is one.
    let mut booked = BTreeSet::new();
    for row in &shown {
        for one in row["bookings"].as_array().unwrap() {
            let at = |key: &str| one[key].as_str().unwrap().parse::<Timestamp>().unwrap();
            booked.insert((text(&row["id"]), text(&one["lease"]), at("start"), at("end")));
        }
    }
    let mut allocated = BTreeSet::new();
    for host in reported {
        for one in host["reservations"].as_array().unwrap() {
            let times = (time(&one["start_date"]), time(&one["end_date"]));
            allocated.insert((text(&host["resource_id"]), text(&one["lease_id"]), times.0, times.1));
        }
    }
    assert_eq!(booked, allocated);
    assert!([&other, &bobs, &mine].iter().all(|id| booked.iter().any(|(_, lease, ..)| lease == *id)), "{booked:?}");

    // Whose they are: ours are marked, and nobody else's.
    let row = shown.iter().find(|row| row["name"] == NODE).unwrap();
    let ours: Vec<String> = row["bookings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["ours"] == true)
        .map(|one| text(&one["lease"]))
        .collect();
    assert!(ours.contains(&mine) && !ours.contains(&bobs) && !ours.contains(&other), "{ours:?}");
}
