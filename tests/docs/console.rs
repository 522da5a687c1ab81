//! The console blocks of the README, run as they stand there, in one environment.

use std::cell::RefCell;

use gpucl::sandbox::chameleon::{Config, Sandbox, User};

use super::read;
use crate::support::blocks::{answers, bring_program, matches, shown};
use crate::support::{TestEnv, interrupt, tagged_processes, turn, until, until_or};

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
            // It compiles nothing that the first command has not, and writes outside of this environment.
            "cargo install --path . --debug --locked" => {
                assert!(commands[0].command.starts_with("cargo run -- "), "another profile: {commands:?}");
                assert!(super::read("Cargo.toml").contains("default-run = \"gpucl\""));
            }
            command => {
                answers(&env, shown);
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
    for shown in &commands {
        answers(&env, shown);
    }
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
    for shown in rest {
        answers(&env, shown);
    }
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

/// Nodes are found by a tag in their environment: it must be there in all that a node starts, or `down` could not see
/// it.
fn every_process_carries_the_tag(env: &TestEnv) {
    // Seen between its fork and its exec, a process has a command before it has an environment.
    let lost = RefCell::new(untagged_children(env));
    let none_is_lost = || {
        let mut lost = lost.borrow_mut();
        if !lost.is_empty() {
            let still = untagged_children(env);
            lost.retain(|(pid, _)| still.iter().any(|(still, _)| still == pid));
        }
        lost.is_empty().then_some(())
    };
    until_or("processes of nodes have a tag", 10, none_is_lost, || format!("{:#?}", lost.borrow()));
}

/// Processes without a tag whose parents have one, with their commands.
fn untagged_children(env: &TestEnv) -> Vec<(u32, String)> {
    let tagged: Vec<u32> = tagged_processes(env).into_iter().map(|(pid, _)| pid).collect();
    assert!(tagged.len() > 10, "{tagged:?}");
    let mut untagged = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
        let parent: u32 = fields[1].parse().unwrap();
        if fields[0] == "Z" || !tagged.contains(&parent) || tagged.contains(&pid) {
            continue;
        }
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else { continue };
        let command = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " ");
        if !String::from_utf8_lossy(&environ).contains("GPUCL_TAG=") && !command.is_empty() {
            untagged.push((pid, command));
        }
    }
    untagged
}
