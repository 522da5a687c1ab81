//! When the end is: clocks that are wrong, machines that start again, and what is no end.

use serde_json::{Value, json};

use super::slot::{Slot, in_seconds};

fn end(at: i64, left: i64, revision: u32) -> Value {
    json!({"v": 1, "at": in_seconds(at), "left_s": left, "why": "a test", "revision": revision})
}

#[test]
fn of_two_clocks_that_differ_the_earlier_end_decides_and_it_is_said() {
    // The host's clock is an hour ahead, an hour behind; the teller's is.
    for (at, left, phase, skew) in [
        (0, 3600, "over", -3600),
        (7200, 3600, "waiting", 3600),
        (3600, 0, "over", 3600),
        (3600, 7200, "waiting", -3600),
        (3600, 3590, "waiting", 0),
    ] {
        let mut slot = Slot::new(&[]);
        slot.tell(&end(at, left, 1)).unwrap();
        slot.run();
        let state = slot.until("it knows", 20, |state| state["revision"] == 1 && state["phase"] == phase);
        let seen = state["skew_s"].as_f64().unwrap();
        assert!((seen - f64::from(skew)).abs() < 15.0, "{at} {left}: {state}");
    }
}

#[test]
fn an_end_that_was_given_before_is_not_taken_again() {
    let slot = Slot::new(&[]);
    slot.tell(&end(4000, 4000, 5)).unwrap();
    let known = std::fs::read_to_string(slot.home().join("guard/end.json")).unwrap();
    for revision in [5, 4, 0] {
        slot.tell(&end(10, 10, revision)).unwrap();
        assert_eq!(std::fs::read_to_string(slot.home().join("guard/end.json")).unwrap(), known);
    }
    slot.tell(&end(10, 10, 6)).unwrap();
    assert_ne!(std::fs::read_to_string(slot.home().join("guard/end.json")).unwrap(), known);
}

#[test]
fn what_is_no_end_is_refused_and_changes_nothing() {
    let slot = Slot::new(&[]);
    for (wrong, why) in [
        (json!([]), "no end of version 1"),
        (json!({"v": 2, "at": null, "left_s": null, "revision": 1}), "no end of version 1"),
        (json!({"v": 1, "at": "tomorrow", "left_s": 1, "revision": 1}), "no time of RFC 3339"),
        (json!({"v": 1, "at": 17, "left_s": 1, "revision": 1}), "no time of RFC 3339"),
        (json!({"v": 1, "at": in_seconds(9), "left_s": "9", "revision": 1}), "no number of seconds"),
        (json!({"v": 1, "at": in_seconds(9), "left_s": 9, "revision": "1"}), "no whole number"),
    ] {
        let said = slot.tell(&wrong).unwrap_err();
        assert!(said.starts_with("guard: ") && said.contains(why) && said.lines().count() == 1, "{said}");
    }
    assert!(!slot.home().join("guard/end.json").exists());
    std::fs::remove_file(slot.home().join("guard.json")).unwrap();
    let said = slot.tell(&end(10, 10, 1)).unwrap_err();
    assert!(said.contains("guard.json is missing or of another version: run `gpucl up`"), "{said}");
}

/// The clock since boot starts again, and only the wall clock says how long it was off.
#[test]
fn a_host_that_starts_again_in_its_last_minutes_goes_on() {
    let mut slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/x", "x");
    slot.set(&json!({"warning_s": 60}));
    slot.ends_in(50, 1);
    slot.run();
    slot.until("it saves", 20, |state| state["phase"] == "draining" && state["saved"][0]["files"] == 1);
    slot.kill();
    let path = slot.home().join("guard/end.json");
    let mut known: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    known["boot"] = json!("another one");
    known["since_boot"] = json!(1e9);
    std::fs::write(&path, known.to_string()).unwrap();
    slot.write("results/y", "y");
    slot.run();
    slot.until("it goes on", 20, |state| state["phase"] == "draining" && state["saved"][0]["files"] == 2);
    let written = slot.written();
    assert!(written.values().all(|count| *count == 1), "{written:?}");
    // The wall clock alone: an end that has passed while it was off.
    slot.kill();
    known["wall"] = json!(known["wall"].as_f64().unwrap() - 3600.0);
    known["at"] = json!(in_seconds(-3550));
    std::fs::write(&path, known.to_string()).unwrap();
    slot.run();
    slot.until_phase("over", 20);
}
