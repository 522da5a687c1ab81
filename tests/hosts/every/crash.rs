//! kill -9 of gpucl at six points, one of them in the middle of an apt install: nothing is left after `down`, and the
//! host's package system is whole.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::crash::real::count;
use crate::hosts::spec::{env, gpucl, spec};
use crate::hosts::testbed::{TestHost, testbed};
use crate::hosts::trouble::lab::NO_SERVICES;
use crate::support::{TestEnv, alone};

/// When gpucl is killed.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// apt installs on the host.
    AptRuns,
    /// This record stands in the journal: record, key, and for a note its name.
    Record(&'static str, &'static str, &'static str),
}

const UP: [Point; 5] = [
    Point::Record("exists", "host0", ""),
    Point::AptRuns,
    Point::Record("noted", "host0", "facts"),
    Point::Record("requested", "project0", ""),
    Point::Record("exists", "project0", ""),
];
const DOWN: Point = Point::Record("releasing", "project0", "");

#[test]
#[ignore = "by hand: just testbed-all"]
fn kill_9_at_six_points_leaks_nothing_and_leaves_the_packages_whole() {
    let _turn = alone();
    let host = TestHost::start("killed", &["--gpus", "nvidia:1", "--image", "fresh"]);
    let env = env();
    env.write("cluster.yaml", &spec("killed", &[&host], NO_SERVICES));
    let mut leaks = 0;
    for point in UP {
        assert!(killed(&env, &host, &["up"], point), "{point:?} was not met");
        leaks += end(&env, &host, point);
    }
    gpucl(&env, &["up"]).exits(0);
    assert!(killed(&env, &host, &["down", "--yes"], DOWN), "{DOWN:?} was not met");
    leaks += end(&env, &host, DOWN);
    println!("kill -9 at {} points of a cluster on a host; leaks: {leaks}", UP.len() + 1);
    // The cluster on a host is found by its tag when the local state is lost.
    gpucl(&env, &["up"]).exits(0);
    std::fs::remove_dir_all(env.home().join(".local/state/gpucl/clusters/killed")).unwrap();
    leaks += end(&env, &host, "the loss of the state");
    assert_eq!(leaks, 0);
}

/// Runs the command and kills it at that point; false when it ended before.
fn killed(env: &TestEnv, host: &TestHost, arguments: &[&str], point: Point) -> bool {
    let folder = env.home().join(".local/state/gpucl/clusters/killed");
    let data = testbed()["data_dir"].as_str().unwrap();
    let met = |before: usize| match point {
        Point::AptRuns => host.try_sh("pgrep -x dpkg").status.success(),
        Point::Record(record, key, name) => count(&folder, (record, key, name)) > before,
    };
    let before = match point {
        Point::AptRuns => 0,
        Point::Record(record, key, name) => count(&folder, (record, key, name)),
    };
    let mut command = env.command(&[&["--data-dir", data], arguments].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    loop {
        if met(before) {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(begin.elapsed() < Duration::from_secs(400), "{arguments:?} neither came to {point:?} nor ended");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Takes it down, and counts what is left on the host and here.
fn end(env: &TestEnv, host: &TestHost, point: impl std::fmt::Debug) -> usize {
    let down = gpucl(env, &["down", "--yes", "-c", "killed"]);
    assert_eq!(down.code, Some(0), "after {point:?}: {}{}", down.stdout, down.stderr);
    let look = "command -v docker >/dev/null && docker info >/dev/null 2>&1 && { docker ps -aq; docker volume ls -q; docker network ls -q --filter label=gpucl.tag; }; \
        ls -d /var/lib/gpucl 2>/dev/null; nft list tables 2>/dev/null | grep gpucl; systemctl list-units --all --no-legend 2>/dev/null | grep gpucl; \
        grep -l -s GPUCL_PROGRAM= /proc/[0-9]*/environ; true";
    let left = host.sh(look);
    assert_eq!(left.trim(), "", "left on the host after {point:?}");
    assert_eq!(host.sh("dpkg --audit; apt-get -qq check").trim(), "", "the packages after {point:?}");
    assert!(!env.home().join(".local/state/gpucl/clusters/killed").exists(), "the state is gone after {point:?}");
    left.lines().count()
}
