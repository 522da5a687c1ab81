//! What jobs leave in the data folder is not trusted.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::slot::{Slot, digest};

#[test]
fn links_pipes_and_sockets_are_not_followed_and_are_named() {
    let slot = Slot::new(&[("results", "s3://bucket/run1"), ("link", "s3://bucket/link"), ("results", "HOME/copy")]);
    let data = slot.home().join("data");
    slot.write("results/x", "x");
    slot.write("results/new\nline/\u{1b}[31mred", "red");
    std::fs::write(slot.root.path().join("secret"), "secret").unwrap();
    for (target, name) in [("../../../secret", "file"), ("/etc", "folder"), ("..", "up"), ("results", "../link")] {
        std::os::unix::fs::symlink(target, data.join("results").join(name)).unwrap();
    }
    for (kind, name) in [(rustix::fs::FileType::Fifo, "pipe"), (rustix::fs::FileType::Socket, "socket")] {
        rustix::fs::mknodat(rustix::fs::CWD, data.join("results").join(name), kind, rustix::fs::Mode::RWXU, 0).unwrap();
    }
    let bytes: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"results/\xff\xfe");
    std::fs::write(data.join(bytes), "no text").unwrap();
    // A file that has hardly anything in it, and is long.
    std::fs::File::create(data.join("results/sparse")).unwrap().set_len(40_000_000).unwrap();
    // A link at the destination: nothing is written through it.
    std::fs::create_dir_all(slot.home().join("copy")).unwrap();
    std::os::unix::fs::symlink("/etc", slot.home().join("copy/new\nline")).unwrap();
    let (code, state) = slot.save();
    let keys: Vec<String> = slot.held().into_keys().collect();
    assert_eq!(keys, ["run1/%FF%FE", "run1/new\nline/\u{1b}[31mred", "run1/sparse", "run1/x"]);
    assert_eq!(slot.held()["run1/sparse"], digest(vec![0; 40_000_000]));
    let failed = |at: usize| state["saved"][at]["failed"].as_str().unwrap_or_default();
    assert!(failed(0).starts_with("5 entries are no plain file and not saved: "), "{state}");
    assert!(failed(1).contains("link is neither a file nor a folder; links are not followed"), "{state}");
    assert!(code == 1 && failed(2).contains("cannot be written"), "{state}");
    assert!(
        std::fs::read_dir("/etc").unwrap().flatten().all(|entry| !entry.file_name().to_string_lossy().contains("red"))
    );
    assert_eq!(std::fs::read_to_string(slot.home().join("copy/x")).unwrap(), "x");
}

/// The folder is one when it is looked at, and a link when it is read.
#[test]
fn a_folder_that_becomes_a_link_while_it_is_copied_leads_nowhere() {
    let slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.store(&json!({"pause": 0.005}));
    let outside = slot.root.path().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    for number in 0..100 {
        std::fs::write(outside.join(number.to_string()), "secret").unwrap();
        slot.write(&format!("results/sub/{number}"), "public");
    }
    let (folder, other) = (slot.home().join("data/results/sub"), slot.home().join("data/other"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::fs::rename(&folder, &other).unwrap();
                std::os::unix::fs::symlink(&outside, &folder).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(3));
                std::fs::remove_file(&folder).unwrap();
                std::fs::rename(&other, &folder).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        });
        for _ in 0..3 {
            let _ = slot.save();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(slot.save().0, 0);
    let held = slot.held();
    assert_eq!(held.len(), 100);
    assert!(held.values().all(|sum| *sum == digest("public")), "what is outside was saved");
}

/// Writes a database, and dies within a change of it, so that its journal has what is to be put back; with `NAMED` the journal
/// names another file, which SQLite would remove once that is done: `PATH NAMED`.
const DIES: &str = r#"import os, signal, sqlite3, subprocess, sys
path, named = sys.argv[1], sys.argv[2].encode()
if len(sys.argv) < 4:
    subprocess.call([sys.executable, "-I", "-B", "-c", os.environ["PROGRAM"], path, "", "dies"])
    if named:
        with open(path + "-journal", "ab") as file:
            end = len(named).to_bytes(4, "big") + sum(named).to_bytes(4, "big") + bytes.fromhex("d9d505f920a163d7")
            file.write(b"\0\0\0\1" + named + end)
    sys.exit()
base = sqlite3.connect(path, isolation_level=None)
base.execute("create table a(n, t)")
base.execute("begin")
base.executemany("insert into a values(?, ?)", [(n, "x" * 1000) for n in range(2000)])
base.execute("commit")
base.execute("pragma cache_size=5")
base.execute("begin")
base.execute("update a set t = 'y' || t")
os.kill(os.getpid(), signal.SIGKILL)
"#;

/// A program that died within a change: SQLite puts back what was before, in the copy. A journal that would have SQLite remove
/// another file is not read.
#[test]
fn a_database_whose_writer_died_is_whole_and_its_journal_removes_nothing() {
    let slot = Slot::new(&[("runs", "HOME/copy")]);
    slot.write("runs/other", "other");
    let runs = slot.home().join("data/runs");
    let precious = slot.root.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    for (name, named) in [("died.db", String::new()), ("trap.db", precious.display().to_string())] {
        let mut command = std::process::Command::new("python3");
        command.args(["-I", "-B", "-c", DIES]).arg(runs.join(name)).arg(named).env("PROGRAM", DIES);
        assert!(command.status().unwrap().success());
        assert!(runs.join(format!("{name}-journal")).metadata().unwrap().len() > 100_000);
    }
    let (code, state) = slot.save();
    let failed = state["saved"][0]["failed"].as_str().unwrap();
    assert!(code == 1 && failed.starts_with("trap.db is a database of SQLite that cannot be copied now"), "{state}");
    assert!(precious.exists() && runs.join("died.db-journal").exists());
    let copy = slot.home().join("copy");
    let check = "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1])\n\
                 print(base.execute('pragma integrity_check').fetchone()[0], base.execute(\"select count(*) from a where t like 'x%'\").fetchone()[0])";
    let output =
        std::process::Command::new("python3").args(["-I", "-B", "-c", check]).arg(copy.join("died.db")).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "ok 2000\n");
    assert!(!copy.join("died.db-journal").exists() && !copy.join("trap.db").exists());
    assert_eq!(std::fs::read_to_string(copy.join("other")).unwrap(), "other");
}
