//! Embeds `playbooks/`, `templates/` and `examples/`: adding one of them takes a new file and no other edit. They are
//! links here, so that a package of this crate contains what they lead to.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo passes settings to build scripts in the environment, and this one adds no dependency"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("embedded.rs"), embedded(&root)?)
}

/// Every file under these folders, by its path relative to the project root.
fn embedded(root: &Path) -> std::io::Result<String> {
    let mut files = Vec::new();
    for folder in ["examples", "playbooks", "templates"] {
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
        if path.is_dir() && (path.ends_with("tests") || path.ends_with("__pycache__")) {
            // A template's tests are not part of it, nor is what Python leaves behind where an example was run.
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
