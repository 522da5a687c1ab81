//! Names in folders that other users write to, such as `/tmp`: each may be a link that another user has planted.

use super::{code, files, none};

/// Where `/tmp` itself is named, each with why nobody else's link does harm there.
const NAMED: &[(&str, &str)] = &[
    ("src/core/runtime/compose/shell/data_image.sh", "a container's own"),
    ("src/core/runtime/native/shell/claim.sh", "a random name, of a folder that is made and must be this user's alone"),
    ("src/core/runtime/native/shell/clean.sh", "what leads to this host's files in folders that must be this user's"),
    ("src/core/runtime/native/shell/processes.sh", "folders that must be this user's"),
    ("src/core/runtime/native/shell/stop.sh", "names of another program, which are only removed"),
    ("templates/raycluster/raycluster.yaml.tera", "a pod's own"),
    ("templates/raycluster/start.py", "a pod's own"),
    ("templates/slurm-job/node.py", "a folder that must be this user's alone"),
];

/// Our shell and Python that runs on hosts, on login machines and here; in Rust, the shell in it. Links to folders of the
/// project are left out.
fn programs() -> Vec<String> {
    let kinds = [".sh", ".py", ".yaml", ".tera", ".rs"];
    let all = files(&["src", "providers", "playbooks", "templates"]).into_iter();
    all.filter(|path| kinds.iter().any(|kind| path.ends_with(kind)))
        .filter(|path| {
            !path.contains("/tests") && !path.starts_with("src/core/templates/") && !path.ends_with("fuzz.rs")
        })
        .collect()
}

/// The lines of programs that are not comments, by their place.
fn lines(path: &str) -> Vec<(String, String)> {
    let lines = code(path).into_iter().filter(|(_, line)| !line.trim_start().starts_with('#'));
    lines.map(|(number, line)| (format!("{path}:{number}: {}", line.trim()), line)).collect()
}

/// The uses of a shell variable that go on after it with more of a name: `$words.jobs`.
fn is_continued(line: &str, variable: &str) -> bool {
    let is_more =
        |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_alphanumeric() || "._-$".contains(letter));
    let bare = line.split(&format!("${variable}")).skip(1).any(|rest| rest.starts_with(['.', '-', '$']));
    bare || line.split(&format!("${{{variable}}}")).skip(1).any(is_more)
}

#[test]
fn temporary_names_are_those_of_folders() {
    let mut wrong = Vec::new();
    for path in programs() {
        let lines = lines(&path);
        let made = |line: &str| {
            Some(
                line.split_once("=$(mktemp -d")?
                    .0
                    .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()?
                    .to_owned(),
            )
        };
        let folders: Vec<String> = lines.iter().filter_map(|(_, line)| made(line)).collect();
        let is_python = path.ends_with(".py");
        for (place, line) in &lines {
            let shell = line.contains("mktemp") && !line.contains("mktemp -d");
            let python = is_python && ["mkstemp", "NamedTemporaryFile"].iter().any(|name| line.contains(name));
            if shell || python || folders.iter().any(|folder| is_continued(line, folder)) {
                wrong.push(place.clone());
            }
        }
    }
    none(&wrong, "what is written goes into a folder that `mktemp -d` made, and not to a name beside one");
    for (line, is_wrong) in [
        ("cat >\"$work.jobs\"", true),
        ("cat >\"${work}jobs\"", true),
        ("cat >$work-1", true),
        ("cat >\"$work/jobs\"", false),
        ("rm -rf \"$work\"", false),
        ("cat >\"$workers.jobs\"", false),
    ] {
        assert_eq!(is_continued(line, "work"), is_wrong, "{line}");
    }
}

#[test]
fn names_below_tmp_are_known() {
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for path in programs().into_iter().filter(|path| !path.ends_with(".rs")) {
        let found: Vec<String> =
            lines(&path).into_iter().filter(|(_, line)| line.contains("/tmp")).map(|(place, _)| place).collect();
        match NAMED.iter().find(|(known, _)| *known == path) {
            Some((known, _)) if !found.is_empty() => seen.push(*known),
            _ => wrong.extend(found),
        }
    }
    none(&wrong, "no file names /tmp: `mktemp -d` makes a folder there, or NAMED says why it does no harm");
    assert_eq!(seen, NAMED.iter().map(|(known, _)| *known).collect::<Vec<_>>(), "one is no longer there");
}
