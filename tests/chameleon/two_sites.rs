//! Two sites of the real services at once, each with hosts; then one of them silent, and then down.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gpucl::sandbox::chameleon::User;
use serde_json::Value;

use super::real::Real;
use super::site::Thing;
use crate::support::TestEnv;

/// The limit of `src/cluster/sites.rs`.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// What an answer may take beyond it: a program that starts, and a table that is printed.
const SLACK: Duration = Duration::from_secs(1);
/// The states of `testbed/openstack`.
const ROOTS: [&str; 2] = ["/var/tmp/gpucl-openstack", "/var/tmp/gpucl-openstack-2"];

/// The services of a site, stopped; they go on when this is dropped.
struct Silent(Vec<String>);

impl Silent {
    fn at(root: &Path) -> Self {
        let mut groups = Vec::new();
        for entry in std::fs::read_dir(root.join("run")).unwrap() {
            let path = entry.unwrap().path();
            // `pid start-time`; each daemon leads a group of its own.
            if path.extension().is_some_and(|end| end == "pid") {
                let text = std::fs::read_to_string(&path).unwrap();
                groups.push(format!("-{}", text.split_whitespace().next().unwrap()));
            }
        }
        assert!(groups.len() > 10, "{groups:?}");
        signal("-STOP", &groups);
        Self(groups)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(name: &str, groups: &[String]) {
    let status = Command::new("kill").arg(name).arg("--").args(groups).status().unwrap();
    assert!(status.success() || std::thread::panicking(), "kill {name}");
}

fn region(site: &Real, user: User) -> String {
    let (_, name, id, secret) = site.login(user);
    let url = site.auth_url();
    format!(
        "      - name: {name}\n        values:\n          auth:\n            auth_url: {url}\n            \
         application_credential_id: {id}\n            application_credential_secret: {secret}\n"
    )
}

/// The machine of a user with a login at both sites.
fn user(user: User, sites: [&Real; 2]) -> TestEnv {
    let env = TestEnv::new();
    let regions = sites.map(|site| region(site, user)).concat();
    let clouds = format!("clouds:\n  chi:\n    auth_type: v3applicationcredential\n    regions:\n{regions}");
    let path = env.home().join(".config/openstack/clouds.yaml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, clouds).unwrap();
    env
}

fn places(lines: &[Value], kind: &str) -> BTreeSet<String> {
    let of = lines.iter().filter(|line| line["type"] == kind);
    of.map(|line| line["place"].as_str().unwrap_or_default().to_owned()).collect()
}

fn is_ours(thing: &Thing, env: &TestEnv) -> bool {
    let owner = std::fs::read_to_string(env.home().join(".config/gpucl/owner")).unwrap_or_default();
    thing.status != "TERMINATED" && thing.name.contains(&format!("gpucl-{}-", owner.lines().next().unwrap_or("none")))
}

#[test]
#[ignore = "by hand: just two-sites"]
fn one_table_one_chart_a_lease_where_the_host_is_and_a_site_that_stops() {
    let roots = ROOTS.map(PathBuf::from);
    let [uc, tacc] = [Real::at(&roots[0]), Real::at(&roots[1])];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = user(User::Alice, [&uc, &tacc]);
    let timed = |words: &[&str]| {
        let begin = Instant::now();
        let outcome = env.run(words);
        println!("{:>6.1} s  gpucl {}", begin.elapsed().as_secs_f64(), words.join(" "));
        (outcome, begin.elapsed())
    };
    let both: BTreeSet<String> = ["CHI@UC".to_owned(), "CHI@TACC".to_owned()].into();
    let only_uc: BTreeSet<String> = ["CHI@UC".to_owned()].into();

    let lines = timed(&["offers", "--gpu", "a100", "--output", "json"]).0.exits(0).json();
    assert_eq!(places(&lines, "offer"), both);
    let table = timed(&["offers", "--gpu", "a100"]).0.exits(0).prints("liqid01").prints("gigaio01");
    println!("{}", table.stdout);
    let chart = timed(&["calendar", "--gpu", "a100", "--days", "2"]).0.exits(0);
    println!("{}", chart.stdout);
    for row in ["liqid01", "liqid02", "gigaio01", "gigaio02", "CHI@TACC and CHI@UC, "] {
        assert!(chart.stdout.contains(row), "{row}: {}", chart.stdout);
    }

    // Each lease is at the site that has its host, and no other is made.
    let leases = |site: &Real| {
        let all = runtime.block_on(site.all(User::Alice)).leases;
        all.iter().filter(|one| is_ours(one, &env)).count()
    };
    let lease = |node: &str, name: &str| timed(&["lease", "--node", node, "--hours", "1", "--name", name]).0.exits(0);
    let _ = lease("gigaio01", "there").says("it goes to CHI@TACC: free now; CHI@UC: there is no host `gigaio01`");
    assert_eq!([leases(&uc), leases(&tacc)], [0, 1]);
    let _ = lease("liqid02", "here").says("it goes to CHI@UC: free now; CHI@TACC: there is no host `liqid02`");
    assert_eq!([leases(&uc), leases(&tacc)], [1, 1]);
    for name in ["there", "here"] {
        timed(&["lease", "wait", name]).0.exits(0).prints("is active");
    }
    assert_eq!(places(&timed(&["lease", "list", "--output", "json"]).0.exits(0).json(), "lease"), both);

    // A site that takes connections and never answers: the other's rows are there within the limit.
    let silent = Silent::at(&roots[1]);
    for words in [
        &["offers", "--gpu", "a100", "--output", "json"][..],
        &["calendar", "--gpu", "a100", "--output", "json"],
        &["lease", "list", "--output", "json"],
    ] {
        let (outcome, took) = timed(words);
        let lines = outcome.exits(0).json();
        let kind = match words[0] {
            "offers" => ("offer", "offers_failed"),
            "calendar" => ("calendar_row", "site_failed"),
            _ => ("lease", "site_failed"),
        };
        assert_eq!(places(&lines, kind.0), only_uc, "{words:?}");
        assert_eq!(places(&lines, kind.1), ["CHI@TACC".to_owned()].into(), "{words:?}");
        assert!(took < ANSWER_LIMIT + SLACK, "{words:?}: {took:?}");
    }
    drop(silent);

    // It goes on. Another user of the project has leases at both, too: each cleans up at both, and only their own.
    let bob = user(User::Bob, [&uc, &tacc]);
    for (node, name) in [("liqid01", "bobs-here"), ("gigaio02", "bobs-there")] {
        let _ = bob.run(&["lease", "--node", node, "--hours", "1", "--name", name]).exits(0);
    }
    let bobs = || {
        let of =
            |site| runtime.block_on(Real::all(site, User::Bob)).leases.iter().filter(|one| is_ours(one, &bob)).count();
        [of(&uc), of(&tacc)]
    };
    assert_eq!(bobs(), [1, 1]);
    let gone = timed(&["gc", "--leases", "--yes", "--output", "json"]).0.exits(0).json();
    assert_eq!(places(&gone, "gc_item"), both);
    assert_eq!([leases(&uc), leases(&tacc)], [0, 0]);
    assert_eq!(bobs(), [1, 1], "they are not hers");
    let gone = bob.run(&["gc", "--leases", "--yes", "--output", "json"]).exits(0).json();
    assert_eq!((places(&gone, "gc_item"), bobs()), (both, [0, 0]));

    // And down: refused at once.
    drop(tacc);
    let down = concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/openstack/down");
    assert!(Command::new(down).env("GPUCL_OPENSTACK_SITE", "2").status().unwrap().success());
    let (outcome, took) = timed(&["offers", "--gpu", "a100", "--output", "json"]);
    let lines = outcome.exits(0).json();
    assert_eq!((places(&lines, "offer"), places(&lines, "offers_failed")), (only_uc, ["CHI@TACC".to_owned()].into()));
    assert!(took < ANSWER_LIMIT + SLACK, "{took:?}");
}
