//! The end of a cluster: said before, moved by a command, by its agent or by somebody else, and kept although nobody answers.

use serde_json::{Value, json};

use gpucl::sandbox::chameleon::User;

use super::{ACTS_WITHIN, folder, gone, is_ready, log};
use crate::chameleon::site::Site;
use crate::support::{TestEnv, nodes, turn, until, until_or};

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

/// Somebody else shortens the lease, and no host answers: it is found out, and the cluster is taken down at its end.
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

/// The whole way on this machine: what a job wrote is here before the deadline, and the record of the cluster says so when it
/// is gone. The agent was killed in between.
#[test]
#[ignore = "testbed"]
fn what_is_saved_here_is_here_before_a_deadline_and_said_when_the_cluster_is_gone() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let write = |warning: &str| {
        let end = format!("end: {{ warning: {warning}, save: [{{ from: results, to: here:out }}] }}");
        let spec = format!("name: demo\ndeadline: 160s\nray: {{ workers: {{ count: 1, cpus: 1 }} }}\n{end}\n");
        env.write("cluster.yaml", &spec);
    };
    write("50s");
    let begun = std::time::Instant::now();
    let _ = env.run(&["up", "--yes"]).exits(0).says("on this machine").says("lost all the same");
    println!("up: {:.0} s", begun.elapsed().as_secs_f64());
    // A changed end starts the guard anew, and nothing else.
    let before = nodes(&env, "demo");
    write("60s");
    let _ = env.run(&["plan"]).exits(0).prints("keep head").prints("restart guard: the spec has changed for it");
    let _ = env.run(&["up", "--yes"]).exits(0);
    let after = nodes(&env, "demo");
    let is_same = ["head", "worker0", "guard"].map(|key| after[key] == before[key]);
    assert_eq!(is_same, [true, true, false], "{before:?} {after:?}");
    let write = "mkdir -p $GPUCL_DATA/results/checkpoint-7; echo 7 >$GPUCL_DATA/results/checkpoint-7/step; echo ok >$GPUCL_DATA/results/log";
    let _ = env.run(&["exec", "-c", "demo", "--", "sh", "-c", &write.replace("$GPUCL_DATA", &data(&env))]).exits(0);
    let killed = super::signal(&env, rustix::process::Signal::KILL);
    let _ = env.run(&["save", "-c", "demo"]).exits(0).prints("results to here:out: 2 files").prints("verified");
    super::started_again(&env, killed);
    let at = |name: &str| std::fs::read_to_string(env.work().join("out").join(name)).unwrap_or_default();
    assert_eq!(at("checkpoint-7/step"), "7\n");
    let write = "echo 8 >$GPUCL_DATA/results/checkpoint-7/step";
    let _ = env.run(&["exec", "-c", "demo", "--", "sh", "-c", &write.replace("$GPUCL_DATA", &data(&env))]).exits(0);
    until_or("it is gone", 240, || (!folder(&env).exists()).then_some(()), || log(&env));
    println!("gone after {:.0} s, with a deadline of 160 s", begun.elapsed().as_secs_f64());
    assert_eq!(at("checkpoint-7/step"), "8\n", "what was written last is not here");
    let ended = until("the reason", 10, || {
        Some(env.run(&["status", "-c", "demo"]).exits(6))
            .filter(|outcome| outcome.stderr.contains("it was taken down at"))
    });
    let _ = ended.says("its deadline is reached at").says("results to here:out: 2 files").says("verified");
}

/// The data folder of a cluster on this machine.
fn data(env: &TestEnv) -> String {
    let hosts = env.home().join(".local/share/gpucl/hosts");
    let host = std::fs::read_dir(hosts).unwrap().next().unwrap().unwrap().path();
    host.join("data").display().to_string()
}
