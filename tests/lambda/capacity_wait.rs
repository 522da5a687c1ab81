//! Capacity waits through the program: missing capacity is requested again, within the account's rate limit, up to the
//! given time.

use std::process::{Child, Stdio};
use std::time::Duration;

use gpucl::sandbox::lambda::Config;
use jiff::{SignedDuration, Timestamp};

use super::site::{Site, spec_into};
use crate::chameleon::site::ssh_says;
use crate::support::{alone, interrupt, until};

const A10: &str = "type: gpu_1x_a10";
const EAST: &str = "us-east-1";
const WEST: &str = "us-west-1";
const BOTH: &str = "regions: [us-east-1, us-west-1]";
/// A quarter of Lambda's times: retried every 5 s, and the stand-in counts requests less than a quarter of a second
/// apart.
const QUARTER: &str = "0.25";
const POLL: SignedDuration = SignedDuration::from_secs(5);

/// A site without capacity, at a quarter of Lambda's times.
fn none_at_a_quarter() -> Site {
    let mut site = Site::with(Config {
        request_every: Duration::from_millis(250),
        launch_every: Duration::from_secs(3),
        // The machine that runs this is not alone: what was sent in time may arrive together.
        slack: Duration::from_millis(100),
        ..Config::prompt().without_capacity()
    });
    site.env.set("GPUCL_LAMBDA_PACE", QUARTER);
    site
}

/// A site without capacity and with short waits: retried every 100 ms.
fn none() -> Site {
    let mut site = Site::with(Config::prompt().without_capacity());
    site.env.set("GPUCL_LAMBDA_PACE", "0.005");
    site
}

/// The program while it runs.
struct Running(Child, std::path::PathBuf);

impl Running {
    fn begin(site: &Site, arguments: &[&str]) -> Self {
        let said = site.env.root().join("said");
        let file = std::fs::File::create(&said).unwrap();
        let mut command = site.env.command(arguments);
        Self(command.stdout(Stdio::null()).stderr(file).spawn().unwrap(), said)
    }

    /// Its exit code, and what it said.
    #[track_caller]
    fn end(mut self) -> (Option<i32>, String) {
        let status = until("it ends", 120, || self.0.try_wait().unwrap());
        (status.code(), std::fs::read_to_string(&self.1).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Number of capacity checks.
fn checks(site: &Site) -> usize {
    site.asked("GET", "/instance-types")
}

#[test]
fn the_second_choice_is_taken_within_two_polls_and_never_too_fast() {
    // The pace is what arrives: nothing else is to take this machine's time.
    let _turn = alone();
    let site = none_at_a_quarter();
    let spec = spec_into(&site.env, 1, A10, BOTH);
    let begun = Timestamp::now();
    let up = Running::begin(&site, &["up", "--yes", &spec, "--wait-capacity", "1h"]);
    until("it has asked again", 60, || (checks(&site) >= 3).then_some(()));
    let (comes, before) = (Timestamp::now(), checks(&site));
    site.sandbox.capacity("gpu_1x_a10", WEST, 1);
    let (code, said) = up.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("failed to connect to host-0"), "{said}");
    // The missing capacity, the accepted choices, the interval, and the end of the wait.
    assert!(said.contains("waiting for capacity for all hosts: none is free now; acceptable: gpu_1x_a10"), "{said}");
    assert!(said.contains("in us-east-1, us-west-1; retrying every 5s until "), "{said}");
    let pace = site.sandbox.pace();
    assert_eq!(pace.launched_at.len(), 1);
    let took = pace.launched_at[0].duration_since(comes);
    // Counted, since the machine that runs this may be slow: two polls, and the check for the plan.
    let log = site.sandbox.log();
    let launch = log.iter().position(|entry| entry.path.ends_with("/launch")).unwrap();
    let until_launch = log[..launch].iter().filter(|entry| entry.path.ends_with("/instance-types")).count();
    assert!(until_launch - before <= 3, "{until_launch} checks, {before} of them before it came");
    assert_eq!((pace.too_fast, pace.launches_too_fast), (0, 0), "{pace:?}");
    let most = pace.launched_at[0].duration_since(begun).as_secs() / POLL.as_secs() + 2;
    assert!(checks(&site) as i64 <= most, "{} checks, at most {most}", checks(&site));
    let ours = site.ours();
    assert_eq!(ours.alive().map(|one| one.region.as_str()).collect::<Vec<_>>(), [WEST]);
    println!(
        "capacity wait: {} checks, launched {:.1} s after it came, 0 of {} requests too fast",
        checks(&site),
        took.as_secs_f64(),
        pace.requests
    );
    site.down();
}

#[test]
fn a_capacity_wait_ends_at_its_limit_and_leaves_nothing() {
    let site = none();
    let spec = spec_into(&site.env, 1, A10, BOTH);
    site.run(&["up", "--yes", &spec, "--wait-capacity", "4s"])
        .exits(8)
        .says("nothing became available until")
        .says("acceptable: gpu_1x_a10")
        .says("--wait-capacity 6h   # retries until there is capacity");
    assert!(checks(&site) > 1, "{}", checks(&site));
    assert_eq!((site.counts(), site.asked("POST", "/launch")), ([0; 4], 0));
    site.run(&["list"]).exits(0).says("no cluster;");
}

#[test]
fn ctrl_c_ends_a_capacity_wait_and_leaves_nothing() {
    let site = none();
    let spec = spec_into(&site.env, 1, A10, BOTH);
    let up = Running::begin(&site, &["up", "--yes", &spec, "--wait-capacity", "6h"]);
    until("it has asked again", 60, || (checks(&site) >= 3).then_some(()));
    interrupt(&up.0);
    let (code, said) = up.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("wait for capacity") && said.contains("it was stopped with Ctrl-C"), "{said}");
    assert_eq!(site.counts(), [0; 4]);
}

/// A wait is no call in flight: the instance is on record, and comes later as well.
#[test]
fn ctrl_c_ends_the_wait_for_an_instance_at_once() {
    let site = Site::with(Config { boot: Duration::from_secs(600), ..Config::prompt() });
    let spec = spec_into(&site.env, 1, A10, "");
    let up = Running::begin(&site, &["up", "--yes", &spec]);
    until("it is launched", 60, || (site.asked("POST", "/launch") == 1 && site.counts()[0] == 1).then_some(()));
    // The answer is on record.
    let journal = site.env.paths().cluster(&"demo".parse().unwrap());
    until("its id is on record", 60, || {
        (crate::crash::real::count(&journal, ("exists", "host0", "")) > 0).then_some(())
    });
    interrupt(&up.0);
    let (code, said) = up.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("wait for host-0") && said.contains("on record") && said.contains("left behind:"), "{said}");
    assert!(said.contains("gpucl down -c demo"), "{said}");
    site.down();
}

