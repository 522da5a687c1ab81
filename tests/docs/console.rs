//! The console blocks of the README, run as they stand there, in one environment.

use std::process::Command;

use gpucl::sandbox::chameleon::{Config, Sandbox, User};

use super::{read, root};
use crate::support::{TestEnv, interrupt, tagged_processes, turn, until};

/// A command of a block, and the lines that are shown below it.
#[derive(Debug)]
struct Shown {
    command: String,
    lines: Vec<String>,
}

/// The commands of all `console` blocks, in order.
fn shown(text: &str) -> Vec<Shown> {
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
fn matches(pattern: &str, line: &str) -> bool {
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

/// The part of the README that needs a site and no Ray.
const AT_A_SITE: &str = "## On Chameleon\n";

/// The part that needs a cloud, and hosts of it.
const AT_A_CLOUD: &str = "## On Lambda\n";

/// That part, and all the rest.
fn parts(text: &str, title: &str) -> (String, String) {
    let (before, after) = text.split_once(title).unwrap();
    let (part, rest) = after.split_once("\n## ").unwrap();
    (part.to_owned(), format!("{before}## {rest}"))
}

/// What stands below a command is printed by it: in any order, as much is done at the same time.
#[test]
fn the_readme_shows_what_happens() {
    let here = parts(&parts(&read("README.md"), AT_A_SITE).1, AT_A_CLOUD).1;
    let commands = shown(&here);
    assert!(commands.len() >= 8, "{commands:?}");
    assert!(!commands.iter().any(|shown| shown.command.contains("lambda")), "{commands:?}");

    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    bring_program(&env);

    for shown in &commands {
        match shown.command.as_str() {
            // It would run this very test. What runs it takes the README's first two commands as they stand.
            "cargo test" => {
                assert!(super::read(".ci/run").lines().any(|line| line == "phase test testbed/fresh/run"));
                assert!(super::read("testbed/fresh/run").contains("README.md | head -2)"));
            }
            // It builds what is built already, and writes outside of this environment.
            "cargo install --path ." => assert!(super::read("Cargo.toml").contains("default-run = \"gpucl\"")),
            command => {
                prints(&env, shown);
                if command.contains("-- up") {
                    every_process_carries_the_tag(&env);
                }
            }
        }
    }
    assert_eq!(tagged_processes(&env), []);
}

#[test]
fn the_readme_shows_what_happens_at_a_site() {
    let commands = shown(&parts(&read("README.md"), AT_A_SITE).0);
    assert!(commands.len() >= 6, "{commands:?}");

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let site = runtime.block_on(Sandbox::start(Config::default())).unwrap();
    let mut env = TestEnv::new();
    let credentials = site.credentials(User::Alice);
    for (name, value) in [
        ("OS_AUTH_TYPE", "v3applicationcredential".to_owned()),
        ("OS_AUTH_URL", site.auth_url()),
        ("OS_REGION_NAME", site.region()),
        ("OS_APPLICATION_CREDENTIAL_ID", credentials.id),
        ("OS_APPLICATION_CREDENTIAL_SECRET", credentials.secret),
    ] {
        env.set(name, &value);
    }
    bring_program(&env);
    commands.iter().for_each(|shown| prints(&env, shown));
    assert_eq!(site.snapshot().count(), 0, "something is left at the stand-in");
}

/// The first command serves, in a terminal of its own, and prints what is pasted into the other.
#[test]
#[ignore = "testbed"]
fn the_readme_shows_what_happens_on_a_stand_in_cloud() {
    let commands = shown(&parts(&read("README.md"), AT_A_CLOUD).0);
    assert!(commands.len() >= 8, "{commands:?}");
    let (first, rest) = commands.split_first().unwrap();
    assert_eq!(first.command, "gpucl sandbox lambda");

    let _turn = turn();
    let mut env = TestEnv::with_shared_ray();
    bring_program(&env);
    let said = env.root().join("sandbox.txt");
    let file = std::fs::File::create(&said).unwrap();
    let mut serving =
        Serving(env.command(&["sandbox", "lambda"]).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap());
    let printed = || std::fs::read_to_string(&said).unwrap();
    until("the sandbox serves", 60, || {
        assert!(serving.0.try_wait().unwrap().is_none(), "{}", printed());
        printed().contains("serving until Ctrl-C").then_some(())
    });
    let printed = printed();
    for line in first.lines.iter().filter(|line| *line != "...") {
        assert!(printed.lines().any(|printed| matches(line, printed)), "no line like {line} in\n{printed}");
    }
    let file = printed.lines().find_map(|line| line.strip_prefix(". '")?.strip_suffix('\'')).unwrap();
    let variables = std::fs::read_to_string(file).unwrap();
    for line in variables.lines().filter_map(|line| line.strip_prefix("export ")) {
        let (name, value) = line.split_once('=').unwrap();
        env.set(name, value.trim_matches('\''));
    }
    rest.iter().for_each(|shown| prints(&env, shown));
    assert_eq!(tagged_processes(&env), []);
    serving.end();
    let said = std::fs::read_to_string(&said).unwrap();
    assert!(said.contains("discarded 0 instances, 0 keys, 0 file systems, 0 rulesets"), "{said}");
    assert!(said.contains(" 0 violations"), "{said}");
}

/// A stand-in that serves; it ends with the test.
struct Serving(std::process::Child);

impl Serving {
    /// Ctrl-C, and its end.
    fn end(&mut self) {
        interrupt(&self.0);
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command, which must print the lines that are shown below it.
fn prints(env: &TestEnv, Shown { command, lines }: &Shown) {
    let printed = sh(env, &command.replace("cargo run --release --", "gpucl"));
    let mut left: Vec<&str> = printed.lines().collect();
    for shown in lines.iter().filter(|line| *line != "...") {
        let at = left.iter().position(|line| matches(shown, line));
        let at = at.unwrap_or_else(|| panic!("`{command}` did not print\n{shown}\nbut\n{printed}"));
        left.remove(at);
    }
}

/// The program by its name, and the examples.
fn bring_program(env: &TestEnv) {
    let programs = env.root().join("bin");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gpucl"), programs.join("gpucl")).unwrap();
    bring_examples(env, "examples");
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

/// Nodes are found by a tag in their environment: it must be there in all that a node starts, or `down` could not see
/// it.
fn every_process_carries_the_tag(env: &TestEnv) {
    let tagged: Vec<u32> = tagged_processes(env).into_iter().map(|(pid, _)| pid).collect();
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
        if fields[0] != "Z" {
            parents.push((pid, fields[1].parse::<u32>().unwrap()));
        }
    }
    let untagged = || parents.iter().filter(|(pid, parent)| tagged.contains(parent) && !tagged.contains(pid));
    // A process between its fork and its exec, or one that has just ended, is not meant.
    let lost: Vec<String> = untagged()
        .filter_map(|(pid, _)| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
            let bare = !String::from_utf8_lossy(&environ).contains("GPUCL_TAG=") && !command.is_empty();
            bare.then(|| format!("{pid} {command}"))
        })
        .collect();
    assert!(tagged.len() > 10, "{tagged:?}");
    assert!(lost.is_empty(), "processes of nodes without a tag: {lost:#?}");
}

/// The examples of the project, in the working folder.
fn bring_examples(env: &TestEnv, folder: &str) {
    for entry in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            bring_examples(env, &name);
        } else {
            env.write(&name, &read(&name));
        }
    }
}
