//! Examples in doc comments, of which there are none: `doctest = false` in each Cargo.toml, since nothing would run them.

use std::path::PathBuf;

#[test]
fn no_doc_comment_has_code_that_nothing_runs() {
    let mut folders: Vec<PathBuf> =
        ["src", "providers", "sandbox", "fuzz"].map(|folder| super::root().join(folder)).to_vec();
    let mut found = Vec::new();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                found.extend(code(&text).into_iter().map(|line| format!("{}:{line}", path.display())));
            }
        }
    }
    assert!(files > 400, "{files}");
    assert!(found.is_empty(), "write a test, or ```text: {found:#?}");
}

/// The numbers of the lines that begin code in a doc comment.
fn code(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(after) = line.strip_prefix("/// ```").or_else(|| line.strip_prefix("//! ```")) else { continue };
        if !inside && after != "text" {
            found.push(index + 1);
        }
        inside = !inside;
    }
    found
}

#[test]
fn code_in_doc_comments_is_found() {
    assert_eq!(code("//! ```text\n//! a\n//! ```\n\n    /// ```\n    /// f();\n    /// ```\n/// ```rust\n"), [5, 8]);
}
