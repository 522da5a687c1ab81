//! A training goes on on a second cluster after the end of the first: the programs of `examples/slot`.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::support::{Outcome, TestEnv, tagged_processes, turn};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/slot");

/// The specs of the example, where the first cluster ends sooner than there.
fn bring_specs(env: &TestEnv, deadline: &str, warning: &str) {
    for name in ["a.yaml", "b.yaml"] {
        let spec = std::fs::read_to_string(format!("{EXAMPLE}/{name}")).unwrap();
        let sooner = spec.replace("deadline: 6m", &format!("deadline: {deadline}"));
        let sooner = sooner.replace("warning: 2m", &format!("warning: {warning}"));
        assert_eq!(sooner == spec, name == "b.yaml", "{name} has other times");
        env.write(name, &sooner);
        env.accept(name);
    }
}

/// `gpucl run`, with the example's folder as the working folder.
fn run(env: &TestEnv, spec: &str, command: &str) -> Outcome {
    let begin = Instant::now();
    let command: Vec<&str> = command.split(' ').collect();
    let outcome = env.run(&[&["run", spec, "--working-dir", EXAMPLE, "--"], command.as_slice()].concat());
    println!("slot {:5.1} s  gpucl run {spec} -- {}", begin.elapsed().as_secs_f64(), command.join(" "));
    outcome
}

/// The steps that a job has done.
fn steps(outcome: &Outcome) -> BTreeSet<u64> {
    let numbers = outcome.stdout.lines().filter_map(|line| {
        line.rsplit_once("step ")
            .filter(|(before, _)| before.is_empty() || before.ends_with("\u{1b}[0m ") || before.ends_with(") "))
    });
    numbers.filter_map(|(_, number)| number.parse().ok()).collect()
}

/// How many steps were done on both, and what the second went on after.
fn done_twice(first: &Outcome, second: &Outcome, all: u64) -> usize {
    let (first, second) = (steps(first), steps(second));
    let (last, next) = (*first.last().unwrap(), *second.first().unwrap());
    let twice = first.intersection(&second).count();
    println!(
        "slot: the first cluster did steps 0 to {last}, the second {next} to {}; steps done twice: {twice}",
        all - 1
    );
    assert_eq!(first.union(&second).count() as u64, all, "a step is missing: {first:?} {second:?}");
    assert_eq!(second.last(), Some(&(all - 1)));
    assert!(last + 1 < all, "the end came too late for this test: all {all} steps were done");
    twice
}

#[test]
#[ignore = "testbed"]
fn a_training_goes_on_on_a_second_cluster_after_the_end_of_the_first() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    bring_specs(&env, "80s", "45s");
    let storage = env.home().join("gpucl-slot/runs");
    let command = format!("python train.py --storage {} --steps 150 --seconds 0.5 --every 40", storage.display());

    let first = run(&env, "a.yaml", &command).exits(0).prints("ended at step ").says("succeeded after");
    println!("{}", first.stderr);
    let first = first.says("ended by itself while the cluster was about to end");
    let first = first.says("saved results to ~/gpucl-slot/results: 1 file").says("verified");
    assert_eq!(tagged_processes(&env), []);
    let results = std::fs::read_to_string(env.home().join("gpucl-slot/results/slot.json")).unwrap();
    assert!(results.contains("\"step\""), "{results}");

    let second = run(&env, "b.yaml", &command).exits(0).prints("goes on after step ").prints("trained to step 149");
    assert!(done_twice(&first, &second, 150) <= 1);
    assert_eq!(tagged_processes(&env), []);
}
