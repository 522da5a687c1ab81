//! The story of `docs/guides/serve.md`, block by block as it stands there: a model is trained, registered, served, and
//! rolled back.

use std::time::Instant;

use serde_json::Value;

use crate::support::blocks::{answers, bring_program_alone, shown};
use crate::support::{TestEnv, a_run_is_seen_in_a_browser, tagged_processes, turn};

const GUIDE: &str = include_str!("../../docs/guides/serve.md");

#[test]
#[ignore = "by hand: just serve-story"]
fn a_model_is_trained_registered_served_and_rolled_back_as_the_guide_says() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    bring_program_alone(&env);
    bring_example(&env);
    let [first, second, _] = run_story(&env, |_| {});
    assert_ne!(first["predictions"], second["predictions"]);
    assert_eq!(tagged_processes(&env), []);
}

/// The files of the story's example, in the working folder.
pub(crate) fn bring_example(env: &TestEnv) {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/serve")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        env.write(&name, &std::fs::read_to_string(entry.path()).unwrap());
    }
}

/// Runs the story's commands; returns what versions 1, 2, and 1 again predicted. `at_the_end` is before the cluster goes.
pub(crate) fn run_story(env: &TestEnv, at_the_end: impl FnOnce(&TestEnv)) -> [Value; 3] {
    let story = GUIDE.split("\n## ").find(|part| part.starts_with("Train, register, serve, roll back\n")).unwrap();
    let commands = shown(story);
    assert!(commands.len() >= 14, "{commands:?}");
    assert_eq!(commands[0].command, "cd examples/serve");
    let (begin, mut at_the_end) = (Instant::now(), Some(at_the_end));
    let mut predictions = Vec::new();
    for shown in &commands[1..] {
        if shown.command.starts_with("gpucl down") {
            at_the_end.take().unwrap()(env);
        }
        let started = Instant::now();
        let printed = answers(env, shown);
        println!("story {:5.1} s  {}", started.elapsed().as_secs_f64(), shown.command);
        if shown.command.ends_with("python train.py") {
            let started = Instant::now();
            is_on_the_page(env, &printed);
            println!("story {:5.1} s  its run in MLflow's page, in a browser", started.elapsed().as_secs_f64());
        }
        let answer = printed.lines().find(|line| line.starts_with("{\"model\":"));
        predictions.extend(answer.map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    println!("story {:5.1} s  all of it", begin.elapsed().as_secs_f64());
    assert!(at_the_end.is_none());
    // The second is computed from the model's file.
    let [served, computed, second, back] = predictions.try_into().unwrap();
    assert_eq!(served, computed);
    assert_eq!(served, back);
    [served, second, back]
}

/// The run that this job says it has made, its accuracy, and its model.
fn is_on_the_page(env: &TestEnv, printed: &str) {
    let run = printed.split("/#/experiments/1/runs/").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let accuracy =
        printed.split("version 1: accuracy ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    // The page rounds, and has no zeros at the end.
    let accuracy = accuracy.trim_end_matches('0');
    a_run_is_seen_in_a_browser(env, "food", run, ["accuracy", accuracy], ["model/model.json", "dessert"]);
}
