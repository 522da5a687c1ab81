//! Stores and disks that do not do what they should.

use std::process::Command;

use serde_json::{Value, json};

use super::slot::{GUARD, Slot, digest, noise};
use crate::support::until;

fn failed(state: &Value) -> String {
    state["saved"][0]["failed"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_store_that_refuses_or_is_full_is_named_and_what_fits_is_saved() {
    let slot = Slot::new(&[("results", "s3://bucket/run1"), ("results", "HOME/copy")]);
    slot.write("results/small", "fits");
    slot.write("results/large", noise(3_000_000, 1));
    slot.store(&json!({"room": 1_000_000}));
    let (code, state) = slot.save();
    assert!(code == 1 && failed(&state).contains("507 InsufficientStorage: no room is left"), "{state}");
    assert_eq!(state["missing_bytes"], 3_000_000, "{state}");
    assert_eq!(slot.held()["run1/small"], digest("fits"));
    assert_eq!(state["saved"][1]["complete"], true, "what comes later does not wait for it");
    slot.store(&json!({"room": null, "refuse": "run1/"}));
    let (code, state) = slot.save();
    assert!(code == 1 && failed(&state).contains("403 AccessDenied: you may not write here"), "{state}");
    slot.store(&json!({"refuse": null}));
    let (code, state) = slot.save();
    assert_eq!(code, 0, "{state}");
}

#[test]
fn a_store_that_is_away_is_tried_until_it_is_back() {
    let mut slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/x", "x");
    slot.store(&json!({"away": true}));
    slot.set(&json!({"warning_s": 100}));
    slot.ends_in(90, 1);
    slot.run();
    let state = slot.until("it says so", 40, |state| failed(state).contains("no answer from http://127.0.0.1"));
    assert_eq!((&state["phase"], &state["fits"]), (&json!("draining"), &json!(false)));
    slot.store(&json!({"away": false}));
    slot.until("it is saved", 40, |state| state["saved"][0]["complete"] == true);
    assert_eq!(slot.held()["run1/x"], digest("x"));
}

#[test]
fn a_store_that_is_too_slow_is_known_early_and_gets_what_matters_most() {
    let mut slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/old.bin", noise(30_000_000, 1));
    slot.write("results/checkpoint_7/w", noise(500_000, 2));
    slot.store(&json!({"rate": 300_000}));
    slot.set(&json!({"warning_s": 60}));
    slot.ends_in(58, 1);
    slot.run();
    let state = slot.until("it does not fit", 30, |state| state["fits"] == false && state["rate"].is_u64());
    assert!(state["missing_bytes"].as_u64().unwrap() > 20_000_000, "{state}");
    slot.until("the checkpoint is saved", 30, |state| state["saved"][0]["newest"] == "checkpoint_7");
    assert_eq!(slot.held()["run1/checkpoint_7/w"], digest(noise(500_000, 2)));
    // The same with an end that is far enough: it fits.
    slot.store(&json!({"rate": null}));
    slot.until("it fits again", 40, |state| state["fits"] == true && state["missing_bytes"] == 0);
}

#[test]
fn what_a_store_loses_is_noticed_and_saved_again() {
    let slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/x", "x");
    slot.write("results/y", "y");
    slot.store(&json!({"lose": "run1/x"}));
    let (code, state) = slot.save();
    assert_eq!(code, 0, "{state}");
    assert_eq!(slot.held().len(), 2);
    slot.store(&json!({"gone": ["run1/y"]}));
    assert_eq!(slot.save().0, 0);
    assert_eq!(slot.held().len(), 2);
}

/// Signatures are valid for fifteen minutes: a wrong clock would have everything refused.
#[test]
fn a_clock_that_is_an_hour_off_is_no_reason_to_lose_anything() {
    for ahead in [3600, -3600] {
        let slot = Slot::new(&[("results", "s3://bucket/run1")]);
        slot.write("results/x", "x");
        slot.store(&json!({"ahead": ahead}));
        let (code, state) = slot.save();
        assert_eq!(code, 0, "{state}");
        assert_eq!(slot.held().len(), 1);
    }
}

/// Root mounts a small file system, where only this test sees it.
#[test]
#[ignore = "testbed"]
fn a_full_disk_loses_nothing_that_is_there() {
    let slot = Slot::new(&[("results", "HOME/copy")]);
    let (copy, out) = (slot.home().join("copy"), slot.root.path().join("out"));
    std::fs::create_dir_all(&copy).unwrap();
    slot.write("results/a", "saved before");
    slot.write("results/checkpoint_1/w", noise(3_000_000, 1));
    let script = "mount -t tmpfs -o size=2m tmpfs \"$1\" && printf before > \"$1/a\" && { python3 -I -B \"$2\" save \"$3\" > \"$4\"; \
                  echo $? >> \"$4\"; cat \"$1/a\" >> \"$4\"; ls -A \"$1/.gpucl/new\" >> \"$4\"; }";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&copy).arg(GUARD).arg(slot.home()).arg(&out);
    assert!(command.status().unwrap().success());
    let said = std::fs::read_to_string(out).unwrap();
    let (state, rest) = said.split_once('\n').unwrap();
    let state: Value = serde_json::from_str(state).unwrap();
    assert_eq!(rest, "1\nsaved before", "the small file is new, and nothing unfinished is left");
    assert!(failed(&state).contains("checkpoint_1/w cannot be written: No space left on device"), "{state}");
}

/// Files come and go, and grow, while they are copied: in the end what is there is there.
#[test]
fn files_that_change_while_they_are_copied_are_saved_as_they_are_in_the_end() {
    let mut slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.store(&json!({"pause": 0.01}));
    for number in 0..200 {
        slot.write(&format!("results/{number}"), noise(1000, number));
    }
    slot.write("results/log", "0\n");
    slot.ends_in(50, 1);
    slot.run();
    slot.until_phase("draining", 20);
    for round in 0_u32..40 {
        for number in (round % 7..200).step_by(7) {
            let path = slot.home().join(format!("data/results/{number}"));
            if (round + number) % 3 == 0 {
                drop(std::fs::remove_file(path))
            } else {
                slot.write(&format!("results/{number}"), noise(1000 + round, number))
            }
        }
        let log = slot.home().join("data/results/log");
        std::fs::write(&log, std::fs::read_to_string(&log).unwrap() + "more\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let wanted: Vec<(String, String)> = std::fs::read_dir(slot.home().join("data/results"))
        .unwrap()
        .flatten()
        .map(|entry| {
            (format!("run1/{}", entry.file_name().to_string_lossy()), digest(std::fs::read(entry.path()).unwrap()))
        })
        .collect();
    until("all is there as it is in the end", 40, || {
        let held = slot.held();
        wanted.iter().all(|(key, sum)| held.get(key) == Some(sum)).then_some(())
    });
    assert_eq!(slot.log().matches("failed to save").count(), 0, "{}", slot.log());
}
