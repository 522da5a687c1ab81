//! Which tests run where is what their `#[ignore]` says: nothing where `cargo test` runs them, `testbed` where `.ci/run`
//! does, and `by hand: just RECIPE` for the others.

use std::collections::BTreeMap;
use std::process::Command;

use super::{none, read, rust};

/// The ignored tests of this binary, each with its reason.
fn ignored() -> Vec<(String, String)> {
    let run = |arguments: &[&str]| {
        let output = Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = run(&["--list", "--ignored", "--format", "terse"]);
    let mut arguments = vec!["--test-threads=1", "--exact"];
    arguments.extend(listed.lines().filter_map(|line| line.strip_suffix(": test")));
    // Without `--ignored` it runs none of them, and says why.
    let said = run(&arguments);
    let reason = |line: &str| {
        let (name, reason) = line.strip_prefix("test ")?.split_once(" ... ignored, ")?;
        Some((name.to_owned(), reason.to_owned()))
    };
    let found: Vec<_> = said.lines().filter_map(reason).collect();
    assert_eq!(found.len(), arguments.len() - 2, "{said}");
    found
}

/// What a recipe of the justfile does when it is called with these words after its name.
fn recipe(justfile: &str, call: &str) -> Option<String> {
    let (name, given) = call.split_once(' ').unwrap_or((call, ""));
    let is_head = |line: &&str| line.split_once(':').is_some_and(|(head, _)| head.split(' ').next() == Some(name));
    let mut lines = justfile.lines().skip_while(|line| !is_head(line));
    lines.next()?;
    let body = lines.take_while(|line| line.starts_with(' ')).map(|line| line.trim().trim_end_matches('\\'));
    let body = body.collect::<Vec<_>>().join(" ");
    let parts = body.split("{{").map(|part| part.split_once("}}").map_or(part, |(_, rest)| rest));
    Some(parts.collect::<Vec<_>>().join(given))
}

/// Whether `cargo test` in this recipe runs the ignored test of this name.
fn reaches(recipe: &str, name: &str) -> bool {
    let Some((_, words)) = recipe.rsplit_once("cargo test") else { return false };
    let mut words = words.split_whitespace();
    let (mut wanted, mut skipped, mut runs_ignored) = (Vec::new(), Vec::new(), false);
    while let Some(word) = words.next() {
        match word {
            "--skip" => skipped.extend(words.next()),
            "--test" | "--profile" => drop(words.next()),
            "--ignored" | "--include-ignored" => runs_ignored = true,
            _ if word.starts_with('-') => {}
            _ => wanted.push(word),
        }
    }
    let is_in = |word: &&str| name.contains(*word);
    runs_ignored && (wanted.is_empty() || wanted.iter().any(is_in)) && !skipped.iter().any(is_in)
}

/// How many tests of the other crates need a testbed.
fn of_other_crates() -> usize {
    let all: String = rust(&["src", "providers", "sandbox", "fuzz"]).iter().map(|path| read(path)).collect();
    let (of_testbeds, ignored) = (all.matches("#[ignore = \"testbed\"]").count(), all.matches("#[ignore").count());
    assert_eq!(of_testbeds, ignored, "what a recipe runs by hand is in tests/");
    of_testbeds
}

#[test]
fn every_test_by_hand_is_reached_by_the_recipe_that_it_names() {
    let justfile = read("justfile");
    let mut lost = Vec::new();
    for (name, reason) in ignored() {
        let call = reason.strip_prefix("by hand: just ");
        let is_reached = call.and_then(|call| recipe(&justfile, call)).is_some_and(|recipe| reaches(&recipe, &name));
        if reason != "testbed" && !is_reached {
            lost.push(format!("{name}: {reason}"));
        }
    }
    none(&lost, "no recipe of the justfile runs these as they say");
}

#[test]
fn recipes_are_read_as_just_reads_them() {
    let justfile = "one filter: up\n    up\n    A=b cargo test --test main x::{{ filter }} -- --ignored --skip x::y::z\n\n\
                    two:\n    cargo test x -- --nocapture\n";
    let one = recipe(justfile, "one y").unwrap();
    assert!(reaches(&one, "x::y") && reaches(&one, "a::x::yes"), "{one}");
    assert!(!reaches(&one, "x::y::z") && !reaches(&one, "x::a") && !reaches(&one, "main"), "{one}");
    assert!(reaches(&recipe(justfile, "one").unwrap(), "x::a"));
    assert!(!reaches(&recipe(justfile, "two").unwrap(), "x"), "it runs no ignored test");
    assert_eq!(recipe(justfile, "three"), None);
}

/// `.ci/run` compares the same file with what it has run.
#[test]
fn no_tier_shrinks_unnoticed() {
    let mut counts = BTreeMap::from([("testbed".to_owned(), of_other_crates())]);
    for (_, reason) in ignored() {
        *counts.entry(reason).or_insert(0_usize) += 1;
    }
    let line = |line: &str| line.trim().split_once(' ').map(|(count, tier)| (tier.to_owned(), count.parse().unwrap()));
    let text = read("tests/tiers.txt");
    let written: BTreeMap<String, usize> =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect();
    let ignored = |tiers: BTreeMap<String, usize>| {
        tiers.into_iter().filter(|(tier, _)| tier != "cargo test").map(|(tier, count)| format!("{count} {tier}"))
    };
    let (there, written): (Vec<_>, Vec<_>) = (ignored(counts).collect(), ignored(written).collect());
    assert_eq!(there, written, "tests/tiers.txt says otherwise; if it is meant: testbed/tiers write");
}
