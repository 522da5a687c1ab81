//! Foreign text is shown escaped: no control character of an API, a host or a file reaches the terminal.

use std::process::Command;

use gpucl::sandbox::lambda::{Config, Rule};

use crate::lambda::site::Site;
use crate::support::{Outcome, TestEnv};

/// Sets the clipboard of the terminal, if the terminal obeys.
const CLIPBOARD: &str = "\u{1b}]52;c;Y3VybCBldmlsfHNo\u{7}";

/// What a terminal could obey, or what turns the order of letters around.
fn controls(text: &str) -> Vec<char> {
    let is_control = |letter: &char| match letter {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        letter => letter.is_control(),
    };
    text.chars().filter(is_control).collect()
}

#[track_caller]
fn shows_no_controls(outcome: &Outcome) {
    assert!(controls(&outcome.stdout).is_empty(), "stdout: {:?}", outcome.stdout);
    assert!(controls(&outcome.stderr).is_empty(), "stderr: {:?}", outcome.stderr);
}

/// A site whose instance type describes its GPU like this.
fn site_of(gpu: &str) -> Site {
    let mut config = Config::prompt();
    config.types.iter_mut().for_each(|kind| kind.gpu = format!("{} {gpu}", kind.gpu));
    Site::with(config)
}

#[test]
fn an_api_writes_nothing_to_the_terminal() {
    let site = site_of(&format!("{CLIPBOARD}\u{9b}2J\u{202e}\u{7f}"));
    let table = site.run(&["offers"]).exits(0).prints(r"\x1b]52;c;Y3VybCBldmlsfHNo\x07\x9b2J\u{202e}\x7f");
    shows_no_controls(&table);
    // JSON has the exact text, with these characters escaped.
    let lines = site.run(&["offers", "--output", "json"]).exits(0);
    shows_no_controls(&lines);
    let model = lines.json()[0]["gpus"][0]["model"].as_str().unwrap().to_owned();
    assert!(model.ends_with("\u{9b}2J\u{202e}\u{7f}") && model.contains(CLIPBOARD), "{model:?}");
    let body = r#"{"error":{"code":"global/account-inactive","message":"no\u009b2J\u001b[2J","suggestion":"s\u202e"}}"#;
    site.faults(vec![Rule::new("GET", "instance-types$", "status:403").with_body(body).times(9)]);
    let failed = site.run(&["offers"]).says(r"\x1b[2J");
    shows_no_controls(&failed);
    let failed = site.run(&["offers", "--output", "json"]);
    shows_no_controls(&failed);
}

#[test]
fn a_spec_writes_nothing_to_the_terminal() {
    let env = TestEnv::new();
    env.write("cluster.yaml", "name: \"de\\u009b2Jmo\\e]0;owned\\a\"\nprovider: local\n");
    shows_no_controls(&env.run(&["plan"]).exits(2).says("is not a cluster name"));
    env.write("cluster.yaml", "name: demo\nprov\u{202e}ider: local\n");
    shows_no_controls(&env.run(&["plan"]).exits(2).says(r"\u{202e}"));
    env.write("cluster.yaml", "name: demo\nprovider: local\nnote\u{7f}: x\n");
    shows_no_controls(&env.run(&["plan", "--output", "json"]).exits(2));
}

/// Runs the program on a terminal; returns what came to it.
fn on_terminal(env: &TestEnv, arguments: &[&str]) -> String {
    // A terminal that this machine has for sure is one of Python's.
    const SPAWN: &str = "import os,pty,sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let program = env.command(arguments);
    let mut command = Command::new("python3");
    command.args(["-c", SPAWN]).arg(program.get_program()).args(arguments).current_dir(env.work()).env_clear();
    for (name, value) in program.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let output = command.env("TERM", "xterm").stdin(std::process::Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n")
}

#[test]
fn a_host_writes_to_the_terminal_only_what_was_asked_for() {
    let env = TestEnv::new();
    env.write("cluster.yaml", "name: demo\nprovider: local\nray: {workers: {count: 1, cpus: 1}}\n");
    env.own(
        "playbooks/ray-native.yaml",
        "name: ray-native\nsummary: hostile\nvariables: {ray_version: , environments: , disk_needed_mib: '1'}\nsteps:\n  - name: hostile\n    run: |\n      \
         printf 'one \\033]52;c;Y3VybCBldmlsfHNo\\007 two\\n'\n      sleep 1\n      exit 3\n",
    );
    let up = env.run(&["up"]).exits(1).says(r"host-0| one \x1b]52;c;Y3VybCBldmlsfHNo\x07 two");
    shows_no_controls(&up);
    let moving = on_terminal(&env, &["up"]);
    assert!(moving.contains(r"\x1b]52;c;"), "{moving:?}");
    assert!(!moving.contains("\u{1b}]52"), "{moving:?}");
    // Output of a user's command on a host goes unchanged to a file or a program, and to a terminal on request.
    let exec = ["exec", "--", "printf", "a\u{1b}]52;c;x\u{7}b\u{1b}[31mred\u{1b}[0m\n"];
    env.run(&exec).exits(0).is("a\u{1b}]52;c;x\u{7}b\u{1b}[31mred\u{1b}[0m\n");
    assert_eq!(on_terminal(&env, &exec), "a\\x1b]52;c;x\\x07bred\n");
    let raw = [&["exec", "--raw"], &exec[1..]].concat();
    assert_eq!(on_terminal(&env, &raw), "a\u{1b}]52;c;x\u{7}b\u{1b}[31mred\u{1b}[0m\n");
    env.run(&["down", "--yes"]).exits(0);
}
