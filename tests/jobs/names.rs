//! Names in a working folder that Ray's unpacking drops, and folders of which nothing is left.

#![expect(clippy::unwrap_used, reason = "what a test stands on may fail it")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpucl::ray::{ModuleSource, Package, files_of};

use super::{folder, write};

/// Which names the unpacking of Ray 2.60.0 takes: the condition is that of `unzip_package` in its
/// `_private/runtime_env/packaging.py`. With Ray itself in the environment of `python`, its own code is run.
const UNPACK: &str = r#"
import ntpath, os, sys, zipfile
package, goal = sys.argv[1:]
try:
    from ray._private.runtime_env.packaging import unzip_package
    unzip_package(package, goal, False, False)
except ImportError:
    with zipfile.ZipFile(package) as file:
        for name in file.namelist():
            if not ("\\" in name or os.path.isabs(name) or ntpath.isabs(name) or ntpath.splitdrive(name)[0]):
                file.extract(name, goal)
"#;

fn odd(root: &Path, name: &[u8]) -> PathBuf {
    let path = root.join(OsStr::from_bytes(name));
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(&path, "x\n").unwrap();
    path
}

/// The files that are there after Ray's unpacking by this Python, by their paths as bytes.
fn on_the_node(package: &Package, python: &Path) -> Vec<Vec<u8>> {
    fn walk(folder: &Path, top: &Path, found: &mut Vec<Vec<u8>>) {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, top, found);
            } else {
                found.push(path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec());
            }
        }
    }
    let place = folder();
    let (zip, goal) = (place.path().join("p.zip"), place.path().join("goal"));
    fs_err::write(&zip, package.bytes()).unwrap();
    let output = Command::new(python).args(["-c", UNPACK]).args([&zip, &goal]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = Vec::new();
    walk(&goal, &goal, &mut found);
    found.sort();
    found
}

/// Names that arrive as they are, and names that would be renamed or dropped, with how they are shown.
const GOOD: &[&[u8]] =
    &[b"a'b\"c $d.txt", b"deep/a:b.txt", b"line\nend\t.txt", b"plain", b"\x1b[31mred", "caf\u{e9}.txt".as_bytes()];
const BAD: &[(&[u8], &str, &str)] = &[
    (b"caf\xe8.txt", r"caf\xe8.txt", "not UTF-8"),
    (b"caf\xe9.txt", r"caf\xe9.txt", "not UTF-8"),
    (b"dir\xff/inner.txt", r"dir\xff", "not UTF-8"),
    (b"back\\slash.txt", r"back\slash.txt", "backslash"),
    (b"deep/end\\/x.txt", r"deep/end\", "backslash"),
    (b"a:b.txt", "a:b.txt", "drive"),
    (b"c:/x", "c:", "drive"),
    ("\u{e9}:x".as_bytes(), "\u{e9}:x", "drive"),
];

fn what_is_sent_arrives(python: &Path) {
    let place = folder();
    let root = place.path();
    GOOD.iter().for_each(|name| drop(odd(root, name)));
    BAD.iter().for_each(|(name, ..)| drop(odd(root, name)));
    let package = Package::of_folder(root, &[]).unwrap();
    let mut sent: Vec<Vec<u8>> = GOOD.iter().map(|name| name.to_vec()).collect();
    sent.sort();
    assert_eq!(on_the_node(&package, python), sent);
    assert_eq!(package.files(), GOOD.len());
    let skipped = package.skipped();
    for (_, shown, why) in BAD {
        let line = skipped.iter().find(|line| line.starts_with(&format!("{shown}: ")));
        assert!(line.is_some_and(|line| line.contains(why)), "{shown} is not named: {skipped:?}");
    }
    assert_eq!(skipped.len(), BAD.len(), "{skipped:?}");
}

#[test]
fn what_ray_would_drop_or_rename_is_left_out_and_named() {
    what_is_sent_arrives(Path::new("python3"));
}

/// The same, by the code of the real Ray, if the tests' environment holds it.
#[test]
#[ignore = "testbed"]
fn the_real_ray_unpacks_what_is_sent() {
    let environments = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache/gpucl/environments");
    let found = std::fs::read_dir(environments).unwrap().map(|entry| entry.unwrap().path().join("bin/python"));
    what_is_sent_arrives(&found.into_iter().find(|path| path.is_file()).unwrap());
}

#[test]
fn a_module_may_have_a_drive_in_it_and_not_in_its_name() {
    let place = folder();
    let root = place.path();
    write(root, "mine/__init__.py", "");
    write(root, "mine/c:/data", "");
    let of = |name: &str| Package::of_module(&ModuleSource::Folder(root.join(name), Vec::new()));
    let mine = of("mine").unwrap();
    assert_eq!(mine.skipped(), [] as [String; 0]);
    assert_eq!(on_the_node(&mine, Path::new("python3")), [b"mine/__init__.py".to_vec(), b"mine/c:/data".to_vec()]);
    for name in ["m:x", r"m\x"] {
        write(root, &format!("{name}/__init__.py"), "");
        assert!(of(name).is_err(), "{name}");
        let file = write(root, &format!("{name}.py"), "");
        assert!(Package::of_module(&ModuleSource::File(file)).is_err(), "{name}");
    }
}

/// They are not unpacked by Ray.
#[test]
fn files_for_hosts_keep_all_names_that_are_text() {
    let place = folder();
    GOOD.iter().for_each(|name| drop(odd(place.path(), name)));
    BAD.iter().for_each(|(name, ..)| drop(odd(place.path(), name)));
    let (files, skipped) = files_of(place.path()).unwrap();
    let is_text = |name: &&[u8]| std::str::from_utf8(name).is_ok();
    let all = GOOD.iter().copied().chain(BAD.iter().map(|(name, ..)| *name));
    let mut wanted: Vec<&str> = all.filter(is_text).map(|name| std::str::from_utf8(name).unwrap()).collect();
    wanted.sort_unstable();
    assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), wanted);
    assert_eq!(skipped.len(), 3, "{skipped:?}");
}

