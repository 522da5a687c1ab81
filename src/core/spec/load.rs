//! Loads a file into a validated spec with all defaults, or reports everything that is wrong with it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::beside::{from_home, read_beside};
use super::node::{Node, NodeKind};
use super::notify::read_route;
use super::place::{Places, Problem, item, join};
use super::provider_keys::walk_provider;
use super::sensitive::refuse_sensitive;
use super::validate::mounts::file_system;
use super::validate::{validate, without_what_follows};
use super::walk::walk;
use super::yaml::{self, MOST_BYTES};
use super::{Loaded, Spec};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::provider::Lookup;
use crate::util::fs::read_within;

/// A note on the smallest valid spec.
const SMALLEST: &str = "the smallest spec is one line: `name: demo`";

/// Loads the spec in this file and the files that it sends; changes nothing.
///
/// Files that it sends must be in its own folder or in one of the allowed ones, and sensitive folders of a host that it
/// mounts must be allowed.
pub fn load(path: &Path, allowed: Allowed<'_>, lookup: Lookup<'_>) -> Result<Loaded> {
    let mut loaded = load_alone(path, lookup)?;
    allowed.home.into_iter().for_each(|home| from_home(&mut loaded.spec, home));
    let folder = path.parent().unwrap_or(Path::new(""));
    read_beside(&mut loaded, folder, allowed.paths)?;
    read_route(&mut loaded, folder, allowed.home)?;
    refuse_sensitive(&loaded, allowed.mounts)?;
    Ok(loaded)
}

/// What the user allows a spec beyond what every spec may.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed<'a> {
    /// Folders of this machine that it may send files from.
    pub paths: &'a [PathBuf],
    /// Sensitive folders of a host that it may mount, with everything below them.
    pub mounts: &'a [String],
    /// The user's home folder, which `~` means in paths of this machine.
    pub home: Option<&'a Path>,
}

/// Loads the spec in this file without the files that it sends.
pub fn load_alone(path: &Path, lookup: Lookup<'_>) -> Result<Loaded> {
    let name = path.display().to_string();
    let doing = || format!("read the spec {name}");
    let wrong = |cause: String| Error::new(ErrorKind::Spec, doing()).because(cause);
    if path.is_dir() {
        let names = ["cluster.yaml", "cluster.yml"].map(|name| path.join(name));
        let file = names.iter().find(|file| file.is_file()).unwrap_or(&names[0]);
        return Err(wrong("it is a folder".to_owned()).hint(format!("name the file in it: {}", file.display())));
    }
    let bytes = match read_within(path, MOST_BYTES as u64) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let error = wrong("there is no such file".to_owned());
            let other = match path.extension().and_then(|end| end.to_str()) {
                Some("yaml") => Some(path.with_extension("yml")),
                Some("yml") => Some(path.with_extension("yaml")),
                _ => None,
            };
            return Err(match other.filter(|other| other.is_file()) {
                Some(other) => error.hint(format!("did you mean {}?", other.display())),
                None => error.hint(format!("create one: echo 'name: demo' > {name}")),
            });
        }
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            return Err(wrong("it is larger than 1 MiB: too large for a spec".to_owned()));
        }
        read => read.doing(ErrorKind::Spec, doing)?,
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..good]).into_owned();
        let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
        let line = before.matches('\n').count() + 1;
        wrong(format!("{name}:{line}:{column}: is not UTF-8")).hint("save the file as UTF-8 and try again")
    })?;
    parse(&name, &text, lookup)
}

