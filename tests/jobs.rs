//! Jobs, `env` and the portal, as far as they need no Ray; the rest is in the scenarios.

#![expect(clippy::unwrap_used, reason = "what a test stands on may fail it")]

mod browser;
mod follow;
mod names;
mod portal;
mod secrets;
mod submit;
mod waiting;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use gpucl::error::ErrorKind;
use gpucl::ray::{self, Access, JobStatus, Package, RuntimeEnv, Shell, WorkingDir};
use gpucl::util::fence::Fence;
use serde_json::json;

use crate::support::{TestEnv, too_long_a_way};

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("gpucl-test-").tempdir().unwrap()
}

/// A fence around the test's folder.
pub(crate) fn fence(root: &Path) -> Fence {
    Fence::new(root, "the working folder", &[]).unwrap()
}

pub(crate) fn write(root: &Path, name: &str, text: &str) -> PathBuf {
    let path = root.join(name);
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(&path, text).unwrap();
    path
}

/// What Python's own reader finds in the package: name, mode, first line.
pub(crate) fn unpacked(package: &Package) -> Vec<String> {
    let place = folder();
    let path = place.path().join("p.zip");
    fs_err::write(&path, package.bytes()).unwrap();
    let program = "import sys, zipfile\n\
        for i in zipfile.ZipFile(sys.argv[1]).infolist(): print(i.filename, oct(i.external_attr >> 16 & 0o777), i.date_time[0])";
    let output = Command::new("python3").args(["-c", program]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn equal_folders_give_equal_packages() {
    let (one, two) = (folder(), folder());
    for (place, names) in [(&one, ["b.py", "a/c.py", ".hidden"]), (&two, [".hidden", "a/c.py", "b.py"])] {
        names.iter().for_each(|name| drop(write(place.path(), name, &format!("# {name}\n"))));
    }
    // A copy has other times.
    fs_err::OpenOptions::new()
        .write(true)
        .open(two.path().join("b.py"))
        .unwrap()
        .into_parts()
        .0
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let first = Package::of_folder(one.path(), &[]).unwrap();
    let second = Package::of_folder(two.path(), &[]).unwrap();
    assert_eq!(first.bytes(), second.bytes());
    assert_eq!(first.name(), second.name());
    assert_eq!((first.name().len(), first.files()), ("_ray_pkg_.zip".len() + 16, 3));
    write(two.path(), "b.py", "# another\n");
    assert_ne!(first.name(), Package::of_folder(two.path(), &[]).unwrap().name());
}

#[test]
fn a_package_holds_what_the_ignore_files_leave() {
    let place = folder();
    let root = place.path();
    for name in ["main.py", "data/big.bin", "data/keep.csv", "lib/x.pyc", "lib/x.py", "notes.md", "out/model.pt"] {
        write(root, name, "x\n");
    }
    for name in [".git/config", "venv/bin/python", "lib/__pycache__/x.pyc", ".env"] {
        write(root, name, "x\n");
    }
    write(root, ".gitignore", "*.pyc\n/data/*\n!/data/keep.csv\n");
    write(root, ".rayignore", "notes.md\n");
    let tool = write(root, "run.sh", "#!/bin/sh\n");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o700)).unwrap();
    let package = Package::of_folder(root, &["out".to_owned()]).unwrap();
    assert_eq!(
        unpacked(&package),
        [
            ".env 0o644 1980",
            ".gitignore 0o644 1980",
            ".rayignore 0o644 1980",
            "data/ 0o755 1980",
            "data/keep.csv 0o644 1980",
            "lib/ 0o755 1980",
            "lib/x.py 0o644 1980",
            "main.py 0o644 1980",
            "run.sh 0o755 1980",
        ]
    );
}

