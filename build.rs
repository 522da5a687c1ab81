//! Generates the provider registry from `providers/*/mod.rs` and embeds `playbooks/` and `templates/`: adding
//! a provider, a playbook or a template takes one new folder or file and no other edit.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo passes settings to build scripts in the environment, and this one adds no dependency"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("providers.rs"), providers(&root)?)?;
    std::fs::write(out.join("embedded.rs"), embedded(&root)?)?;
    Ok(())
}

/// Every folder under `providers/` that has a `mod.rs`; those whose name begins with `_` are compiled only for tests.
fn providers(root: &Path) -> std::io::Result<String> {
    let folder = root.join("providers");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().join("mod.rs").is_file() {
            names.push(name);
        }
    }
    names.sort();
    let mut text = String::new();
    for name in &names {
        let path = folder.join(name).join("mod.rs");
        let only = if name.starts_with('_') { "#[cfg(test)]\n" } else { "" };
        let _ = writeln!(text, "{only}#[path = {:?}]\npub mod {name};", path.display().to_string());
    }
    names.retain(|name| !name.starts_with('_'));
    let _ = writeln!(
        text,
        "/// All built-in providers, sorted by name.\n\
         pub static BUILTIN: &[&dyn crate::provider::Factory] = &["
    );
    for name in &names {
        let _ = writeln!(text, "    &{name}::FACTORY,");
    }
    text.push_str("];\n");
    Ok(text)
}

/// Every file under `playbooks/` and `templates/`, by its path relative to the project root.
fn embedded(root: &Path) -> std::io::Result<String> {
    let mut files = Vec::new();
    for folder in ["playbooks", "templates"] {
        walk(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut text = String::from(
        "/// The built-in data files: path relative to the project root, and content.\n\
         pub static FILES: &[(&str, &[u8])] = &[\n",
    );
    for file in files {
        let relative = file.strip_prefix(root).unwrap_or(&file);
        let _ = writeln!(text, "    ({:?}, include_bytes!({:?})),", relative.to_string_lossy(), file.to_string_lossy());
    }
    text.push_str("];\n");
    Ok(text)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && path.ends_with("tests") {
            // A template's tests are not part of it.
            continue;
        }
        if path.is_dir() {
            walk(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