/// Reads a spec from a text; `name` is the file's name in errors.
pub fn parse(name: &str, text: &str, lookup: Lookup<'_>) -> Result<Loaded> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut places = Places::of_text(name, text);
    if text.len() > MOST_BYTES {
        return Err(places.all(vec![Problem::new("", "is larger than 1 MiB: too large for a spec")]));
    }
    let (root, mut problems) = match yaml::read(text) {
        Ok((Some(root), problems)) => (root, problems),
        Ok((None, _)) => return Err(places.all(vec![Problem::new("", "is empty").note(SMALLEST)])),
        Err(problem) => return Err(places.all(vec![with_help(*problem, text)])),
    };
    places.add(&root);
    if !matches!(root.kind, NodeKind::Map(_)) {
        let problem = Problem::at(root.at, "", format!("is {}, must be a map of keys", root.what())).note(SMALLEST);
        return Err(places.all(vec![problem]));
    }
    let mut right = walk(&root, super::schema::own(), &mut problems);
    walk_provider(&root, &mut right, lookup, &mut problems);
    match serde_json::from_value::<Spec>(named(right)) {
        Ok(spec) => {
            let found = without_what_follows(validate(&spec, lookup), &problems);
            problems.extend(found);
        }
        // The types found what the schema did not; the YAML crate gives the position.
        Err(error) if problems.is_empty() => problems.push(match yaml::deserialize::<Spec>(text) {
            Err(problem) => *problem,
            Ok(_) => Problem::new("", error.to_string()),
        }),
        Err(_) => {}
    }
    if problems.is_empty() {
        match read_again(text, &root) {
            Ok(spec) => return Ok(Loaded { spec: with_file_systems(spec, lookup), places }),
            Err(problem) => problems.push(*problem),
        }
    }
    let has_unknown_key = problems.iter().any(|problem| problem.message == "unknown key");
    let error = places.all(problems);
    Err(if has_unknown_key { error.hint("`gpucl schema` prints every key and its type") } else { error })
}

/// Fills in where the hosts have the file systems that are mounted.
fn with_file_systems(mut spec: Spec, lookup: Lookup<'_>) -> Spec {
    for mount in &mut spec.mounts {
        let name = mount.file_system.as_deref();
        mount.file_system_at = name.and_then(|name| file_system(&spec.provider, name, lookup));
    }
    spec
}

/// Deserializes the spec with the YAML crate, once both readers agree on the text.
fn read_again(text: &str, root: &Node) -> Result<Spec, Box<Problem>> {
    match first_difference(&root.to_json(), &yaml::plain(text)?, "") {
        None => yaml::deserialize(text),
        Some(path) => Err(Problem::new(path, "is ambiguous YAML").note("put the value in quotes, on one line").into()),
    }
}

/// The path of the first difference between two values; the order of keys is ignored.
fn first_difference(left: &Value, right: &Value, path: &str) -> Option<String> {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let missing = |from: &Map<String, Value>, of: &Map<String, Value>| {
                of.keys().find(|key| !from.contains_key(*key)).map(|key| join(path, key))
            };
            missing(a, b)
                .or_else(|| missing(b, a))
                .or_else(|| a.iter().find_map(|(key, value)| first_difference(value, b.get(key)?, &join(path, key))))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(index, (a, b))| first_difference(a, b, &item(path, index)))
        }
        _ if left == right => None,
        _ => Some(path.to_owned()),
    }
}

/// Fills in a name if it is missing or wrong, so that the rest can be validated.
fn named(mut right: Value) -> Value {
    if let Value::Object(keys) = &mut right {
        keys.entry("name").or_insert_with(|| Value::String("unnamed".to_owned()));
    }
    right
}

/// Adds notes that the parser does not give: on tabs as indentation, and on the end of the file.
fn with_help(problem: Problem, text: &str) -> Problem {
    let Some(mark) = problem.mark else { return problem };
    if text.lines().skip(mark.line - 1).all(|line| line.trim().is_empty()) {
        return problem.note("the file ends here");
    }
    let line = text.lines().nth(mark.line - 1).unwrap_or_default();
    let indent = &line[..line.len() - line.trim_start().len()];
    if indent.contains('\t') { problem.note("indent with spaces: YAML does not allow tabs there") } else { problem }
}
