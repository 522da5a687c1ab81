//! Blocks of commands in documents, run as they stand there: what stands below a command is printed by it.

use std::path::Path;
use std::process::Command;

use super::TestEnv;

/// A command of a block, and the lines that are shown below it.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) command: String,
    pub(crate) lines: Vec<String>,
}

/// The commands of all `console` blocks, in order.
pub(crate) fn shown(text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match line.strip_prefix("$ ") {
                Some(command) => found.push(Shown { command: command.to_owned(), lines: Vec::new() }),
                None => found.last_mut().unwrap().lines.push(line.to_owned()),
            },
        }
    }
    found
}

/// The words of a line are those of the pattern, where `<word>` stands for anything that is not empty.
pub(crate) fn matches(pattern: &str, line: &str) -> bool {
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (joined(pattern), joined(line));
    let mut fixed = Vec::new();
    let mut rest = pattern.as_str();
    while let Some((before, after)) = rest.split_once('<')
        && let Some((_, after)) = after.split_once('>')
    {
        fixed.push(before);
        rest = after;
    }
    fixed.push(rest);
    let Some(mut left) = line.strip_prefix(fixed[0]) else { return false };
    for (number, text) in fixed.iter().enumerate().skip(1) {
        // Something stands in the place of the placeholder.
        let Some(first) = left.chars().next() else { return false };
        let last = number + 1 == fixed.len();
        let found = if last {
            (left.len() >= text.len() + first.len_utf8() && left.ends_with(text)).then(|| left.len() - text.len())
        } else {
            left[first.len_utf8()..].find(text).map(|at| at + first.len_utf8())
        };
        let Some(at) = found else { return false };
        left = &left[at + text.len()..];
    }
    left.is_empty()
}

#[test]
fn placeholders_stand_for_something_and_the_rest_for_itself() {
    assert!(matches("ready: 11 checks passed (<time>)", "ready: 11 checks passed (17.9s)"));
    assert!(matches(" head  runs (<pid>)  <time> alive", " head      runs (10113)  1m 22s  alive"));
    assert!(!matches("ready: 11 checks passed (<time>)", "ready: 10 checks passed (17.9s)"));
    assert!(!matches("ready (<time>)", "ready ()"));
    assert!(!matches("ready", "ready, nearly"));
    assert!(!matches("job <id> submitted", "job submitted"));
}

/// Runs a command, which must print the lines that are shown below it; returns what it printed.
pub(crate) fn answers(env: &TestEnv, Shown { command, lines }: &Shown) -> String {
    let printed = sh(env, &command.replace("cargo run --", "gpucl"));
    let mut left: Vec<&str> = printed.lines().collect();
    for shown in lines.iter().filter(|line| *line != "...") {
        let at = left.iter().position(|line| matches(shown, line));
        let at = at.unwrap_or_else(|| panic!("`{command}` did not print\n{shown}\nbut\n{printed}"));
        left.remove(at);
    }
    printed
}

/// The program by its name, and the examples.
pub(crate) fn bring_program(env: &TestEnv) {
    bring_program_alone(env);
    bring_examples(env, "examples");
}

/// The program by its name.
pub(crate) fn bring_program_alone(env: &TestEnv) {
    let programs = env.root().join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gpucl"), programs.join("gpucl")).unwrap();
}

/// Runs a command line through the shell; returns all output, and panics if it fails.
fn sh(env: &TestEnv, command: &str) -> String {
    let program = env.command(&[]);
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1\n{command}")]).env_clear().current_dir(env.work());
    for (name, value) in program.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    let output = shell
        .env("PATH", format!("{}:{path}", env.root().join("bin").display()))
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "`{command}` ended with {}:\n{printed}", output.status);
    printed
}

/// The examples of the project, in the working folder.
fn bring_examples(env: &TestEnv, folder: &str) {
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap().flatten() {
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            bring_examples(env, &name);
        } else {
            env.write(&name, &std::fs::read_to_string(entry.path()).unwrap());
        }
    }
}