#[test]
fn files_that_hide_modules_are_named() {
    let place = folder();
    let root = place.path();
    for name in ["random.py", "ray/__init__.py", "ray/data.py", "http/notes.md", "train.py", "lib/queue.py"] {
        write(root, name, "x = 1\n");
    }
    assert_eq!(Package::of_folder(root, &[]).unwrap().hiding(), ["random.py", "ray/__init__.py"]);
    assert_eq!(Package::of_folder(root, &["ray".to_owned()]).unwrap().hiding(), ["random.py"]);
    let module = |source| Package::of_module(&source).unwrap().hiding().to_vec();
    assert_eq!(module(ModuleSource::File(root.join("random.py"))), ["random.py"]);
    assert_eq!(module(ModuleSource::Folder(root.join("lib"), Vec::new())), [] as [String; 0]);
    assert_eq!(module(ModuleSource::Folder(root.join("ray"), Vec::new())), ["ray/__init__.py"]);
}

#[test]
fn a_folder_of_which_the_patterns_leave_nothing_is_an_error() {
    let refused = |files: &[(&str, &str)], excludes: &[&str]| {
        let place = folder();
        files.iter().for_each(|(name, text)| drop(write(place.path(), name, text)));
        let excludes: Vec<String> = excludes.iter().map(|pattern| (*pattern).to_owned()).collect();
        Package::of_folder(place.path(), &excludes)
            .err()
            .map(|error| (error.causes().join("\n"), error.hints().join("\n")))
    };
    for (files, excludes, by) in [
        (&[(".gitignore", "*\n"), ("train.py", "")][..], &[][..], ".gitignore leaves"),
        (&[(".gitignore", "*\n!.gitignore\n"), ("train.py", ""), ("a/b.py", "")], &[], ".gitignore leaves"),
        (&[(".rayignore", "*.py\n"), ("train.py", "")], &[], ".rayignore leaves"),
        (&[("train.py", "")], &["*.py"], "`excludes` leaves"),
    ] {
        let (cause, hint) = refused(files, excludes).unwrap_or_else(|| panic!("{files:?} is packed"));
        assert!(cause.contains(by) && hint.contains(".rayignore"), "{cause}\n{hint}");
    }
    for files in [
        &[][..],
        &[(".git/config", "")],
        &[(".gitignore", "*\n")],
        // The hint's way.
        &[(".gitignore", "*\n"), (".rayignore", "!*.py\n"), ("train.py", "")],
        &[(".gitignore", "*\n"), (".rayignore", "!*/\n!*.py\n"), ("a/b.py", "")],
    ] {
        assert_eq!(refused(files, &[]), None, "{files:?}");
    }
}
