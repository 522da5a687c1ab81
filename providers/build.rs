//! Lists the providers, the folders beside this file: adding one takes a new folder and no other edit.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo passes settings to build scripts in the environment, and this one adds no dependency"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("providers.rs"), providers(&folder)?)
}

/// Every folder that has a `mod.rs`; those whose name begins with `_` are compiled only for tests.
fn providers(folder: &Path) -> std::io::Result<String> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
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
