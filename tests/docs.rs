//! The documents are true: the README's commands are run, links are valid, and references match the code.

mod console;
mod doc_comments;
mod lines;
mod packages;
mod reference;
mod security;
mod specs;
mod words;

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// All Markdown files of the project.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if path.is_dir() && !name.starts_with('.') && path != root().join("target") {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found
}

/// A link to a file that is not there helps nobody.
#[test]
fn links_between_documents_lead_somewhere() {
    let mut dead = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if target.contains("://") {
                continue;
            }
            let path = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            let heading = |text: String| text.lines().any(|line| line.starts_with('#') && slug(line) == anchor);
            let leads = path.exists() && (anchor.is_empty() || heading(std::fs::read_to_string(path).unwrap()));
            if !leads {
                dead.push(format!("{}: {target}", document.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn the_readme_is_short() {
    assert!(read("README.md").lines().count() <= 310);
}

/// Every document can be found from the index.
#[test]
fn the_index_names_every_document() {
    let index = read("docs/README.md");
    let mut missing = Vec::new();
    for document in documents() {
        if let Ok(path) = document.strip_prefix(root().join("docs")) {
            let path = path.display().to_string();
            if path != "README.md" && !index.contains(&format!("({path})")) {
                missing.push(path);
            }
        }
    }
    assert!(missing.is_empty(), "docs/README.md does not name: {missing:?}");
}
