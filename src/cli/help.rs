//! What `--help` shows beyond the doc comments: the commands in groups, and an example of each.

use std::fmt::Write as _;

use clap::Command;

/// The commands as `gpucl --help` lists them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Clusters", &["up", "run", "plan", "stop", "down", "status", "top", "verify", "keep", "save", "list"]),
    (
        "Work on a cluster",
        &[
            "job",
            "secret",
            "worker",
            "drill",
            "logs",
            "exec",
            "ssh",
            "cp",
            "sync",
            "store",
            "serve",
            "mlflow",
            "port-forward",
            "dashboard",
            "env",
        ],
    ),
    ("Capacity and leases", &["offers", "calendar", "lease", "gc"]),
    ("Accounts and this machine", &["login", "logout", "provider", "doctor", "owner", "sandbox"]),
    ("Files and shells", &["example", "render", "template", "schema", "completions", "man"]),
];

/// An example of each command, without the leading `gpucl`.
const EXAMPLES: &[&str] = &[
    "up cluster.yaml",
    "run cluster.yaml --working-dir . -- python train.py",
    "plan cluster.yaml",
    "stop -c demo",
    "down -c demo",
    "status -c demo",
    "top --watch",
    "verify -c demo",
    "keep 2h",
    "save -c demo",
    "list --output json",
    "job submit --working-dir . -- python train.py",
    "job list -c demo",
    "job status train-1",
    "job logs train-1 --follow",
    "job stop train-1",
    "worker list -c demo",
    "worker stop worker-0",
    "worker start worker-0",
    "worker kill worker-0",
    "drill kill-worker -c demo",
    "secret set HF_TOKEN",
    "secret list",
    "secret rm HF_TOKEN",
    "logs worker-0 --follow",
    "exec --host worker-0 -- nvidia-smi",
    "ssh worker-0",
    "cp train.csv head:",
    "sync data head:data --delete",
    "store ls s3://ray/",
    "store get s3://ray/runs/model.pt .",
    "store put model.pt s3://ray/runs/",
    "store sync data s3://ray/data",
    "store rm --recursive s3://ray/runs/",
    "serve deploy app:food",
    "serve status",
    "serve logs",
    "serve rollback",
    "serve delete food",
    "serve url",
    "mlflow export runs",
    "mlflow import runs -c next",
    "port-forward head:8000",
    "dashboard -c demo",
    "env -c demo",
    "render cluster.yaml --to rendered",
    "offers --gpu h100 --gpus 8",
    "calendar --days 14",
    "lease --node liqid01 --hours 3",
    "lease list",
    "lease show demo",
    "lease extend demo --hours 1",
    "lease delete demo",
    "lease wait demo",
    "gc",
    "login lambda",
    "logout lambda",
    "provider list",
    "provider check local",
    "doctor",
    "owner show",
    "owner move",
    "owner new",
    "sandbox chameleon",
    "sandbox lambda",
    "example list",
    "example copy serve",
    "template list",
    "template eject ray-compose",
    "schema",
    "completions bash",
    "man --to ~/.local/share/man/man1",
];

/// Adds the groups and the examples to the command tree.
pub(super) fn complete(command: Command) -> Command {
    let template = format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}", groups(&command));
    let examples: Vec<(String, &str)> = EXAMPLES.iter().map(|example| (path_of(example, &command), *example)).collect();
    with_examples(command, "", &examples).help_template(template)
}

fn groups(command: &Command) -> String {
    let width = command.get_subcommands().map(|below| below.get_name().len()).max().unwrap_or_default();
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for below in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:width$}  {about}", below.get_name());
        }
        text.push('\n');
    }
    text
}

/// The command that an example runs: `job submit`.
fn path_of(example: &str, root: &Command) -> String {
    let mut at = root;
    let mut path = Vec::new();
    for word in example.split(' ') {
        let Some(below) = at.find_subcommand(word) else { break };
        path.push(word);
        at = below;
    }
    path.join(" ")
}

/// Adds the examples to every command below this one; `before` is the path so far, with a space at its end.
fn with_examples(mut command: Command, before: &str, examples: &[(String, &str)]) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{before}{name}");
        let own =
            examples.iter().find(|(of, _)| *of == path).map(|(_, example)| format!("Example:\n  gpucl {example}"));
        command = command.mut_subcommand(name, |below| {
            with_examples(below, &format!("{path} "), examples).after_help(own.unwrap_or_default())
        });
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(command: &Command, before: &str, found: &mut Vec<(String, bool)>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let path = format!("{before}{}", below.get_name());
            found.push((path.clone(), below.is_subcommand_required_set()));
            commands(below, &format!("{path} "), found);
        }
    }

    #[test]
    fn every_command_is_in_one_group_and_has_an_example_that_parses() {
        let command = crate::cli::command();
        let mut all = Vec::new();
        commands(&command, "", &mut all);
        let mut top: Vec<&str> = all.iter().map(|(path, _)| path.as_str()).filter(|path| !path.contains(' ')).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        top.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, top);
        let of: Vec<String> = EXAMPLES.iter().map(|example| path_of(example, &command)).collect();
        for (path, needs_subcommand) in &all {
            assert_eq!(
                of.iter().filter(|of| *of == path).count(),
                usize::from(!needs_subcommand),
                "examples of {path}"
            );
        }
        for example in EXAMPLES {
            let words = std::iter::once("gpucl").chain(example.split(' '));
            command.clone().try_get_matches_from(words).unwrap_or_else(|error| panic!("{example}: {error}"));
        }
    }
}
