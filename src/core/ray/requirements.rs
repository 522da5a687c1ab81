//! Requirement files of pip and uv, expanded into the list that Ray takes: the nodes cannot read files on this machine.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// How deep requirement files may include each other.
const DEPTH_LIMIT: usize = 20;

/// Whether a line installs a package in place, from a folder.
pub fn is_editable(line: &str) -> bool {
    line.starts_with("-e") || line.split([' ', '=']).next() == Some("--editable")
}

/// Whether a line that is no option is a path of this machine: `./x`, `x.whl`, `x @ file:///srv/x`.
pub fn is_path(line: &str) -> bool {
    let word = line.split([' ', '=']).next().unwrap_or_default();
    // `name @ URL`, or the URL alone.
    let source = line.split_once('@').map_or(line, |(before, after)| if before.contains("://") { line } else { after });
    let source = source.trim();
    let is_url = source.contains("://") && !source.contains("file:");
    source.starts_with(['.', '/', '~'])
        || source.starts_with("file:")
        || source.contains("+file:")
        || (!is_url
            && (word.contains('/') || word.ends_with(".whl") || word.ends_with(".tar.gz") || word.ends_with(".zip")))
}

/// The requirements of a file and of those that it includes by `-r`, without comments and duplicates; `text` reads each
/// of them. A file that is included is searched for from the including file's folder, as by pip.
///
/// # Errors
/// If a file cannot be read, includes itself, or names a constraints file on this machine.
pub fn requirements_of(path: &Path, doing: &str, text: &dyn Fn(&Path) -> Result<String>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    collect(path, doing, text, &mut Vec::new(), &mut found)?;
    Ok(found)
}

fn collect(
    path: &Path,
    doing: &str,
    text: &dyn Fn(&Path) -> Result<String>,
    within: &mut Vec<PathBuf>,
    found: &mut Vec<String>,
) -> Result<()> {
    let wrong = |cause: String| Error::new(ErrorKind::Usage, doing).because(cause);
    if within.iter().any(|outer| outer == path) || within.len() >= DEPTH_LIMIT {
        return Err(wrong(format!("`{}` includes itself", path.display())));
    }
    let content = text(path)?;
    within.push(path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("."));
    for (number, line) in requirements(&content) {
        match file_option(&line) {
            Some((FileOption::Requirement, name)) if !name.contains("://") => {
                collect(&folder.join(name), doing, text, within, found)?;
            }
            Some((FileOption::Constraint, name)) if !name.contains("://") => {
                return Err(wrong(format!(
                    "{}:{number}: `{line}` names a file on this machine, which the nodes cannot read",
                    path.display()
                ))
                .hint("write the versions into the requirements themselves, or serve the constraints by HTTP"));
            }
            _ if found.contains(&line) => {}
            _ => found.push(line),
        }
    }
    within.pop();
    Ok(())
}

/// The lines that are requirements or options, each with the number of its first line: comments are dropped, and lines
/// that end with a backslash are joined with the next.
fn requirements(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut begun: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let (number, mut whole) = begun.take().unwrap_or_else(|| (at + 1, String::new()));
        match line.strip_suffix('\\').filter(|_| !line.trim_start().starts_with('#')) {
            Some(line) => {
                whole.push_str(line);
                begun = Some((number, whole));
            }
            None => {
                whole.push_str(line);
                found.push((number, whole));
            }
        }
    }
    found.extend(begun);
    let cleaned = found.into_iter().map(|(number, line)| (number, without_comment(&line).trim().to_owned()));
    cleaned.filter(|(_, line)| !line.is_empty()).collect()
}

/// The line without its comment: a `#` at its beginning or after a space, as for pip; one within a URL stays.
fn without_comment(line: &str) -> &str {
    let comment = line
        .char_indices()
        .find(|(at, letter)| *letter == '#' && line[..*at].chars().next_back().is_none_or(char::is_whitespace));
    comment.map_or(line, |(at, _)| &line[..at])
}

enum FileOption {
    Requirement,
    Constraint,
}

/// The file that an option names: `-r other.txt`, `--requirement=other.txt`, `-c versions.txt`.
fn file_option(line: &str) -> Option<(FileOption, &str)> {
    let long = |name: &str| {
        line.strip_prefix(name).filter(|rest| rest.starts_with(|letter: char| letter == '=' || letter.is_whitespace()))
    };
    let (option, rest) = if let Some(rest) = long("--requirement").or_else(|| line.strip_prefix("-r")) {
        (FileOption::Requirement, rest)
    } else if let Some(rest) = long("--constraint").or_else(|| line.strip_prefix("-c")) {
        (FileOption::Constraint, rest)
    } else {
        return None;
    };
    Some((option, rest.trim_start_matches('=').trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Doing as _;

    fn lines(text: &str) -> Vec<String> {
        requirements(text).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn comments_and_empty_lines_are_dropped_and_continued_lines_joined() {
        let text = "# needs\ntorch==2.9  # pinned\n\nx @ https://h/x.whl#sha256=1\ny==1 \\\n  --hash=sha256:2\n--pre\n# a\\\nz\n";
        assert_eq!(lines(text), ["torch==2.9", "x @ https://h/x.whl#sha256=1", "y==1   --hash=sha256:2", "--pre", "z"]);
        assert_eq!(lines("last \\"), ["last"]);
    }

    #[test]
    fn an_included_file_is_found_beside_the_including_one() {
        let place = tempfile::tempdir().unwrap();
        fs_err::create_dir(place.path().join("more")).unwrap();
        let write = |name: &str, text: &str| fs_err::write(place.path().join(name), text).unwrap();
        write("all.txt", "a\n-r more/base.txt\n--requirement=more/other.txt\na\n-r https://h/far.txt\n");
        write("more/base.txt", "b==1\n-rother.txt\n");
        write("more/other.txt", "c\n");
        let text = |path: &Path| fs_err::read_to_string(path).doing(ErrorKind::Usage, || "read it".to_owned());
        let read = |name: &str| requirements_of(&place.path().join(name), "read it", &text);
        assert_eq!(read("all.txt").unwrap(), ["a", "b==1", "c", "-r https://h/far.txt"]);

        write("more/base.txt", "-r ../all.txt\n");
        let around = read("more/base.txt").unwrap_err();
        assert!(around.to_string().contains("read it"), "{around}");
        write("all.txt", "a\n\n-c versions.txt\n");
        let constraint = read("all.txt").unwrap_err();
        assert!(constraint.causes()[0].contains("all.txt:3: `-c versions.txt`"), "{constraint:?}");
        let missing = read("nowhere.txt").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Usage);
    }
}
