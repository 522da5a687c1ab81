//! A cluster outlives the login session that made it.

use crate::support::{Outcome, TestEnv, short_folders, until};

/// Runs the program in a shell of another kind, without a folder for sockets: cron, `su`, `sudo`, `docker exec`.
fn without_session(env: &TestEnv, arguments: &[&str]) -> Outcome {
    let output = env.command(arguments).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A job goes on while other shells plan and bring up, while the session's folder goes, and while /tmp is cleaned.
pub(super) fn the_login_that_made_it_is_gone(env: &TestEnv) {
    let submit = ["job", "submit", "--no-wait", "--submission-id", "long", "--", "sleep", "600"];
    let _ = env.run(&submit).exits(0);
    let job_runs = || env.run(&["job", "status", "long"]).exits(0).stdout.contains("RUNNING");
    until("the job runs", 60, || job_runs().then_some(()));
    let before = super::tools::pids(env);
    let [short] = &short_folders(env.root())[..] else { panic!("not one folder of short paths") };

    let _ = without_session(env, &["plan"]).exits(0).prints("nothing to change");
    let _ = without_session(env, &["up"]).exits(0).prints("nothing was changed");
    let mut other = env.command(&["up"]);
    let output = other.env("XDG_RUNTIME_DIR", env.root().join("another")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing was changed"), "{output:?}");

    let _ = std::fs::remove_dir_all(env.root().join("run"));
    std::fs::remove_dir_all(short).unwrap();
    until("the supervisor makes it again", 10, || short.join("r").exists().then_some(()));
    let _ = env.run(&["job", "submit", "--", "echo", "a new worker"]).exits(0).prints("a new worker");
    let _ = env.run(&["up"]).exits(0).prints("nothing was changed");
    assert!(job_runs(), "the job did not go on");
    assert_eq!(super::tools::pids(env), before);
    let _ = env.run(&["job", "stop", "long"]).exits(0);
}
