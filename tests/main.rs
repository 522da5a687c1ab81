//! The one test binary. `cargo test` runs what needs Rust, python3 and OpenSSH only; what needs a testbed is marked
//! `#[ignore = "testbed"]` and run by `.ci/run`, and what takes too long for that names its recipe.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails where it stands")]
#![expect(clippy::print_stdout, reason = "tests on hosts print their figures")]
#![expect(clippy::disallowed_methods, reason = "tests look at files and at the environment as they are")]

mod architecture;
mod chameleon;
mod cli;
mod conformance;
mod costs;
mod crash;
mod data;
mod docs;
mod end;
mod hosts;
mod jobs;
mod kube;
mod lab;
mod lambda;
mod native;
mod neighbour;
mod programs;
mod reaper;
mod scenario;
mod slurm;
mod spec;
mod store;
mod support;
mod template_provider;
mod templates;
mod trouble;

/// A test file that nobody names here would never run.
#[test]
fn no_test_file_is_forgotten() {
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // The counts of tests are no module.
        if name == "tiers.txt" {
            continue;
        }
        let module = name.trim_end_matches(".rs");
        assert!(module == "main" || main.contains(&format!("mod {module};")), "tests/{name} is in no `mod` line");
    }
}
