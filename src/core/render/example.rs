//! The built-in examples: what each shows, and copies of them to change.

use std::path::{Path, PathBuf};

use super::Library;
use super::eject::{known, write};
use crate::error::{Error, ErrorKind, Result};
use crate::util::folder::Goal;

/// A built-in example: a folder of `examples/`, or one of its specs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The example's name: `local`, `serve`.
    pub name: String,
    /// The number of its files.
    pub files: usize,
    /// What it shows, in one line.
    pub summary: String,
}

/// Every file of an example: the example's name, the file's path in it, and its content.
fn built_in() -> impl Iterator<Item = (&'static str, &'static Path, &'static [u8])> {
    Library::built_in("examples/").filter_map(|(path, bytes)| {
        let path = path.strip_prefix("examples/")?;
        match path.split_once('/') {
            Some((name, below)) => Some((name, Path::new(below), bytes)),
            // What is no spec is about all of them.
            None => Some((path.strip_suffix(".yaml")?, Path::new(path), bytes)),
        }
    })
}

/// All examples, sorted by name.
pub fn examples() -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    for (name, path, bytes) in built_in() {
        let at = found.iter().position(|example| example.name == name).unwrap_or_else(|| {
            found.push(Example { name: name.to_owned(), files: 0, summary: String::new() });
            found.len() - 1
        });
        found[at].files += 1;
        // A folder's README, or the spec that is the whole example.
        if path == Path::new("README.md") || path == Path::new(&format!("{name}.yaml")) {
            found[at].summary = summary(name, &String::from_utf8_lossy(bytes));
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// What the first line says: a README's title, without the example's name before it, or the first sentence of a spec's
/// comment.
fn summary(name: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("# ")).collect();
    let text = lines.join(" ");
    let text = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text);
    let sentence = text.split_once(". ").map_or(text, |(first, _)| first);
    let mut letters = sentence.trim_end_matches('.').chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// Copies a built-in example into a folder; returns the files written.
///
/// # Errors
/// If there is no such example, one of its files exists, or a link is in the way; then nothing is written.
pub fn copy_example(name: &str, goal: &Goal) -> Result<Vec<PathBuf>> {
    let doing = || format!("copy the example {name} to {}", goal.path().display());
    let files: Vec<(&Path, &[u8])> =
        built_in().filter(|(of, ..)| *of == name).map(|(_, path, bytes)| (path, bytes)).collect();
    if files.is_empty() {
        let names: Vec<String> = examples().into_iter().map(|example| example.name).collect();
        let error = Error::new(ErrorKind::NotFound, doing()).because("no built-in example has that name");
        return Err(known(error, name, &names.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    write(&files, goal, doing, "to copy it into another folder, name one: `gpucl example copy NAME DIR`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_says_what_it_shows_and_has_a_name_of_its_own() {
        let all = examples();
        assert!(all.len() > 15, "{all:?}");
        for example in &all {
            assert!(example.summary.len() > 10 && example.summary.len() < 125, "{example:?}");
            assert!(!example.summary.contains('\n') && !example.summary.starts_with(&example.name), "{example:?}");
        }
        let of = |name: &str| all.iter().find(|example| example.name == name).unwrap();
        assert_eq!(of("hello").summary, "The first job");
        assert_eq!(of("local").summary, "A Ray cluster on this machine: no GPU, no account, no root, no Docker");
        assert_eq!(of("local").files, 1);
        // A folder and a spec of one name could not both be copied.
        let specs = Library::built_in("examples/").filter(|(path, _)| path.matches('/').count() == 1);
        for (path, _) in specs {
            let name = path.trim_start_matches("examples/").trim_end_matches(".yaml");
            assert!(all.iter().all(|example| example.name != name || example.files == 1), "{name}");
        }
    }

    #[test]
    fn all_of_an_example_is_copied_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        for example in examples() {
            let goal = folder.path().join(&example.name);
            let written = copy_example(&example.name, &Goal::named(&goal)).unwrap();
            assert_eq!(written.len(), example.files, "{example:?}");
            for path in written {
                let below = path.strip_prefix(&goal).unwrap();
                let from = match example.files {
                    1 if source.join(below).is_file() => source.join(below),
                    _ => source.join(&example.name).join(below),
                };
                assert_eq!(fs_err::read(&path).unwrap(), fs_err::read(from).unwrap(), "{}", path.display());
            }
        }
    }

    #[test]
    fn nothing_is_overwritten_and_an_unknown_name_gets_a_suggestion() {
        let folder = tempfile::tempdir().unwrap();
        let goal = Goal::named(folder.path());
        fs_err::write(folder.path().join("local.yaml"), "mine").unwrap();
        let error = copy_example("local", &goal).unwrap_err();
        assert!(error.to_string().contains("already exists"), "{error}");
        assert_eq!(fs_err::read(folder.path().join("local.yaml")).unwrap(), b"mine");
        let error = copy_example("locl", &goal).unwrap_err();
        assert_eq!(error.hints()[0], "did you mean `local`?");
        let error = copy_example("README.md", &goal).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }
}
