//! Whether anybody uses the cluster.

use std::process::{Command, Stdio};

use serde_json::json;

use super::slot::{GUARD, Slot};
use crate::support::until;

/// What one function of `activity.py` returns.
fn asked(expression: &str) -> String {
    let folder = std::path::Path::new(GUARD).parent().unwrap();
    let program = format!("import sys; sys.path.insert(0, {folder:?}); import activity; print({expression})");
    let output = Command::new("python3").args(["-I", "-B", "-c", &program]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_job_that_runs_or_waits_is_use_and_an_unknown_state_is() {
    let mut slot = Slot::with_ray(&[]);
    slot.set(&json!({"idle": {"after_s": 1800}}));
    slot.ray(&json!({"jobs": {"a": "PENDING", "b": "SUCCEEDED"}}));
    slot.run();
    slot.until("it waits", 20, |state| state["activity"] == json!({"since": null, "saw": "a job waits"}));
    slot.kill();
    slot.ray(&json!({"refuse": true}));
    slot.run();
    let state = slot.until("it is unknown", 20, |state| {
        state["activity"]["saw"].as_str().is_some_and(|saw| saw.starts_with("unknown: "))
    });
    assert!(state["activity"]["since"].is_null());
    slot.kill();
    // Nobody is here, unless somebody uses a shell of this machine.
    slot.ray(&json!({"refuse": false, "jobs": {"a": "STOPPED"}}));
    slot.run();
    let shells = asked("activity.of_gpus() or activity.of_shells()");
    if shells == "None" {
        slot.until("nobody uses it", 20, |state| state["activity"]["since"].is_string());
    } else {
        crate::support::skipped(&format!("this machine is used: {shells}"));
    }
}

#[test]
fn a_shell_in_which_something_runs_is_use() {
    let before = asked("activity.of_shells()");
    // A terminal of its own, with a shell that waits for its child.
    let program = "import pty, sys; pty.spawn(['sh', '-ic', 'sleep 100; true'])";
    let mut shell =
        Command::new("python3").args(["-c", program]).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let seen = until("it is seen", 20, || Some(asked("activity.of_shells()")).filter(|seen| seen != "None"));
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert!(["something runs in a shell", "a shell is used"].contains(&&*seen), "{seen}");
    if before == "None" {
        until("it is over", 90, || (asked("activity.of_shells()") == "None").then_some(()));
    }
}

#[test]
fn what_the_tools_of_gpus_print_is_read() {
    assert_eq!(asked(r"activity.of_nvidia('0\n37\n[N/A]\n')"), "[0, 37]");
    assert_eq!(
        asked(r#"activity.of_amd('{"card0": {"GPU use (%)": "12"}, "system": {"Driver version": "6"}}')"#),
        "[12]"
    );
    assert_eq!(asked("activity.of_amd('ERROR: no amdgpu')"), "[]");
    assert_eq!(asked("activity.is_at_work({'execution_state': 'busy'})"), "True");
    assert_eq!(
        asked("activity.is_at_work({'execution_state': 'idle', 'last_activity': '2026-01-01T00:00:00.123456Z'})"),
        "False"
    );
}
