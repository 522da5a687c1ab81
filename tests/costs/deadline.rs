//! A deadline and a cost limit are enforced without a running command, whatever happens to the agent.

use std::process::Stdio;
use std::time::{Duration, Instant};

use gpucl::sandbox::chameleon::Rule;
use rustix::process::Signal;
use serde_json::Value;

use super::{ACTS_WITHIN, folder, gone, gone_within, log, pid, signal, started_again, up, watcher};
use crate::chameleon::site::{Site, ssh_says};
use crate::support::{Outcome, TestEnv, tagged_processes, until, until_or};

/// Long enough for `up` to come to its end on a machine that is busy; then it is brought nearer.
const LONG: &str = "deadline: 30m";

/// Moves the deadline to `seconds` from now.
fn ends_in(env: &TestEnv, seconds: u64) {
    let at = jiff::Timestamp::now() + Duration::from_secs(seconds);
    edit(&folder(env).join("deadline.json"), |value| value["at"] = at.to_string().into());
}

/// Done when 5, with a shorter deadline.
#[test]
fn the_deadline_is_kept_although_its_agent_was_killed() {
    let site = Site::stand_in();
    let _ = up(&site, LONG).says("it is taken down 30m after its first host was acquired");
    let _ =
        site.run(&["status", "--offline"]).exits(0).prints("deadline: ").prints("unless this machine is off or asleep");
    let killed = signal(&site.env, Signal::KILL);
    let _ = site.run(&["list"]).exits(0);
    started_again(&site.env, killed);
    assert_eq!(site.ours().counts(), [1; 4], "it was taken down before its time");
    ends_in(&site.env, 3);
    gone(&site);
    let _ = ended(&site).says("since its deadline, ").says("it cost about 0.01 SU in all");
    assert_eq!(pid(&site.env), None);
}

/// Commands for a cluster that its agent took down say so.
#[track_caller]
fn ended(site: &Site) -> Outcome {
    let ask = || site.run(&["status", "-c", "demo"]).exits(6);
    until("the reason of the end is shown", 10, || {
        Some(ask()).filter(|outcome| outcome.stderr.contains("it was taken down at"))
    })
}

/// Done when 5, as it stands there.
#[test]
#[ignore = "testbed"]
fn a_deadline_of_two_minutes_in_real_time() {
    let site = Site::stand_in();
    let begin = Instant::now();
    up(&site, "deadline: 2m");
    let killed = signal(&site.env, Signal::KILL);
    let _ = site.run(&["offers"]).exits(0);
    started_again(&site.env, killed);
    gone_within(&site, 180);
    let after = begin.elapsed();
    println!("gone {:.1} s after `up` began, with a deadline of 120 s", after.as_secs_f64());
    assert!(after > Duration::from_secs(115) && after < Duration::from_secs(120 + ACTS_WITHIN), "{after:?}");
    gone(&site);
}

/// A laptop that sleeps through the deadline: all of its processes stand still, and go on when it wakes.
#[test]
fn after_sleeping_through_the_deadline_it_acts_at_once() {
    let site = Site::stand_in();
    up(&site, LONG);
    signal(&site.env, Signal::STOP);
    ends_in(&site.env, 3);
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(site.ours().counts(), [1; 4]);
    let awake = Instant::now();
    signal(&site.env, Signal::CONT);
    gone(&site);
    println!("gone {:.1} s after it woke", awake.elapsed().as_secs_f64());
}

/// After a restart of the machine, say: a deadline that has passed is enforced at the next check, and `up` does not
/// continue a cluster whose time is over.
#[test]
fn a_deadline_that_passed_meanwhile_is_enforced_at_once() {
    let site = Site::stand_in();
    up(&site, LONG);
    signal(&site.env, Signal::KILL);
    // Half an hour and more goes by.
    edit(&folder(&site.env).join("snapshot.json"), |value| put(&mut value["state"]["begun"], -3600));
    assert_eq!(site.ours().counts(), [1; 4]);
    let over = site.run(&["up", "--yes", "cluster.yaml"]).exits(2);
    let _ = over.says("deadline: is over: it was").says("hint: gpucl down -c demo");
    gone(&site);
}

