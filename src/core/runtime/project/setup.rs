//! The files of a spec's `setup`, the same in an environment and in an image.

use std::fmt::Write as _;

use crate::render::quote;
use crate::spec::SetupSpec;

/// The most letters of a command in messages.
const TITLE: usize = 120;

/// A failure of a command of `setup`, as a known error: which lines show it, what it says, and what to do.
pub(in crate::runtime) const COMMAND_FAILED: [&str; 3] = [
    "setup: command .* failed with",
    "{line}; it last printed: {before}",
    "nothing that runs was changed; correct `setup` in the spec and run the same command again. Each command is run by `sh`: \
     one that needs bash (`[[`, `source`, arrays) is `bash -c '…'`",
];

/// The requirements file, as pip and uv read it; empty without packages.
pub(in crate::runtime) fn requirements(setup: &SetupSpec) -> String {
    setup.packages().iter().map(|line| format!("{line}\n")).collect()
}

/// The shell program that runs the commands in order, and names the one that fails.
pub(in crate::runtime) fn commands(setup: &SetupSpec) -> String {
    let mut text = String::from(
        "# The commands of `setup`, in order.\n\
         run() {\n    \
             echo \"setup: command $1 of $2: $3\"\n    \
             sh -ec \"$4\" </dev/null && return 0\n    \
             echo \"setup: command $1 of $2 failed with exit status $?: $3\"\n    \
             exit 1\n\
         }\n",
    );
    let count = setup.commands.len();
    for (number, command) in (1_usize..).zip(&setup.commands) {
        let _ = writeln!(text, "run {number} {count} {} {}", quote(&title(command)), quote(command));
    }
    text
}

/// The first line of a command, shortened.
fn title(command: &str) -> String {
    let command = command.trim();
    let line = command.lines().next().unwrap_or_default();
    let short: String = line.chars().take(TITLE).collect();
    if short.len() < command.len() { format!("{short} …") } else { short }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn of(commands: &[&str]) -> String {
        let commands = commands.iter().map(|text| (*text).to_owned()).collect();
        super::commands(&SetupSpec { commands, ..SetupSpec::default() })
    }

    fn run(commands: &[&str]) -> (bool, String) {
        let output = Command::new("sh").args(["-c", &of(commands)]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn commands_run_in_order_and_the_failing_one_is_named() {
        assert_eq!(run(&[]), (true, String::new()));
        let said = "setup: command 1 of 2: echo it's \"one\"\nits one\nsetup: command 2 of 2: false; echo never\n\
                    setup: command 2 of 2 failed with exit status 1: false; echo never\n";
        let two = ["echo it's \"one\"", "false; echo never"];
        assert!(!run(&two).0, "a quote that is not closed is a mistake of that command alone");
        let said_of_two = run(&["echo it\\'s \"one\"", "false; echo never"]);
        assert_eq!(said_of_two, (false, said.replace("its one", "it's one").replace("echo it's", "echo it\\'s")));
    }

    #[test]
    fn a_command_of_several_lines_is_named_by_its_first() {
        let (good, said) = run(&["cd /tmp\nexit 3\n", "echo never"]);
        assert!(!good);
        assert_eq!(
            said,
            "setup: command 1 of 2: cd /tmp …\nsetup: command 1 of 2 failed with exit status 3: cd /tmp …\n"
        );
    }
}
