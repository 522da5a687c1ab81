//! Adding a provider is adding one folder: a copy of `providers/_template` is built, listed and checked.

#![expect(clippy::unwrap_used, reason = "a file that cannot be copied fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::TestEnv;

/// What the copy is called, as a package version and as a program, so that it shares the folder of the built crates
/// with this build and overwrites nothing of it.
const COPY: &str = "0.0.0-copy";
const PROGRAM: &str = "gpucl-with-acme";

/// The template's own tests, among those of the library, show that it keeps the contract. This test shows that a
/// provider needs nothing but its folder.
#[test]
fn the_build_script_lists_a_new_provider_folder() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = tempfile::tempdir().unwrap();
    let of = |name: &str| tree.path().join("providers").join(name).join("mod.rs");
    for name in ["_template", "acme", "local"] {
        fs_err::create_dir_all(of(name).parent().unwrap()).unwrap();
        fs_err::copy(project.join("providers/_template/mod.rs"), of(name)).unwrap();
    }
    for folder in ["providers/notes", "out"] {
        fs_err::create_dir_all(tree.path().join(folder)).unwrap();
    }
    let script = tree.path().join("build-script");
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let compiled = Command::new(rustc)
        .args(["--edition", "2024", "-o"])
        .arg(&script)
        .arg(project.join("providers/build.rs"))
        .output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&script)
        .env("CARGO_MANIFEST_DIR", tree.path().join("providers"))
        .env("OUT_DIR", tree.path().join("out"))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));

    let list = fs_err::read_to_string(tree.path().join("out/providers.rs")).unwrap();
    let module = |name: &str| format!("#[path = {:?}]\npub mod {name};\n", of(name).display().to_string());
    assert!(list.contains(&format!("#[cfg(test)]\n{}", module("_template"))), "{list}");
    assert!(list.contains(&format!("\n{}{}", module("acme"), module("local"))), "{list}");
    assert!(list.ends_with("= &[\n    &acme::FACTORY,\n    &local::FACTORY,\n];\n"), "{list}");
    // This is how the program's own providers get into it.
    let built = TestEnv::new().run(&["provider", "list"]).exits(0);
    for name in ["local", "ssh"] {
        assert!(project.join("providers").join(name).join("mod.rs").is_file());
        assert!(built.stdout.lines().any(|line| line.trim_start().starts_with(name)), "{}", built.stdout);
    }
}

/// The whole program is built once more, with the copy in it: by `just template-provider`, and in the workflow on
/// GitHub.
#[test]
#[ignore = "by hand: just template-provider"]
fn a_copy_of_the_template_under_a_new_name_is_listed_and_keeps_the_contract() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("project-with-acme");
    copy_project(project, &copy);
    // All that a user has to do: copy the folder, write the name.
    let acme = copy.join("providers/acme");
    mirror(&project.join("providers/_template"), &acme, &|path, text| {
        let is_manifest = path.ends_with("provider.yaml");
        if is_manifest { text.replace("name: _template", "name: acme") } else { text }
    });

    let built = Path::new(env!("CARGO_BIN_EXE_gpucl")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // An integration test among the targets has the program built, with the features that this build has. The
    // template's own tests are among those of the library.
    cargo.args(["test", "--offline", "--locked", "--no-run", "--test", "main"]);
    cargo.arg("--target-dir").arg(built.parent().unwrap()).current_dir(&copy).env("CARGO_INCREMENTAL", "0");
    if built.ends_with("release") {
        cargo.arg("--release");
    }
    let output = cargo.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(!stderr.contains("--> providers/acme"), "the template warns:\n{stderr}");

    let env = TestEnv::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(built.join(PROGRAM));
        let output = command.args(arguments).env_clear().env("HOME", env.home()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let list = run(&["provider", "list"]);
    assert!(list.lines().any(|line| line.trim_start().starts_with("acme ")), "{list}");
    assert!(list.lines().any(|line| line.trim_start().starts_with("local ")), "{list}");
    let check = run(&["provider", "check", "acme"]);
    assert!(check.ends_with("conformance of acme: 14 passed, 0 failed, 3 not applicable\n"), "{check}");
}

/// Everything but the tests and what is built, under another version and another name of the program.
fn copy_project(project: &Path, copy: &Path) {
    let edit = |path: &Path, text: String| match path.file_name().and_then(|name| name.to_str()) {
        Some("Cargo.toml") => text
            .replace(&version(env!("CARGO_PKG_VERSION")), &version(COPY))
            .replace("default-run = \"gpucl\"", &format!("default-run = \"{PROGRAM}\""))
            .replace("[[bin]]\nname = \"gpucl\"", &format!("[[bin]]\nname = \"{PROGRAM}\"")),
        Some("Cargo.lock") => {
            let ours = ["gpucl", "gpucl-core", "gpucl-fuzz", "gpucl-providers", "gpucl-sandbox"];
            ours.iter().fold(text, |text, name| {
                let package = |of: &str| format!("name = \"{name}\"\n{}", version(of));
                text.replacen(&package(env!("CARGO_PKG_VERSION")), &package(COPY), 1)
            })
        }
        _ => text,
    };
    fs_err::create_dir_all(copy).unwrap();
    for entry in fs_err::read_dir(project).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.starts_with('.') && !["target", "tests"].contains(&name) {
            mirror(&path, &copy.join(name), &edit);
        }
    }
    fs_err::create_dir_all(copy.join("tests")).unwrap();
    write_changed(&copy.join("tests/main.rs"), b"//! The copy is tested by its list of providers.\n");
}

fn version(of: &str) -> String {
    format!("version = \"{of}\"")
}

/// Makes `to` what `from` is. A file that is the same already keeps its time, so that nothing is built again for it.
fn mirror(from: &Path, to: &Path, edit: &dyn Fn(&Path, String) -> String) {
    if !from.is_dir() {
        let bytes = fs_err::read(from).unwrap();
        let bytes =
            String::from_utf8(bytes).map_or_else(|error| error.into_bytes(), |text| edit(from, text).into_bytes());
        write_changed(to, &bytes);
        return;
    }
    fs_err::create_dir_all(to).unwrap();
    let names = |folder: &Path| -> Vec<PathBuf> {
        fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into()).collect()
    };
    let wanted = names(from);
    // `acme` is only in the copy, and stays there from one run to the next.
    for stale in names(to).iter().filter(|name| !wanted.contains(name) && !name.ends_with("acme")) {
        let path = to.join(stale);
        if path.is_dir() { fs_err::remove_dir_all(path).unwrap() } else { fs_err::remove_file(path).unwrap() }
    }
    for name in wanted {
        mirror(&from.join(&name), &to.join(&name), edit);
    }
}

fn write_changed(path: &Path, bytes: &[u8]) {
    if fs_err::read(path).ok().as_deref() != Some(bytes) {
        fs_err::write(path, bytes).unwrap();
    }
}