/// The spec can set it too, and errors are reported with their place.
#[test]
fn the_spec_sets_the_limit_of_the_wait() {
    let site = none();
    let spec = spec_into(&site.env, 1, A10, BOTH);
    let text = std::fs::read_to_string(site.env.work().join(&spec)).unwrap();
    site.env.write(&spec, &format!("{text}capacity: {{ wait: 1s, partial: keep }}\n"));
    site.run(&["up", "--yes", &spec]).exits(8).says("nothing became available until");
    site.env.write(&spec, &format!("{text}capacity: {{ partial: give }}\n"));
    site.run(&["up", "--yes", &spec]).exits(2).says("capacity.partial").says("give_back");
    site.run(&["up", "--yes", &spec, "--wait-capacity", "soon"]).exits(2).says("`soon` is not a duration");
}

/// Three were launched, then capacity ends: they are kept, and the fourth comes when there is one, where they are.
#[test]
fn the_fourth_of_four_is_waited_for_while_three_are_kept() {
    let mut site = Site::with(Config::prompt().without_capacity().with_capacity("gpu_1x_a10", EAST, 3));
    site.env.set("GPUCL_LAMBDA_PACE", "0.005");
    // They do not answer yet: a failure would end the wait.
    ssh_says(&mut site.env, "ssh: connect to host somewhere port 22: Connection refused");
    let spec = spec_into(&site.env, 4, A10, BOTH);
    let text = std::fs::read_to_string(site.env.work().join(&spec)).unwrap();
    site.env.write(&spec, &text.replace("boot: 2s", "boot: 12s"));
    let up = Running::begin(&site, &["up", "--yes", &spec, "--wait-capacity", "1h"]);
    until("three are launched, and one is refused", 30, || (site.asked("POST", "/launch") >= 4).then_some(()));
    let before = checks(&site);
    until("it has asked again", 30, || (checks(&site) >= before + 3).then_some(()));
    assert_eq!(site.counts(), [3, 1, 0, 1]);
    // Capacity in another region does not count.
    site.sandbox.capacity("gpu_1x_a10", WEST, 9);
    site.sandbox.capacity("gpu_1x_a10", EAST, 1);
    until("the fourth is there", 30, || (site.counts()[0] == 4).then_some(()));
    let (code, said) = up.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("capacity for host-3:"), "{said}");
    assert!(site.ours().alive().all(|one| one.region == EAST), "{:?}", site.ours());
    site.down();
}

#[test]
fn three_of_four_are_released_if_the_spec_says_so() {
    let mut site = Site::with(Config::prompt().without_capacity().with_capacity("gpu_1x_a10", EAST, 3));
    ssh_says(&mut site.env, "ssh: connect to host somewhere port 22: Connection refused");
    let spec = spec_into(&site.env, 4, A10, BOTH);
    let text = std::fs::read_to_string(site.env.work().join(&spec)).unwrap();
    let text = text.replace("boot: 2s", "boot: 60s");
    site.env.write(&spec, &format!("{text}capacity: {{ partial: give_back }}\n"));
    site.run(&["up", "--yes", &spec])
        .exits(8)
        .says("insufficient-capacity")
        .says("not all hosts are available: what was created is released")
        .says("what was created was released");
    assert_eq!(site.counts(), [0; 4], "{:?}", site.ours());
    site.others_are_untouched();
}

/// The list shows capacity, and the launch has none. Firewall rules are regional: the next choice gets its own.
#[test]
fn another_region_gets_its_own_firewall_rules() {
    let site = none();
    site.sandbox.capacity("gpu_1x_a10", EAST, 2);
    assert!(site.sandbox.vanish("gpu_1x_a10", EAST));
    let spec = spec_into(&site.env, 2, A10, BOTH);
    let up = Running::begin(&site, &["up", "--yes", &spec, "--wait-capacity", "1h"]);
    until("it was refused", 30, || (site.asked("POST", "/launch") >= 1).then_some(()));
    site.sandbox.capacity("gpu_1x_a10", EAST, 0);
    site.sandbox.capacity("gpu_1x_a10", WEST, 2);
    let (code, said) = up.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("failed to connect to host-"), "{said}");
    let ours = site.ours();
    assert_eq!(ours.counts(), [2, 1, 0, 1], "{ours:?}");
    let mut all = ours.alive().map(|one| &one.region).chain(ours.rulesets.iter().map(|one| &one.region));
    assert!(all.all(|region| region == WEST), "{ours:?}");
    site.down();
}
