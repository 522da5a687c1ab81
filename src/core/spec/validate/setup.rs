//! Semantic validation of `setup`.

use crate::ray::{is_editable, is_path};
use crate::spec::Spec;
use crate::spec::place::{Problem, item, join};

/// The options that a line of requirements may begin with. Others read files of this machine, or change what is
/// installed where.
const OPTIONS: &[&str] = &[
    "--extra-index-url",
    "--find-links",
    "--index-url",
    "--no-binary",
    "--only-binary",
    "--pre",
    "--prefer-binary",
    "--require-hashes",
    "--trusted-host",
    "-f",
    "-i",
];
/// The longest command, in bytes.
const LONGEST_COMMAND: usize = 16 << 10;

/// Adds all semantic problems of the setup.
pub(super) fn setup(spec: &Spec, problems: &mut Vec<Problem>) {
    let Some(setup) = &spec.setup else { return };
    for (index, line) in setup.pip.iter().enumerate() {
        if let Err(problem) = package(line) {
            problems.push(Problem { path: item("setup.pip", index), ..*problem });
        }
    }
    if setup.requirements.as_ref().is_some_and(|file| file.path.is_empty() || file.path.contains('\0')) {
        problems.push(Problem::new("setup.requirements", "is not a file path"));
    }
    if let Some(url) = &setup.index_url {
        let path = join("setup", "index_url");
        if !(url.starts_with("https://") || url.starts_with("http://")) || url.chars().any(is_odd) || url.contains(' ')
        {
            problems.push(Problem::new(path, "is not a package index URL"));
        } else if has_credentials(url) {
            problems.push(credentials(path));
        }
    }
    for (index, command) in setup.commands.iter().enumerate() {
        let path = item("setup.commands", index);
        if command.trim().is_empty() {
            problems.push(Problem::new(path, "is empty, must be a shell command"));
        } else if command.len() > LONGEST_COMMAND {
            problems.push(Problem::new(path, "is longer than 16 KiB"));
        } else if command.chars().any(|letter| is_odd(letter) && letter != '\n') {
            problems.push(Problem::new(path, "has a control character"));
        } else if has_credentials(command) {
            problems.push(credentials(path));
        }
    }
}

/// Checks one line of requirements: it must mean the same on every host.
pub(in crate::spec) fn package(line: &str) -> Result<(), Box<Problem>> {
    let refused = |message: String, note: &str| Err(Box::new(Problem::new("", message).note(note)));
    let line = line.trim();
    if line.is_empty() {
        return refused("is empty, must be a package".to_owned(), "for example: torch==2.9");
    }
    if line.chars().any(is_odd) {
        return refused(
            "has a line break or another control character, must be one line".to_owned(),
            "one package each",
        );
    }
    if has_credentials(line) {
        return Err(credentials(String::new()).into());
    }
    let word = line.split([' ', '=']).next().unwrap_or_default();
    if is_editable(line) {
        return refused(
            format!("`{line}` is an editable package, and the hosts have no copy of its folder"),
            "name it without `-e`, by its name or as git+https://…",
        );
    }
    if word.starts_with('-') {
        if !OPTIONS.contains(&word) {
            return refused(
                format!("`{line}` is an option that `setup` does not take"),
                "it takes --index-url, --extra-index-url, --find-links, --pre, --no-binary and --only-binary",
            );
        }
        let finds = line.strip_prefix("--find-links").or_else(|| line.strip_prefix("-f"));
        return match finds {
            Some(place) if !place.contains("://") || place.contains("file:") => local(line),
            _ => Ok(()),
        };
    }
    if is_path(line) { local(line) } else { Ok(()) }
}

fn local(line: &str) -> Result<(), Box<Problem>> {
    let problem = Problem::new("", format!("`{line}` is a path of this machine, which the hosts cannot read"));
    Err(problem.note("publish the package, or send it with each job: `gpucl job submit --working-dir`").into())
}

fn credentials(path: String) -> Problem {
    Problem::new(path, "has a URL with a password, which everyone with the host or the image could read")
        .note("put it into ~/.netrc of the host's user (`native`), or use an index that the host can read without it")
}

