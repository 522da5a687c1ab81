//! What a release consists of: how the README says that it is installed, and that packing gives the same bytes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::{documents, read, root};

/// Whoever takes that name on an index would own those who install it.
#[test]
fn no_document_and_no_message_installs_gpucl_by_a_name_on_an_index() {
    let installers = [
        "pip install ",
        "pip3 install ",
        "uv tool install ",
        "uvx ",
        "pipx install ",
        "pipx run ",
        "uv add ",
        "cargo install ",
    ];
    let by_name = |line: &str| {
        installers.iter().any(|installer| {
            let arguments = line.split(installer).skip(1).flat_map(|rest| rest.split([' ', '`', '"', '\'']));
            arguments.into_iter().any(|word| word == "gpucl" || word.starts_with("gpucl=="))
        })
    };
    assert!(by_name("`pip install --user gpucl`, then") && by_name("pipx install gpucl==0.1.0"));
    assert!(!by_name("pip install ./gpucl-0.1.0-py3-none-any.whl") && !by_name("cargo install --path ."));
    let code = crate::architecture::rust(&["src", "providers", "sandbox"]).into_iter().map(|path| root().join(path));
    for path in documents().into_iter().chain(code) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            assert!(!by_name(line), "{}:{number}: {line}", path.display());
        }
    }
}

#[test]
fn documents_name_the_files_as_they_are_made() {
    let version = env!("CARGO_PKG_VERSION");
    let wheel = format!("./gpucl-{version}-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl");
    let deb = format!("./gpucl_{version}_amd64.deb");
    let tarball = format!("gpucl-{version}-x86_64-unknown-linux-gnu.tar.gz");
    let (readme, guide) = (read("README.md"), read("docs/guides/install.md"));
    for name in [&wheel, &deb] {
        assert!(readme.contains(name) && guide.contains(name), "{name}");
    }
    assert!(guide.contains(&tarball), "{tarball}");
    // The folder that builds them is not where they are.
    assert!(read("packaging/build").contains("to=$root/target/packages"));
}

/// A tree as `packaging/build` hands it over, in a folder of its own and written in an order of its own.
fn tree(folder: &Path, reversed: bool) {
    let mut files = vec![
        ("program", "not a program"),
        ("share/man/man1/gpucl.1", ".TH gpucl 1"),
        ("share/man/man1/gpucl-up.1", ".TH gpucl-up 1"),
        ("share/zsh/site-functions/_gpucl", "#compdef gpucl"),
        ("share/bash-completion/completions/gpucl", "complete gpucl"),
        ("source/CHANGELOG.md", "# Changelog"),
        ("source/LICENSE-MIT", "Permission is hereby granted"),
        ("source/LICENSE-APACHE", "Apache License"),
        ("source/README.md", "# gpucl"),
        (
            "source/pyproject.toml",
            "name = \"gpucl\"\ndescription = \"A\"\nlicense = \"MIT\"\nrequires-python = \">=3.7\"\n",
        ),
    ];
    if reversed {
        files.reverse();
    }
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        // Of another umask.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(if reversed { 0o600 } else { 0o664 })).unwrap();
    }
    std::fs::create_dir(folder.join("to")).unwrap();
}

#[test]
fn packing_the_same_files_gives_the_same_bytes() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    tree(one.path(), false);
    tree(other.path(), true);
    let has_dpkg = Command::new("dpkg-deb").arg("--version").output().is_ok();
    let packed = |folder: &Path| {
        let run = |command: &mut Command| {
            let done = command.env("SOURCE_DATE_EPOCH", "1800000000").output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        let tarball = folder.join("to/share.tar.gz");
        run(Command::new("python3")
            .arg(root().join("packaging/tarball.py"))
            .arg(folder.join("share"))
            .arg(&tarball)
            .arg("9"));
        run(Command::new("python3")
            .arg(root().join("packaging/wheel.py"))
            .args(["0.1.0", "manylinux_2_34_x86_64"])
            .args(["program", "share", "source", "to"].map(|name| folder.join(name))));
        if has_dpkg {
            run(Command::new(root().join("packaging/deb"))
                .args(["0.1.0", "x86_64-unknown-linux-gnu"])
                .args(["program", "share", "source", "to"].map(|name| folder.join(name)))
                .args(["libc6 (>= 2.17)", "6"]));
        }
        let read = |name: &str| std::fs::read(folder.join("to").join(name)).unwrap();
        (
            read("share.tar.gz"),
            read("gpucl-0.1.0-py3-none-manylinux_2_34_x86_64.whl"),
            has_dpkg.then(|| read("gpucl_0.1.0_amd64.deb")),
        )
    };
    assert!(packed(one.path()) == packed(other.path()), "the packages differ");
    if !has_dpkg {
        crate::support::skipped("there is no dpkg-deb, which makes the .deb");
        return;
    }
    let listed = Command::new("dpkg-deb").arg("--contents").arg(one.path().join("to/gpucl_0.1.0_amd64.deb")).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    for line in ["-rwxr-xr-x root/root", "./usr/bin/gpucl", "-rw-r--r-- root/root", "./usr/share/man/man1/gpucl.1.gz"] {
        assert!(listed.contains(line), "{line} in\n{listed}");
    }
}
