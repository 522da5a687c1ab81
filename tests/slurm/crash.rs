//! `kill -9` at points of `up` and `down`: no job is left, and none is there twice.

use serde_json::json;

use super::testbed::{self, login, nothing_is_left, turn};
use crate::crash::real::{count, kill_when};
use crate::support::TestEnv;

/// The journal records at which to kill: record, key, and the name of a note.
const UP: &[(&str, &str, &str)] = &[
    ("requested", "job", ""),
    ("exists", "job", ""),
    ("ready", "job", ""),
    ("requested", "host0", ""),
    ("exists", "host0", ""),
    ("noted", "host0", "place"),
    ("requested", "project0", ""),
];
const DOWN: &[(&str, &str, &str)] = &[("releasing", "host0", ""), ("gone", "host0", ""), ("releasing", "job", "")];

/// The two that `.ci/run` takes: the job was submitted, and is being cancelled.
const FEW: &[(&str, &str, &str)] = &[("requested", "job", ""), ("releasing", "job", "")];

#[test]
#[ignore = "testbed"]
fn kill_9_leaves_no_job() {
    let all = std::env::var_os("GPUCL_POINTS").is_some();
    let _turn = turn();
    let env = TestEnv::new();
    let more = json!({ "cpus": 2, "memory": "6GiB", "environment": testbed::ready_environments("ada") });
    let spec = testbed::spec(&env, "killed", &testbed::settings("ada", &more), 1, &json!({})).display().to_string();
    let folder = env.home().join(".local/state/gpucl/clusters/killed");
    let (mut points, mut jobs) = (0, 0);
    for (number, point) in UP.iter().filter(|point| all || FEW.contains(point)).enumerate() {
        points += usize::from(kill_when(&env, &["up", &spec], &folder, *point));
        assert!(count(&folder, *point) > 0);
        // What the killed program had begun on the login machine goes on.
        let one =
            || login("ada", "squeue -h -u $(id -un) -o %j").lines().filter(|name| name.starts_with("gpucl-")).count();
        if number % 2 == 1 {
            env.run(&["up", &spec]).exits(0);
            assert_eq!(one(), 1, "after {point:?} and another `up` there is one job");
        }
        env.run(&["down", "--yes", "-c", "killed"]).exits(0);
        nothing_is_left();
        jobs += one();
    }
    for point in DOWN.iter().filter(|point| all || FEW.contains(point)) {
        env.run(&["up", &spec]).exits(0);
        points += usize::from(kill_when(&env, &["down", "--yes", "-c", "killed"], &folder, *point));
        env.run(&["down", "--yes", "-c", "killed"]);
        nothing_is_left();
        assert!(!folder.exists(), "after {point:?} the state is gone");
    }
    println!("kill -9 at {points} points; jobs left: {jobs}");
    assert_eq!((points, jobs), (if all { UP.len() + DOWN.len() } else { FEW.len() }, 0));
}