/// The clock on the wall was put back by an hour after `up`: what was written down then lies in the future now. The
/// clock that nobody can put back counts.
#[test]
fn a_clock_that_is_put_back_gives_no_more_time() {
    let site = Site::stand_in();
    up(&site, "deadline: 10m");
    signal(&site.env, Signal::KILL);
    let limits = folder(&site.env).join("deadline.json");
    edit(&limits, |value| {
        put(&mut value["mark"]["wall"], 3600);
        // And eleven minutes have gone by since, by the clock that counts.
        let millis = value["mark"]["since_boot_ms"].as_i64().unwrap();
        value["mark"]["since_boot_ms"] = (millis - 660_000).into();
    });
    edit(&folder(&site.env).join("snapshot.json"), |value| put(&mut value["state"]["begun"], 3600));
    let _ = site.run(&["list"]).exits(0);
    gone(&site);
}

/// Moves a time by `seconds`.
fn put(value: &mut Value, seconds: i64) {
    let at: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
    *value = (at + jiff::SignedDuration::from_secs(seconds)).to_string().into();
}

fn edit(path: &std::path::Path, change: impl Fn(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

#[test]
fn a_cluster_at_its_cost_limit_is_taken_down() {
    let site = Site::stand_in();
    up(&site, "max_cost: 1 SU");
    let _ = site.run(&["status", "--offline"]).exits(0).prints("max_cost: 1 SU").prints("unless this machine is off");
    // 1 SU an hour: four seconds.
    edit(&folder(&site.env).join("deadline.json"), |value| value["max_cost"]["amount"] = 0.001.into());
    gone(&site);
    let _ = ended(&site).says("since it has cost about 0.01 SU, which is its `max_cost`");
}

/// The service refuses for a while: the removal is retried until it succeeds, and reported in the meantime.
#[test]
fn a_refused_removal_is_tried_again_until_it_succeeds() {
    let site = Site::stand_in();
    up(&site, LONG);
    ends_in(&site.env, 2);
    site.faults(vec![Rule::new("DELETE", "^/reservation/v1/leases/", "status:403").times(1000)]);
    let tries = || watcher(&site.env)?["failed"].as_u64();
    until("a failed attempt", 120, || tries().filter(|tries| *tries > 0));
    let status = site.run(&["status", "--offline"]).exits(0).prints("warning: it is being taken down");
    let _ = status.prints("warning: taking it down failed 1 time: failed to");
    assert_eq!(site.ours().counts()[0], 1);
    site.faults(Vec::new());
    gone(&site);
}

/// An `up` still running at the deadline is stopped, and then the cluster is taken down.
#[test]
fn an_up_still_running_at_the_deadline_is_stopped() {
    let mut site = Site::stand_in();
    // Not refused, only silent: it is waited for.
    ssh_says(&mut site.env, "ssh: connect to host somewhere port 22: Connection timed out");
    let file = site.spec("", "timeouts: { boot: 10m }\ndeadline: 8s\n");
    let mut child =
        site.env.command(&["up", "--yes", &file]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = until("the end of `up`", 120, || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(130));
    gone(&site);
}

#[test]
fn a_changed_limit_takes_effect_at_the_next_up_and_one_that_is_left_out_is_lifted() {
    let site = Site::stand_in();
    up(&site, "deadline: 1h");
    let first = pid(&site.env).unwrap();
    let _ = up(&site, "deadline: 2d").says("it is taken down 48h after");
    assert_eq!(pid(&site.env), Some(first), "it is another process");
    let left = || site.run(&["status", "--offline", "--output", "json"]).exits(0).json()[0]["deadline"].clone();
    let at: jiff::Timestamp = left()["at"].as_str().unwrap().parse().unwrap();
    let hours = at.duration_since(jiff::Timestamp::now()).as_secs_f64() / 3600.0;
    assert!(hours > 47.0 && hours < 48.1, "{hours}");
    up(&site, "");
    assert!(left().is_null());
    assert_eq!(pid(&site.env), None);
    for file in ["deadline.json", "deadline-agent.json", "deadline.log", "deadline.lock", "secrets/environment.json"] {
        assert!(!folder(&site.env).join(file).exists(), "{file} is left");
    }
    site.down();
}

/// Costs and deadline of a later lease count from its start; `down` ends the wait and its agent.
#[test]
fn the_deadline_does_not_count_while_waiting_for_hosts() {
    let site = Site::stand_in();
    let at = (jiff::Timestamp::now() + Duration::from_secs(7200)).strftime("%Y-%m-%d %H:%M").to_string();
    let file = site.spec(&format!("start: \"{at} UTC\"\nhours: 1"), "deadline: 1s\n");
    let mut child =
        site.env.command(&["up", "--yes", &file]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the wait", 60, || site.run(&["status", "--offline"]).stdout.contains("it waits for").then_some(()));
    until("what looks after it", 20, || pid(&site.env));
    std::thread::sleep(Duration::from_secs(5));
    let status = site.run(&["status", "--offline", "--output", "json"]).exits(0).json();
    assert_eq!(status[0]["cost"]["per_hour"], serde_json::json!([]), "it costs before it begins");
    assert_eq!(site.ours().counts()[0], 1, "it was taken down though nothing has begun");
    site.down();
    child.wait().unwrap();
    assert_eq!(pid(&site.env), None);
}

/// The cluster's lock is held by somebody else: it waits for that, and then acts.
#[test]
fn the_agent_waits_for_another_gpucl_and_then_acts() {
    let site = Site::stand_in();
    up(&site, LONG);
    let lock = site.env.home().join(".local/state/gpucl/locks");
    std::fs::create_dir_all(&lock).unwrap();
    let file = std::fs::File::create(lock.join("demo")).unwrap();
    file.lock().unwrap();
    ends_in(&site.env, 2);
    let log = || std::fs::read_to_string(folder(&site.env).join("deadline.log")).unwrap_or_default();
    until("an attempt that finds the lock held", 60, || log().contains("another gpucl works on it").then_some(()));
    assert_eq!(site.ours().counts(), [1; 4]);
    drop(file);
    gone(&site);
}

/// Not only for clouds: a cluster on this machine ends at its deadline too, and needs no stored credential.
#[test]
fn a_cluster_on_this_machine_has_a_deadline_too() {
    let mut env = TestEnv::new();
    // Without Python `up` ends at its first step: the host's folder exists, and the agent of the deadline runs.
    let tools = env.root().join("bin");
    std::fs::create_dir(&tools).unwrap();
    let path = std::env::var("PATH").unwrap();
    for tool in [
        "sh", "flock", "setsid", "timeout", "base64", "grep", "sed", "awk", "sleep", "mkdir", "mv", "rm", "cp", "cat",
        "chmod", "wc", "tail", "head", "printf", "kill", "df", "uname", "nproc", "sync",
    ] {
        let found = path.split(':').map(|folder| std::path::Path::new(folder).join(tool)).find(|file| file.exists());
        found.into_iter().for_each(|file| std::os::unix::fs::symlink(file, tools.join(tool)).unwrap());
    }
    env.set("PATH", &tools.display().to_string());
    env.write("cluster.yaml", "name: demo\ndeadline: 30m\n");
    let _ = env.run(&["up"]).exits(1).says("it is taken down 30m after its first host was acquired");
    assert!(!folder(&env).join("secrets/environment.json").exists());
    signal(&env, Signal::KILL);
    ends_in(&env, 3);
    let _ = env.run(&["list"]).exits(0).prints("demo");
    until_or("it is taken down", ACTS_WITHIN, || (!folder(&env).exists()).then_some(()), || log(&env));
    let hosts = std::fs::read_dir(env.home().join(".local/share/gpucl/hosts"));
    assert_eq!(hosts.map_or(0, Iterator::count), 0, "the host's folder is left");
    until("nothing looks after it any more", 10, || tagged_processes(&env).is_empty().then_some(()));
}
