//! `kill -9` at points of `up` and `down`: no object is left, and none is there twice.

use serde_json::json;

use super::testbed::{self, kubectl, nothing_is_left, place, turn};
use crate::crash::real::{count, kill_when};
use crate::support::TestEnv;

type Point = (&'static str, &'static str, &'static str);

/// The journal records at which to kill a first `up`: record, key, and the name of a note.
const UP: &[Point] = &[
    ("requested", "token", ""),
    ("exists", "token", ""),
    ("requested", "policy", ""),
    ("exists", "policy", ""),
    ("requested", "raycluster", ""),
    ("exists", "raycluster", ""),
    ("noted", "raycluster", "groups"),
    ("ready", "raycluster", ""),
];
/// Of an `up` that changes the cluster.
const CHANGE: &[Point] = &[("changing", "raycluster", "")];
const DOWN: &[Point] = &[("releasing", "raycluster", ""), ("gone", "raycluster", ""), ("releasing", "token", "")];
/// The two that `.ci/run` takes: the cluster was requested, and is being deleted.
const FEW: &[Point] = &[("requested", "raycluster", ""), ("releasing", "raycluster", "")];

#[test]
#[ignore = "testbed"]
fn kill_9_leaves_no_object() {
    let all = std::env::var_os("GPUCL_POINTS").is_some();
    let taken = |points: &'static [Point]| points.iter().filter(move |point| all || FEW.contains(point));
    let _turn = turn();
    let env = TestEnv::new();
    let spec = |cpus: u32| {
        let workers = json!([{ "name": "cpu", "count": 1, "cpus": cpus }]);
        testbed::spec(&env, "killed", &testbed::settings("ada", &json!({})), &workers, &json!({}))
    };
    let first = spec(1);
    let up = ["up", "--yes", "--at", &place("ada"), &first];
    let down = ["down", "--yes", "-c", "killed"];
    let folder = env.home().join(".local/state/gpucl/clusters/killed");
    let clusters = || kubectl(&["-n", "team-a", "get", "rayclusters", "-o", "name"]).lines().count();
    let mut points = 0;
    for (number, point) in taken(UP).enumerate() {
        points += usize::from(kill_when(&env, &up, &folder, *point));
        assert!(count(&folder, *point) > 0, "{point:?}");
        if number % 3 == 1 {
            env.run(&up).exits(0);
            assert_eq!(clusters(), 1, "after {point:?} and another `up` there is one cluster");
        }
        env.run(&down).exits(0);
        nothing_is_left();
    }
    for point in taken(CHANGE) {
        env.run(&up).exits(0);
        let changed = spec(2);
        points += usize::from(kill_when(&env, &["up", "--yes", &changed], &folder, *point));
        env.run(&["up", "--yes", &changed]).exits(0).prints("ready:");
        let _ = spec(1);
        env.run(&down).exits(0);
        nothing_is_left();
    }
    for point in taken(DOWN) {
        env.run(&up).exits(0);
        points += usize::from(kill_when(&env, &down, &folder, *point));
        env.run(&down);
        nothing_is_left();
        assert!(!folder.exists(), "after {point:?} the state is gone");
    }
    println!("kill -9 at {points} points; objects left: {}", testbed::left().len());
    assert_eq!(points, if all { UP.len() + CHANGE.len() + DOWN.len() } else { FEW.len() });
}