#[test]
fn links_are_followed_within_the_folder_only() {
    let (place, outside) = (folder(), folder());
    let root = place.path();
    write(outside.path(), "secret", "s\n");
    write(root, "src/a.py", "x\n");
    symlink(root.join("src"), root.join("again")).unwrap();
    symlink(outside.path(), root.join("away")).unwrap();
    symlink(outside.path().join("secret"), root.join("secret")).unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    symlink("..", root.join("src/up")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
    let package = Package::of_folder(root, &[]).unwrap();
    let names: Vec<String> = unpacked(&package).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(names, ["again/", "again/a.py", "src/", "src/a.py"]);
    let skipped = package.skipped().join("\n");
    for name in ["away: ", "secret: ", "broken: ", "pipe: ", "src/up: "] {
        assert!(skipped.contains(name), "{name} is not reported:\n{skipped}");
    }
}

/// The system opens a path by links that nobody can spell out, as it is longer than 4096 bytes.
#[test]
fn a_link_that_cannot_be_followed_leads_outside() {
    let (place, outside) = (folder(), folder());
    let root = place.path();
    let secret = write(outside.path(), "secret", "hush\n");
    write(root, "code/a.py", "x\n");
    let far = too_long_a_way(root, "k0", "");
    std::fs::remove_file(root.join(&far)).unwrap();
    symlink(&secret, root.join(&far)).unwrap();
    symlink(format!("../{far}"), root.join("code/note.txt")).unwrap();
    assert_eq!(std::fs::read_to_string(root.join("code/note.txt")).unwrap(), "hush\n", "the system opens it");
    // By a process whose folder is gone.
    let gone = outside.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut sleeper = Command::new("sleep").arg("300").current_dir(&gone).spawn().unwrap();
    std::fs::remove_dir(&gone).unwrap();
    symlink(format!("/proc/{}/cwd/../secret", sleeper.id()), root.join("code/more.txt")).unwrap();
    assert_eq!(std::fs::read_to_string(root.join("code/more.txt")).unwrap(), "hush\n", "the system opens it");
    let package = Package::of_folder(&root.join("code"), &[]).unwrap();
    let names: Vec<String> = unpacked(&package).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(names, ["a.py"]);
    for name in ["note.txt: ", "more.txt: "] {
        assert!(package.skipped().join("\n").contains(name), "{:?}", package.skipped());
    }
}

/// The walk reads them whole: a stranger's would never end.
#[test]
fn patterns_that_are_no_regular_file_are_refused() {
    for place_of in [".gitignore", "src/.rayignore"] {
        let place = folder();
        let root = place.path();
        write(root, "src/a.py", "x\n");
        assert!(Command::new("mkfifo").arg(root.join(place_of)).status().unwrap().success());
        let error = Package::of_folder(root, &[]).unwrap_err();
        assert!(error.causes()[1].ends_with(&format!("{place_of}: only a regular file is read")), "{error:?}");
        std::fs::remove_file(root.join(place_of)).unwrap();
        for endless in ["/dev/zero", "/proc/self/pagemap"] {
            symlink(endless, root.join(place_of)).unwrap();
            assert!(Package::of_folder(root, &[]).is_err(), "{endless}");
            std::fs::remove_file(root.join(place_of)).unwrap();
        }
    }
}

#[test]
fn a_package_too_large_names_the_largest_files() {
    let place = folder();
    for number in 1..=7_usize {
        // What cannot be compressed, so that the limit is met.
        let noise: String = (0..number * 400).map(|at| char::from(b'!' + (at * at * 7919 % 89) as u8)).collect();
        write(place.path(), &format!("f{number}"), &noise);
    }
    let error = Package::of_folder_within(place.path(), &[], 700).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    let cause = &error.causes()[0];
    assert!(cause.contains("f7") && cause.contains("f3") && !cause.contains("f2"), "{cause}");
    assert!(error.hints()[0].contains(".gitignore"));
}

#[test]
fn a_shell_gets_the_arguments_unchanged() {
    let arguments = ["a b", "", "it's", "$HOME", "*", "two\nlines", "--x=1,2", "~", "\\", "\"q\"", "a;b", "!x", "ü"];
    let line = ray::shell_line(&[&["printf", "<%s>"], &arguments[..]].concat());
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let expected: String = arguments.iter().map(|argument| format!("<{argument}>")).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!(ray::shell_line(&["python", "train.py", "--lr=0.1"]), "python train.py --lr=0.1");
}

#[test]
fn the_exit_code_is_that_of_the_job() {
    let cases = [
        (JobStatus::Succeeded, Some(0), 0),
        (JobStatus::Failed, Some(3), 3),
        (JobStatus::Failed, Some(255), 255),
        (JobStatus::Failed, Some(256), 1),
        (JobStatus::Failed, Some(-9), 137),
        (JobStatus::Failed, Some(0), 1),
        (JobStatus::Failed, None, 1),
        (JobStatus::Stopped, Some(0), 1),
        (JobStatus::Stopped, None, 1),
    ];
    for (status, code, expected) in cases {
        assert_eq!(ray::exit_code(status, code), expected, "{status:?} {code:?}");
    }
}

#[test]
fn an_id_is_part_of_an_address() {
    ray::check_id("train-7.b_C").unwrap();
    for wrong in ["", "a/b", "..", "a b", "ä", &"x".repeat(129)] {
        assert_eq!(ray::check_id(wrong).unwrap_err().kind(), ErrorKind::Usage, "{wrong}");
    }
}

#[test]
fn a_runtime_environment_is_read_and_packed() {
    let place = folder();
    let root = place.path();
    write(root, "env.yaml", "working_dir: ./src\nexcludes: ['*.bin']\npip: req.txt\nenv_vars: {A: one}\n");
    write(root, "req.txt", "# needs\ntorch==2.9\n\nnumpy\n");
    write(root, "src/a.py", "x\n");
    let mut env = RuntimeEnv::read("env.yaml", &fence(root)).unwrap();
    env.set_variable("B", "two").unwrap();
    let dir = env.take_working_dir(None, root).unwrap();
    assert_eq!(dir, Some(WorkingDir::Folder(root.join("./src"), vec!["*.bin".to_owned()])));
    env.set_working_dir("gcs://x.zip".to_owned());
    assert_eq!(
        serde_json::Value::Object(env.into_fields()),
        json!({"pip": ["torch==2.9", "numpy"], "env_vars": {"A": "one", "B": "two"}, "working_dir": "gcs://x.zip"})
    );
    let both =
        RuntimeEnv::read("env.yaml", &fence(root)).unwrap().take_working_dir(Some(Path::new("src")), root).unwrap_err();
    assert_eq!(both.kind(), ErrorKind::Usage);
    assert!(both.to_string().contains("--working-dir says `src`"), "{both}");
    let remote = RuntimeEnv::read(r#"{"working_dir": "s3://b/x.zip"}"#, &fence(root))
        .unwrap()
        .take_working_dir(None, root)
        .unwrap();
    assert_eq!(remote, None);
    assert!(RuntimeEnv::read("[1]", &fence(root)).is_err() && RuntimeEnv::read("{", &fence(root)).is_err());
}

fn access(environment: Option<&str>) -> Access {
    Access {
        dashboard_url: "http://127.0.0.1:8265".to_owned(),
        gcs_address: "127.0.0.1:6379".to_owned(),
        token_path: "/state/it's a/token".into(),
        environment: environment.map(PathBuf::from),
        data: None,
        client_address: "ray://127.0.0.1:10001".to_owned(),
    }
}

#[test]
fn env_sets_and_unsets_what_ray_needs() {
    let access = access(Some("/env/ray"));
    let path = "/usr/bin:/env/ray/bin:/bin";
    let (set, unset) = (
        Shell::Bash.render(&access.settings(Some(path))),
        Shell::Bash.render(&access.unsettings(Some("/env/ray/bin:/usr/bin:/bin"))),
    );
    let show = "printf '%s|%s|%s|%s|%s|%s\\n' \"$RAY_API_SERVER_ADDRESS\" \"$RAY_ADDRESS\" \"$RAY_AUTH_MODE\" \
        \"${RAY_AUTH_TOKEN-none}\" \"$RAY_AUTH_TOKEN_PATH\" \"$PATH\"";
    let output = Command::new("/bin/sh")
        .args(["-c", &format!("eval \"$1\"\n{show}\neval \"$2\"\n{show}"), "sh", &set, &unset])
        .env_clear()
        .env("RAY_AUTH_TOKEN", "another cluster's")
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "http://127.0.0.1:8265|127.0.0.1:6379|token|none|/state/it's a/token|/env/ray/bin:/usr/bin:/bin\n|||none||/usr/bin:/bin\n"
    );
}

#[test]
fn env_supports_fish_csh_and_a_remote_cluster() {
    let fish = Shell::Fish.render(&access(Some("/e")).settings(Some("/a b:/c")));
    assert!(fish.contains("set -gx RAY_AUTH_TOKEN_PATH '/state/it\\'s a/token';\n"), "{fish}");
    assert!(
        fish.contains("set -gx PATH '/e/bin' '/a b' '/c';\nset")
            || fish.ends_with("set -gx PATH '/e/bin' '/a b' '/c';\n")
    );
    let csh = Shell::Csh.render(&access(None).settings(Some("/a")));
    assert!(csh.contains("setenv RAY_ADDRESS 'ray://127.0.0.1:10001';\n") && !csh.contains("PATH '/a"), "{csh}");
    assert!(csh.contains("unsetenv RAY_AUTH_TOKEN;\n"));
}

#[test]
fn a_wrong_command_line_is_refused_before_the_cluster_is_asked() {
    let env = TestEnv::new();
    let _ = env.run(&["job", "submit", "--id", "a/b", "--", "true"]).exits(2).says("use `a/b` as a job's id");
    let _ = env.run(&["job", "submit", "--env", "A", "--", "true"]).exits(2).says("NAME=VALUE");
    let _ = env.run(&["job", "submit"]).exits(2).says("<COMMAND>");
    let _ = env
        .run(&["job", "submit", "--working-dir", ".", "--runtime-env", r#"{"working_dir": "x"}"#, "--", "true"])
        .exits(2)
        .says("leave one of the two out");
}
