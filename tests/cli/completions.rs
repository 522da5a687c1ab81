//! Completions name every command, and their shells can read them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::TestEnv;

#[test]
fn completions_name_every_command_and_can_be_read() {
    let env = TestEnv::new();
    for (shell, only_read) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let text = env.run(&["completions", shell]).exits(0).stdout;
        for command in gpucl::cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(text.contains(command.get_name()), "{shell} does not complete {}", command.get_name());
        }
        let child = Command::new(shell).arg(only_read).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            println!("{shell} is not on this machine: its completions were not read");
            continue;
        };
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
    let _ = env.run(&["completions", "tcl"]).exits(2).says("invalid value 'tcl'");
    assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 0, "`completions` made something");
}