fn is_odd(letter: char) -> bool {
    letter.is_control() && letter != '\t'
}

/// Whether a URL in this text has a user with a password, or anything at all before the `@` where HTTP is spoken.
pub(super) fn has_credentials(text: &str) -> bool {
    text.match_indices("://").any(|(at, _)| {
        let authority = text[at + 3..]
            .split(|letter: char| letter.is_whitespace() || matches!(letter, '/' | '?' | '#' | '"' | '\''))
            .next()
            .unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else { return false };
        user.contains(':') || !text[..at].ends_with("ssh")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(setup: &str) -> Vec<(String, String)> {
        let spec: Spec = serde_yaml::from_str(&format!("name: demo\nsetup: {setup}\n")).unwrap();
        let mut problems = Vec::new();
        super::setup(&spec, &mut problems);
        problems.into_iter().map(|problem| (problem.path, problem.message)).collect()
    }

    #[test]
    fn packages_of_an_index_and_of_repositories_pass() {
        for line in [
            "torch",
            "torch==2.9.0",
            "numpy<3,>=2; python_version > '3.10'",
            "ray[tune]",
            "torch @ https://download.pytorch.org/whl/cpu/torch-2.9.0.whl#sha256=1",
            "https://example.org/x-1.0.tar.gz",
            "x @ git+https://github.com/o/x@v1",
            "git+ssh://git@github.com/o/x",
            "--extra-index-url https://download.pytorch.org/whl/cpu",
            "--find-links=https://example.org/wheels/",
            "--pre",
        ] {
            assert!(package(line).is_ok(), "{line}: {:?}", package(line));
        }
    }

    #[test]
    fn what_only_this_machine_has_is_refused() {
        for line in [
            ".",
            "./x",
            "../x.whl",
            "/srv/x",
            "~/x",
            "x.whl",
            "dist/x-1.0.tar.gz",
            "x @ file:///srv/x",
            "file:///srv/x",
            "x @ ./x",
            "git+file:///srv/x",
            "--find-links /srv/wheels",
            "-f wheels",
        ] {
            let message = package(line).unwrap_err().message.clone();
            assert!(message.contains("a path of this machine"), "{line}: {message}");
        }
        assert!(package("-e .").unwrap_err().message.contains("editable"));
        assert!(package("-e git+https://github.com/o/x").unwrap_err().message.contains("editable"));
        for line in ["--target /tmp", "-r https://h/needs.txt", "-c versions.txt", "--no-index"] {
            assert!(package(line).unwrap_err().message.contains("an option"), "{line}");
        }
    }

    #[test]
    fn no_password_is_sent_to_hosts() {
        for line in [
            "x @ https://me:secret@example.org/x.whl",
            "git+https://token@github.com/o/x",
            "git+ssh://git:secret@github.com/o/x",
            "--extra-index-url https://me:secret@example.org/simple",
        ] {
            assert!(package(line).unwrap_err().message.contains("a URL with a password"), "{line}");
        }
        let places = |setup: &str| wrong(setup).into_iter().map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!(places("{index_url: 'https://me:secret@h/simple'}"), ["setup.index_url"]);
        assert_eq!(places("{commands: ['true', 'curl https://me:secret@h/']}"), ["setup.commands[1]"]);
    }

    #[test]
    fn each_mistake_has_its_place() {
        let places = |setup: &str| wrong(setup).into_iter().map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!(places("{pip: [torch, '', './x']}"), ["setup.pip[1]", "setup.pip[2]"]);
        assert_eq!(places("{pip: [\"a\\nb\"]}"), ["setup.pip[0]"]);
        assert_eq!(places("{commands: [' ', \"a\\nb\", \"a\\rb\"]}"), ["setup.commands[0]", "setup.commands[2]"]);
        assert_eq!(places("{index_url: pypi}"), ["setup.index_url"]);
        assert_eq!(places("{requirements: ''}"), ["setup.requirements"]);
        assert_eq!(places("{pip: [torch], index_url: 'https://h/simple', commands: ['true']}"), [""; 0]);
    }
}
