//! Copies built-in templates to a folder where they can be changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Library, Origin};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::folder::{Existing, Goal};
use crate::util::near::nearest;

/// A built-in template, and which of its files are overridden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The template's name: `ray-compose`.
    pub name: String,
    /// The number of its files.
    pub files: usize,
    /// The files in the user's folders that override built-in ones.
    pub changed: Vec<PathBuf>,
}

/// All templates, sorted by name.
///
/// # Errors
/// If a file in one of the user's folders cannot be read.
pub fn templates(library: &Library) -> Result<Vec<Template>> {
    let mut found: BTreeMap<&str, Template> = BTreeMap::new();
    for (path, _) in Library::built_in("templates/") {
        let Some(name) = path.split('/').nth(1) else { continue };
        let template =
            found.entry(name).or_insert_with(|| Template { name: name.to_owned(), files: 0, changed: Vec::new() });
        template.files += 1;
        if let (_, Origin::File(own)) = library.read(path)? {
            template.changed.push(own);
        }
    }
    Ok(found.into_values().collect())
}

/// Copies a built-in template into a data folder; returns the files written.
///
/// # Errors
/// If there is no such template, one of its files exists, or a link is in the way; then nothing is written.
pub fn eject(name: &str, goal: &Goal) -> Result<Vec<PathBuf>> {
    let doing = || format!("copy the template {name} to {}", goal.path().display());
    let prefix = format!("templates/{name}/");
    let files: Vec<(&Path, &[u8])> = Library::built_in(&prefix).map(|(path, bytes)| (Path::new(path), bytes)).collect();
    if files.is_empty() {
        let names: Vec<&str> = {
            let mut names: Vec<&str> =
                Library::built_in("templates/").filter_map(|(path, _)| path.split('/').nth(1)).collect();
            names.dedup();
            names
        };
        let error = Error::new(ErrorKind::NotFound, doing()).because("no built-in template has that name");
        return Err(known(error, name, &names));
    }
    write(&files, goal, doing, "to compare, copy it to another folder with --to")
}

/// Adds what there is instead of a name: the nearest, else all.
pub(super) fn known(error: Error, name: &str, names: &[&str]) -> Error {
    match nearest(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("there are: {}", names.join(", "))),
    }
}

/// Writes built-in files, none of which may exist yet; returns their paths.
pub(super) fn write(
    files: &[(&Path, &[u8])],
    goal: &Goal,
    doing: impl Fn() -> String + Copy,
    otherwise: &str,
) -> Result<Vec<PathBuf>> {
    let folder = goal.open(files.iter().map(|(path, _)| *path), Existing::Refused).doing(ErrorKind::State, doing);
    let folder = folder
        .map_err(|error| error.because("nothing was written: what is there may have your changes").hint(otherwise))?;
    for (path, bytes) in files {
        folder.write(path, bytes).doing(ErrorKind::State, doing)?;
    }
    Ok(files.iter().map(|(path, _)| folder.path().join(path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_overrides_the_built_in_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let written = eject("ray-compose", &Goal::named(folder.path())).unwrap();
        let own = folder.path().join("templates/ray-compose/compose.yaml.tera");
        assert!(written.contains(&own) && !written.iter().any(|path| path.ends_with("tests")), "{written:?}");
        let library = Library::new(vec![folder.path().to_owned()]);
        let name = "templates/ray-compose/compose.yaml.tera";
        assert_eq!(library.read(name).unwrap().1, Origin::File(own.clone()));
        assert_eq!(library.read(name).unwrap().0, Library::default().read(name).unwrap().0);
        let of = |library: &Library| {
            let all = templates(library).unwrap();
            all.into_iter().find(|template| template.name == "ray-compose").unwrap().changed.len()
        };
        assert_eq!((of(&library), of(&Library::default())), (written.len(), 0));

        // With only one file left, it is kept and nothing is written beside it.
        fs_err::remove_dir_all(folder.path()).unwrap();
        fs_err::create_dir_all(own.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", &own).unwrap();
        let error = eject("ray-compose", &Goal::named(folder.path())).unwrap_err();
        assert!(error.to_string().contains("already exists"), "{error}");
        assert_eq!(fs_err::read_dir(own.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_unknown_name_gets_a_suggestion() {
        let folder = tempfile::tempdir().unwrap();
        for (name, hint) in [("ray-compos", "did you mean `ray-compose`?"), ("../ray-compose", "did you mean")] {
            let error = eject(name, &Goal::named(folder.path())).unwrap_err();
            assert!(error.hints()[0].starts_with(hint), "{error}");
        }
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);
    }
}
