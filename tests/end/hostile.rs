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
