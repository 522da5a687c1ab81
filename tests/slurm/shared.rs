//! An environment in the user's home folder: made once, and used by the next job.

use std::time::Instant;

use serde_json::json;

use super::testbed::{self, login, nothing_is_left, python, turn};
use crate::support::TestEnv;

#[test]
#[ignore = "by hand: just slurm"]
fn an_environment_at_home_is_made_once() {
    let _turn = turn();
    let env = TestEnv::new();
    let mut more = python();
    more.as_object_mut()
        .unwrap()
        .extend(json!({ "cpus": 4, "memory": "8GiB", "environment": "home" }).as_object().unwrap().clone());
    let spec = testbed::spec(&env, "shared", &testbed::settings("ada", &more), 1, &json!({})).display().to_string();
    for times in ["first", "second"] {
        let begin = Instant::now();
        let up = env.run(&["up", &spec]).exits(0).prints("ready:");
        println!("{times} up: {:.1} s", begin.elapsed().as_secs_f64());
        let is_there = up.stderr.contains("create the Ray environment: nothing to do");
        assert_eq!(is_there, times == "second", "{}", up.stderr);
        assert!(login("ada", "ls ~/.gpucl/environments").starts_with("ray-"));
        env.run(&["down", "--yes", "-c", "shared"]).exits(0).prints("nothing of shared is left");
    }
    login("ada", "rm -rf ~/.gpucl/environments; rmdir ~/.gpucl");
    nothing_is_left();
}
