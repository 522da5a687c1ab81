//! `docs/reference/` agrees with the program: every command's help, and every exit code.

use std::fmt::Write as _;

use gpucl::cli::exit_code;

use crate::support::TestEnv;

const INTRODUCTION: &str = "\
# The commands

What `gpucl COMMAND --help` prints. This file is generated; after a change of the command line write it anew with

    GPUCL_WRITE=1 cargo test --test main cli::reference
";

/// All commands that a person sees, the outermost first: `[\"job\", \"submit\"]`.
fn commands(command: &clap::Command, path: &[String], found: &mut Vec<Vec<String>>) {
    found.push(path.to_vec());
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let path: Vec<String> = path.iter().cloned().chain([below.get_name().to_owned()]).collect();
        commands(below, &path, found);
    }
}

#[test]
fn the_reference_of_commands_is_what_help_prints() {
    let env = TestEnv::new();
    let mut all = Vec::new();
    commands(&gpucl::cli::command(), &[], &mut all);
    assert!(all.len() > 20, "{all:?}");
    let mut text = INTRODUCTION.to_owned();
    for path in &all {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = env.run(&arguments).exits(0).stdout;
        let name: String = path.iter().map(|word| format!(" {word}")).collect();
        assert!(help.contains(&format!("Usage: gpucl{name}")), "{help}");
        let help: String = help.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        let _ = write!(text, "\n## gpucl{name}\n\n```text\n{}\n```\n", help.trim_end());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/cli.md");
    if std::env::var_os("GPUCL_WRITE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == text,
        "docs/reference/cli.md is not what `--help` prints; its first lines say how to write it anew"
    );
    assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 0, "`--help` made something");
}

/// Every flag has a help text.
#[test]
fn every_command_and_every_argument_has_a_help_text() {
    fn look(command: &clap::Command, riddles: &mut Vec<String>) {
        let name = command.get_name();
        if command.get_about().is_none() {
            riddles.push(name.to_owned());
        }
        let own = command.get_arguments().filter(|argument| argument.get_help().is_none());
        riddles.extend(own.map(|argument| format!("{name} {}", argument.get_id())));
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            look(below, riddles);
        }
    }
    let mut command = gpucl::cli::command();
    command.build();
    let mut riddles = Vec::new();
    look(&command, &mut riddles);
    assert_eq!(riddles, Vec::<String>::new());
}

#[test]
fn version_is_the_packages() {
    let env = TestEnv::new();
    env.run(&["--version"]).exits(0).is(&format!("gpucl {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 0, "`--version` made something");
}

#[test]
fn the_exit_codes_are_those_that_are_documented() {
    let codes = [
        ("DONE", exit_code::DONE),
        ("FAILED", exit_code::FAILED),
        ("USAGE", exit_code::USAGE),
        ("NOT_READY", exit_code::NOT_READY),
        ("LOCKED", exit_code::LOCKED),
        ("LEFT_BEHIND", exit_code::LEFT_BEHIND),
        ("NOT_FOUND", exit_code::NOT_FOUND),
        ("TIMEOUT", exit_code::TIMEOUT),
        ("NO_CAPACITY", exit_code::NO_CAPACITY),
        ("INTERRUPTED", exit_code::INTERRUPTED),
    ];
    let source = include_str!("../../src/cli/exit_code.rs");
    assert_eq!(source.matches("pub const ").count(), codes.len(), "a code is not in this list");
    let document = include_str!("../../docs/reference/exit-codes.md");
    let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
    assert_eq!(rows.len(), codes.len());
    for ((name, code), row) in codes.iter().zip(rows) {
        assert!(row.starts_with(&format!("| {code} | `{name}` | ")), "{row}");
    }
}
