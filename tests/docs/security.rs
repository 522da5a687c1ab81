//! The claims of the threat model are backed by existing tests.
//!
//! Its tables `| claim | test |` name them as `cargo test` does: `jobs::portal::nobody_passes_without_the_key` is in
//! this binary, and what begins with `lib: ` in a library: that of `providers::` or `sandbox::`, of the core, or of the
//! program.

use std::path::{Path, PathBuf};

use super::{read, root};

/// The rows of all tables whose head is `| claim | test |`.
fn rows(text: &str) -> Vec<(String, Vec<String>)> {
    let mut rows = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        match cells.as_slice() {
            _ if !line.starts_with('|') => inside = false,
            ["claim", "test"] => inside = true,
            [claim, tests] if inside && !claim.starts_with("---") => {
                let named = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
                rows.push(((*claim).to_owned(), named));
            }
            [dashes, _] if dashes.starts_with("---") => {}
            other if inside => rows.push((other.join(" | "), Vec::new())),
            _ => {}
        }
    }
    rows
}

/// Whether a test of this name is in the file that its path leads to.
fn is_there(path: &str) -> bool {
    let (bases, rest): (&[&str], &str) = match path.strip_prefix("lib: ") {
        Some(rest) if rest.starts_with("providers::") || rest.starts_with("sandbox::") => (&[""], rest),
        Some(rest) => (&["src/core", "src"], rest),
        None => (&["tests"], path),
    };
    let parts: Vec<&str> = rest.split("::").collect();
    let Some((name, modules)) = parts.split_last() else { return false };
    // The last modules may stand within a file: `mod tests`, or what a macro makes of one test.
    (1..=modules.len()).rev().any(|length| {
        let (file, within) = modules.split_at(length);
        let stems = bases.iter().map(|base| root().join(base).join(file.join("/")));
        let files = stems.flat_map(|stem| [with_end(&stem, ".rs"), stem.join("mod.rs")]);
        files.filter_map(|file| std::fs::read_to_string(file).ok()).any(|text| {
            let has_modules =
                within.iter().all(|module| text.contains(&format!("mod {module} ")) || made_of_macro(&text));
            has_modules && has_test(&text, name)
        })
    })
}

fn made_of_macro(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("on_both! {"))
}

/// A function of this name is a test: by its attribute, or by the macro that makes tests of it.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let signature = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        let is_it = line.starts_with(&signature) || line.contains(&format!(" {signature}"));
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        let is_test = above.filter(|line| line.starts_with("#[")).any(|line| line.contains("test"));
        is_it && (is_test || made_of_macro(text))
    })
}

fn with_end(stem: &Path, end: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[test]
fn each_claim_names_existing_tests() {
    let rows = rows(&read("docs/concepts/threat-model.md"));
    assert!(rows.len() > 100, "the tables were not read: {rows:?}");
    let mut wrong = Vec::new();
    for (claim, tests) in &rows {
        if tests.is_empty() {
            wrong.push(format!("no test: {claim}"));
        }
        wrong.extend(tests.iter().filter(|test| !is_there(test)).map(|test| format!("not there: {test} ({claim})")));
    }
    assert!(wrong.is_empty(), "claims of the threat model:\n{}", wrong.join("\n"));
}

#[test]
fn a_claim_without_an_existing_test_is_noticed() {
    let table = "| claim | test |\n|---|---|\n| a | `docs::security::each_claim_names_existing_tests` |\n| b | none |\n\n| c | d |\n";
    let named = "docs::security::each_claim_names_existing_tests".to_owned();
    assert_eq!(rows(table), [("a".to_owned(), vec![named.clone()]), ("b".to_owned(), Vec::new())]);
    assert!(
        is_there(&named)
            && is_there("lib: util::runtime_dir::tests::a_folder_for_sockets_must_be_private_to_this_user")
    );
    assert!(is_there(
        "lib: providers::lambda::api::tests::an_instance_is_read_despite_unknown_fields_and_without_its_secrets"
    ));
    // Neither a helper nor a name in another file is a test of that path.
    assert!(!is_there("docs::security::rows") && !is_there("docs::security::links_between_documents_lead_somewhere"));
    assert!(!is_there("lib: state::owner::tests::no_such_test"));
}

/// Workflows run reviewed code: a tag can be moved, a commit cannot.
#[test]
fn actions_of_workflows_are_pinned_by_commit() {
    for entry in std::fs::read_dir(root().join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses:")) {
            let (action, version) = line.split_once('#').unwrap_or((line, ""));
            let commit = action.trim().split_once('@').map_or("", |(_, commit)| commit);
            let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_commit && version.trim().starts_with('v'), "{}: {line}", path.display());
        }
    }
}
