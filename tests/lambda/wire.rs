//! Failures of the connection: rate limits, proxy pages, lost answers.

use std::time::{Duration, Instant};

use gpucl::sandbox::lambda::{Config, Rule, TooFast};

use super::site::Site;
use crate::support::until;

#[test]
fn a_web_page_instead_of_json_is_reported() {
    for fault in ["html:200", "html:403"] {
        let site = Site::prompt();
        site.faults(vec![Rule::new("GET", "/instance-types$", fault).times(20)]);
        let spec = site.spec(1, "");
        for arguments in [&["offers"][..], &["up", "--yes", &spec]] {
            site.run(arguments).exits(1).says("a web page answered").says("a proxy or a captive portal");
        }
        assert_eq!(site.counts(), [0; 4]);
    }
}

#[test]
fn a_temporary_proxy_page_is_retried() {
    let site = Site::prompt();
    site.faults(vec![Rule::new("GET", "/instance-types$", "html:502").times(2)]);
    site.run(&["offers"]).exits(0).prints("gpu_1x_a10");
    assert_eq!(site.asked("GET", "/instance-types"), 3);
}

/// Waits of minutes survive an outage of the service.
#[test]
fn an_outage_ends_neither_a_boot_nor_a_termination() {
    let times = Duration::from_secs(2);
    let site = Site::with(Config { boot: times, terminating: times, ..Config::prompt() });
    let spec = site.spec(1, "");
    // A check fails only after four requests.
    let outage = || site.faults(vec![Rule::new("GET", "/instances$", "status:503").times(8)]);
    let during = |path: &str, arguments: &[&str]| {
        std::thread::scope(|scope| {
            let running = scope.spawn(|| site.run(arguments));
            until("the call", 60, || (site.asked("POST", path) == 1).then_some(()));
            // It looks, and looks again: it has read an answer by then.
            let before = site.asked("GET", "/instances");
            until("two looks", 60, || (site.asked("GET", "/instances") > before + 1).then_some(()));
            outage();
            running.join().unwrap()
        })
    };
    let note = "retrying until the wait's time limit";
    during("/launch", &["up", "--yes", &spec])
        .exits(1)
        .says(note)
        .says("the service responds again")
        .says("failed to connect to host-");
    let before = site.asked("GET", "/instances");
    during("/terminate", &["down", "--yes", "-c", "demo"]).exits(0).says(note).says("the service responds again");
    assert!(site.asked("GET", "/instances") - before > 8);
    assert_eq!((site.counts(), site.asked("POST", "/launch"), site.asked("POST", "/terminate")), ([0; 4], 1, 1));
}

#[test]
fn too_many_requests_are_waited_out_with_and_without_a_time() {
    for seconds in [Some("1"), None] {
        let site = Site::prompt();
        let rule = |method: &str, path: &str| {
            let rule = Rule::new(method, path, "status:429").times(2);
            seconds.map_or_else(|| rule.clone(), |seconds| rule.clone().with_header("Retry-After", seconds))
        };
        site.faults(vec![rule("GET", "/instances$"), rule("POST", "/instance-operations/launch$")]);
        let spec = site.spec(1, "");
        let begun = Instant::now();
        site.up_to_ssh(&spec);
        assert!(seconds.is_none() || begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
        assert_eq!(site.asked("POST", "/launch"), 3);
        assert_eq!(site.counts(), [1, 1, 0, 0]);
        site.faults(Vec::new());
        site.down();
    }
}

/// Lambda's own limits in real time: two processes together keep them.
#[test]
fn two_processes_together_keep_to_one_request_a_second() {
    let mut site = Site::with(Config {
        request_every: Duration::from_secs(1),
        launch_every: Duration::from_secs(12),
        too_fast: TooFast::Counted,
        ..Config::prompt()
    });
    site.env.set("GPUCL_LAMBDA_PACE", "1");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| site.run(&["offers"]).exits(0));
        }
    });
    let pace = site.sandbox.pace();
    assert_eq!(pace.requests, 3, "{pace:?}");
    assert_eq!(pace.too_fast, 0, "{pace:?}");
}

#[test]
fn a_launch_whose_answer_is_lost_is_found_by_its_tag() {
    for fault in ["cut-after", "after:500", "after-html:502", "malformed"] {
        let site = Site::prompt();
        site.faults(vec![Rule::new("POST", "/instance-operations/launch$", fault)]);
        let spec = site.spec(1, "");
        site.up_to_ssh(&spec).says("checking whether it was done anyway");
        assert_eq!(site.asked("POST", "/launch"), 1, "{fault}");
        assert_eq!(site.counts(), [1, 1, 0, 0], "{fault}");
        site.faults(Vec::new());
        site.down();
    }
}

#[test]
fn secrets_reach_no_file_and_no_output() {
    let site = Site::prompt();
    let spec = site.spec(1, "");
    let up = site.up_to_ssh(&spec);
    let seen = site.sandbox.snapshot();
    let mut secrets: Vec<String> = seen.instances.iter().map(|one| one.jupyter_token.clone()).collect();
    secrets.push(site.sandbox.key(gpucl::sandbox::lambda::User::Alice));
    let status = site.run(&["status", "-c", "demo", "--output", "json"]);
    let mut left = vec![site.env.root().to_owned()];
    let mut files = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(text) = std::fs::read(&path) {
            files += 1;
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(!secrets.iter().any(|secret| text.contains(secret)), "{} holds a secret", path.display());
        }
    }
    assert!(files > 5, "{files}");
    for text in [&up.stdout, &up.stderr, &status.stdout, &status.stderr] {
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    }
    site.down();
}
