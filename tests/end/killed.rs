//! `kill -9` at each effect of the guard.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::slot::{GUARD, Slot, digest, noise};
use crate::support::until_or;

const KILLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end/killed.py");

/// A host near its end, with a job that runs, and what was saved of it before.
fn near_its_end() -> Slot {
    let mut slot = Slot::with_ray(&[("results", "s3://bucket/run1"), ("results", "HOME/copy")]);
    slot.ray(&json!({"jobs": {"train": "RUNNING"}}));
    slot.write("results/checkpoint_01/model.bin", noise(9 << 20, 1));
    slot.write("results/checkpoint_02/model.bin", "newest");
    slot.write("results/metrics.csv", "1,2");
    // So little is left that the job is stopped at once.
    slot.set(&json!({"warning_s": 600}));
    slot.ends_in(55, 1);
    slot
}

/// Runs the guard until its n-th effect, or until all is saved; returns how many effects there were, or `None` if it was
/// killed.
fn run(slot: &Slot, last: usize) -> Option<usize> {
    let effects = slot.root.path().join(format!("effects-{last}"));
    let mut command = Command::new("python3");
    command.args(["-I", "-B", KILLED, GUARD, &last.to_string()]).arg(&effects).arg("run").arg(slot.home());
    let mut guard = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let killed = until_or(
        "it ends, or all is saved",
        50,
        || {
            if guard.try_wait().unwrap().is_some() {
                return Some(true);
            }
            let state = slot.state();
            let whole = state["saved"].as_array()?.iter().all(|one| one["complete"] == true);
            (last == 0 && state["phase"] == "saved" && whole).then_some(false)
        },
        || slot.state().to_string(),
    );
    let _ = guard.kill();
    let _ = guard.wait();
    // None where it was killed after the very last one.
    (!killed).then(|| std::fs::read_to_string(&effects).unwrap_or_default().lines().count())
}

/// What must be true in the end, however often it was killed.
fn check(slot: &Slot, at: usize) {
    let model = digest(noise(9 << 20, 1));
    let wanted = [
        ("checkpoint_01/model.bin", &*model),
        ("checkpoint_02/model.bin", &digest("newest")),
        ("metrics.csv", &digest("1,2")),
    ];
    let held = slot.held();
    assert_eq!(held.len(), wanted.len(), "killed after effect {at}: {held:?}");
    for (name, sum) in wanted {
        assert_eq!(
            held.get(&format!("run1/{name}")).map(String::as_str),
            Some(sum),
            "killed after effect {at}: {name}"
        );
        assert_eq!(
            digest(std::fs::read(slot.home().join("copy").join(name)).unwrap()),
            sum,
            "killed after effect {at}: {name}"
        );
    }
    let written = slot.written();
    let twice: Vec<_> = written.iter().filter(|(key, count)| !key.contains('#') && **count > 1).collect();
    assert!(twice.is_empty(), "killed after effect {at}: {twice:?}");
    assert!(written.iter().all(|(_, count)| *count <= 2), "killed after effect {at}: {written:?}");
    assert_eq!(slot.seen()["uploads"], 0, "killed after effect {at}: an upload is left open");
    assert_eq!(slot.manifest().len(), wanted.len(), "killed after effect {at}");
    let left = std::fs::read_dir(slot.home().join("copy/.gpucl/new")).unwrap().count();
    assert_eq!(left, 0, "killed after effect {at}: an unfinished file is left");
    assert!(!slot.home().join("copy/.gpucl/kept").exists(), "killed after effect {at}");
    let ray = slot.ray_seen();
    assert_eq!(ray["jobs"]["train"], "STOPPED", "killed after effect {at}");
    let mut drained: Vec<&str> =
        ray["drained"].as_array().unwrap().iter().map(|one| one["node"].as_str().unwrap()).collect();
    drained.sort_unstable();
    assert_eq!(drained, ["w0", "w1"], "killed after effect {at}");
}

/// A sample of the effects, with the first and the last.
#[test]
fn a_guard_that_is_killed_goes_on_where_it_was() {
    killed_after_every(9);
}

#[test]
#[ignore = "by hand: just end-killed"]
fn a_guard_that_is_killed_at_any_effect_goes_on_where_it_was() {
    killed_after_every(1);
}

fn killed_after_every(step: usize) {
    let slot = near_its_end();
    let all = run(&slot, 0).unwrap();
    check(&slot, 0);
    assert!(all > 20, "{all}");
    let next = AtomicUsize::new(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(step, Ordering::Relaxed);
                    if at > all {
                        break;
                    }
                    let slot = near_its_end();
                    // Fewer effects may do where two of them come together.
                    let killed = run(&slot, at).is_none();
                    assert!(killed, "effect {at}");
                    run(&slot, 0).unwrap();
                    check(&slot, at);
                }
            });
        }
    });
    println!("killed after each of {all} effects, in steps of {step}");
}
