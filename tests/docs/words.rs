//! The words that `docs/glossary.md` replaced stay out of the code and the documents.

use std::path::Path;

use super::root;

/// Each meant several things, or had to be guessed; the glossary says what is used instead.
const OLD: &[&str] = &[
    "armed",
    "elsewhere",
    "hunt",
    "hunted",
    "hunting",
    "hunts",
    "learned",
    "outgrow",
    "outgrown",
    "outgrows",
    "settle",
    "settled",
    "settles",
    "settling",
    "surroundings",
    "told",
    "untold",
];

/// Plain verbs, which are no names of types.
const NOT_IN_TYPES: &[&str] = &["Deployed", "Guarding", "Look", "Looked", "Reach", "Seen", "Touches"];

/// The old words in a line, whatever separates them: `is_told`, `HuntLimit`, `hunt-limit`.
fn old_words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in line.split(|letter: char| !letter.is_ascii_alphabetic()) {
        for part in parts(word) {
            let is_type = part.len() < word.len() || word.starts_with(|letter: char| letter.is_ascii_uppercase());
            if OLD.contains(&part.to_ascii_lowercase().as_str())
                || (part.len() < word.len() && is_type && NOT_IN_TYPES.contains(&part))
            {
                found.push(part.to_owned());
            }
        }
    }
    found
}

/// The words of a CamelCase name; a plain word is one.
fn parts(word: &str) -> Vec<&str> {
    let starts = word.char_indices().filter(|(at, letter)| {
        *at > 0 && letter.is_ascii_uppercase() && word[..*at].ends_with(|before: char| before.is_ascii_lowercase())
    });
    let mut ends: Vec<usize> = starts.map(|(at, _)| at).collect();
    ends.push(word.len());
    let begins = std::iter::once(0).chain(ends.iter().copied());
    begins.zip(&ends).map(|(begin, end)| &word[begin..*end]).collect()
}

fn walk(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            if name != "target" && name != "__pycache__" {
                walk(&path, found);
            }
        } else if kind.is_file() && !["words.rs", "glossary.md"].contains(&name.as_str()) {
            check(&path, found);
        }
    }
}

fn check(path: &Path, found: &mut Vec<String>) {
    // What is no text has no words.
    let Ok(text) = std::fs::read_to_string(path) else { return };
    for (number, line) in text.lines().enumerate() {
        let words = old_words(line);
        if !words.is_empty() {
            found.push(format!("{}:{}: {}", path.display(), number + 1, words.join(", ")));
        }
    }
}

#[test]
fn old_words_are_found_in_prose_and_in_names() {
    assert_eq!(
        old_words("// Whoever is told. let is_told = HuntLimit::new(); --armed"),
        ["told", "told", "Hunt", "armed"]
    );
    assert_eq!(old_words("struct InstanceSeen; I have seen it, and Look at it; unsettling"), ["Seen"]);
}

#[test]
fn no_old_word_is_in_the_code_or_the_documents() {
    let mut found = Vec::new();
    for folder in [
        "src",
        "providers",
        "sandbox",
        "tests",
        "testbed",
        "packaging",
        "templates",
        "playbooks",
        "docs",
        "examples",
        "benches",
        "fuzz",
    ] {
        let folder = root().join(folder);
        if folder.is_dir() {
            walk(&folder, &mut found);
        }
    }
    for file in ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "STYLE.md", ".ci/run", "justfile"] {
        check(&root().join(file), &mut found);
    }
    assert!(found.is_empty(), "docs/glossary.md says what to write instead:\n{}", found.join("\n"));
}
