//! Streams that a host must not get away with.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;

use tar::Header;

use super::*;

const ROOM: UnpackLimits = UnpackLimits { bytes: 1 << 20, entries: 100 };

/// One entry of an archive, valid or not.
fn entry(kind: EntryType, name: &str, link: &str, mode: u32, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    header.set_mtime(1_700_000_000);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &str) -> Vec<u8> {
    entry(EntryType::Regular, name, "", 0o644, content.as_bytes())
}

fn folder(name: &str) -> Vec<u8> {
    entry(EntryType::Directory, name, "", 0o755, b"")
}

fn link(name: &str, to: &str) -> Vec<u8> {
    entry(EntryType::Symlink, name, to, 0o777, b"")
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// A folder to unpack into, within one that must stay unchanged.
struct Ground {
    around: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let around = tempfile::tempdir().unwrap();
        fs_err::create_dir(around.path().join("land")).unwrap();
        Self { around }
    }

    fn land(&self) -> PathBuf {
        self.around.path().join("land")
    }

    fn unpack_into(&self, bytes: &[u8], room: UnpackLimits) -> Result<LeftOut, Refusal> {
        let land = fs_err::File::open(self.land()).unwrap();
        let done = unpack(bytes, land.as_fd(), OsStr::new("results"), room);
        let around = fs_err::read_dir(self.around.path()).unwrap().count();
        assert_eq!(around, 1, "something was written outside");
        done
    }

    fn unpack(&self, entries: &[Vec<u8>]) -> Result<LeftOut, Refusal> {
        self.unpack_into(&archive(entries), ROOM)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.land().join(name)
    }
}

#[track_caller]
fn refused(entries: &[Vec<u8>], why: &str) {
    let result = Ground::new().unpack(entries);
    assert!(matches!(&result, Err(Refusal::Unwanted(text)) if text.contains(why)), "{result:?} does not say: {why}");
}

#[test]
fn a_tree_lands_whole() {
    let ground = Ground::new();
    let entries = [
        folder("results/"),
        file("results/a", "one"),
        folder("results/b"),
        file("results/b/c", "two"),
        link("results/l", "b/c"),
    ];
    assert_eq!(ground.unpack(&entries).unwrap(), LeftOut::default());
    assert_eq!(fs_err::read_to_string(ground.path("results/l")).unwrap(), "two");
    let found = fs_err::metadata(ground.path("results/a")).unwrap();
    let modified = found.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!((found.len(), modified.as_secs()), (3, 1_700_000_000));
}

#[test]
fn only_the_entry_that_was_asked_for_is_taken() {
    refused(&[file("results", "x"), file(".bashrc", "evil")], "it sent `.bashrc`, but `results` was requested");
    refused(&[file(".ssh/authorized_keys", "evil")], "`results` was requested");
    refused(&[file("resultsx", "evil")], "`results` was requested");
    refused(&[file("../results", "evil")], "leads out of the folder");
    refused(&[folder("results"), file("results/../../x", "evil")], "leads out of the folder");
    refused(&[folder("results"), file("results/..", "evil")], "leads out of the folder");
    refused(&[file("/etc/cron.d/x", "evil")], "leads out of the folder");
    refused(&[file("/results", "evil")], "leads out of the folder");
    refused(&[folder("./")], "has no name");
    refused(&[file("results", "x"), file("results", "y")], "it sent `results` twice");
    refused(&[file("results", "x"), file("results/y", "y")], "is not a folder sent before");
    let deep = format!("results{}", "/a".repeat(DEPTH));
    let mut entries: Vec<Vec<u8>> = vec![folder("results")];
    entries.extend((1..=45).map(|depth| folder(&format!("results{}", "/a".repeat(depth)))));
    assert!(Ground::new().unpack(&entries).is_ok());
    let long = entry(EntryType::GNULongName, "././@LongLink", "", 0, deep.as_bytes());
    refused(&[long, file("x", "x")], "folders deep");
}

#[test]
fn nothing_is_written_through_a_link() {
    refused(&[folder("results"), link("results/l", "b"), file("results/l/x", "evil")], "is not a folder sent before");
    refused(&[folder("results"), link("results/l", "b"), file("results/l", "evil")], "it sent `results/l` twice");
    refused(
        &[folder("results"), link("results/l", "/tmp"), file("results/l/x", "evil")],
        "is not a folder sent before",
    );
    refused(&[link("results", "/tmp"), file("results/x", "evil")], "is not a folder sent before");
    refused(&[link("results", "..")], "results: it is a link that leads out of the copy, to `..`");
}

#[test]
fn links_that_stay_within_are_kept_and_others_are_left_out() {
    let ground = Ground::new();
    let out = ["/etc/passwd", "..", "../..", "../../x", "l/..", "a/../../x", ".", "", "b/../c"];
    let within = ["a", "./a", "b/c", "l"];
    let mut entries = vec![folder("results")];
    entries.extend(out.iter().enumerate().map(|(number, to)| link(&format!("results/out{number}"), to)));
    entries.extend(within.iter().enumerate().map(|(number, to)| link(&format!("results/in{number}"), to)));
    entries.extend([folder("results/b"), link("results/b/up", "../a"), link("results/b/top", "..")]);
    let left_out = ground.unpack(&entries).unwrap();
    assert_eq!(left_out.count, out.len(), "{left_out:?}");
    assert_eq!(left_out.named[0], "results/out0: it is a link that leads out of the copy, to `/etc/passwd`");
    let kept = fs_err::read_dir(ground.path("results")).unwrap().count();
    assert_eq!(kept, within.len() + 1);
    assert!(ground.path("results/b/up").is_symlink() && ground.path("results/b/top").is_symlink());
}

#[test]
fn what_is_no_file_is_left_out_and_nobody_becomes_somebody_else() {
    let ground = Ground::new();
    let left_out = ground
        .unpack(&[
            entry(EntryType::Directory, "results", "", 0o7000, b""),
            entry(EntryType::Block, "results/disk", "", 0o666, b""),
            entry(EntryType::Char, "results/null", "", 0o666, b""),
            entry(EntryType::Fifo, "results/pipe", "", 0o666, b""),
            entry(EntryType::Link, "results/hard", "../../etc/passwd", 0o666, b""),
            entry(EntryType::Regular, "results/su", "", 0o7777, b"evil"),
        ])
        .unwrap();
    assert_eq!((left_out.count, left_out.named.len()), (4, 4));
    assert_eq!(left_out.named[0], "results/disk: it is not a file, folder or link");
    assert_eq!(left_out.named[3], "results/hard: it is a hard link to another file");
    for found in fs_err::read_dir(ground.path("results")).unwrap() {
        let kind = found.unwrap().file_type().unwrap();
        assert!(!kind.is_fifo() && !kind.is_block_device() && !kind.is_char_device());
    }
    let mode = |name: &str| fs_err::symlink_metadata(ground.path(name)).unwrap().permissions().mode();
    assert_eq!((mode("results/su") & 0o7022, mode("results") & 0o7700), (0, 0o700));
    refused(&[entry(EntryType::new(b'Z'), "results", "", 0o644, b"")], "of an unknown kind `Z`");
    // A sparse file with an invalid map.
    let sparse = Ground::new().unpack(&[folder("results"), entry(EntryType::GNUSparse, "results/x", "", 0o644, b"")]);
    assert!(matches!(sparse, Err(Refusal::Broken(_))), "{sparse:?}");
}

#[test]
fn no_more_is_taken_than_there_is_room_for() {
    // A claimed size is refused before any of its bytes is read.
    let mut header = Header::new_gnu();
    header.set_path("results").unwrap();
    header.set_size(1 << 60);
    header.set_cksum();
    refused(&[header.as_bytes().to_vec()], "is 1048576.0 TiB, but there is room for only 1.0 MiB more");
    let half = "x".repeat(600 << 10);
    refused(
        &[folder("results"), file("results/a", &half), file("results/b", &half)],
        "there is room for only 424.0 KiB more",
    );
    let mut entries = vec![folder("results")];
    entries.extend((0..100).map(|number| file(&format!("results/{number}"), "")));
    refused(&entries, "more entries than there is room for");
    // Nor is an overlong name kept in memory.
    let name = vec![b'a'; 1 << 20];
    refused(&[entry(EntryType::GNULongName, "././@LongLink", "", 0, &name)], "than any archive has");
    refused(&[entry(EntryType::XHeader, "pax", "", 0, &name)], "than any archive has");
    let mut endless = archive(&[file("results", "x")]);
    endless.resize(4 << 20, 0);
    let result = Ground::new().unpack_into(&endless, ROOM);
    assert!(matches!(result, Err(Refusal::Unwanted(_))), "{result:?}");
}

#[test]
fn a_stream_that_was_cut_is_no_archive() {
    let whole = archive(&[folder("results"), file("results/a", "12345")]);
    for length in [0, 1, 511, 513, 1023, 1025, 1030] {
        let result = Ground::new().unpack_into(&whole[..length], ROOM);
        assert!(matches!(result, Err(Refusal::Broken(_))), "{length}: {result:?}");
    }
}

#[test]
fn what_landed_comes_to_its_place_and_through_no_link() {
    use super::super::place::{Place, move_to};
    let ground = Ground::new();
    ground
        .unpack(&[folder("results"), file("results/a", "new"), folder("results/b"), file("results/b/c", "new")])
        .unwrap();
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name);
    fs_err::create_dir_all(at("goal/results/b")).unwrap();
    fs_err::write(at("goal/results/b/kept"), "kept").unwrap();
    fs_err::write(at("victim"), "old").unwrap();
    let bring = || {
        let place = Place::of(&at("goal"), OsStr::new("results"));
        let (from, to) = (fs_err::File::open(ground.land()).unwrap(), fs_err::File::open(&place.folder).unwrap());
        move_to(from.as_fd(), OsStr::new("results"), to.as_fd(), &place.name, &place.shown())
    };
    // A link in the way, however deep, stops the whole copy; so does a folder in a file's place.
    std::os::unix::fs::symlink(at("victim"), at("goal/results/b/c")).unwrap();
    let message = bring().unwrap_err().to_string();
    assert!(message.ends_with("goal/results/b/c is a link here; nothing was copied"), "{message}");
    fs_err::remove_file(at("goal/results/b/c")).unwrap();
    fs_err::create_dir(at("goal/results/a")).unwrap();
    assert!(bring().unwrap_err().to_string().contains("goal/results/a is a folder here"));
    fs_err::remove_dir(at("goal/results/a")).unwrap();
    assert!(!at("goal/results/a").exists() && fs_err::read_to_string(at("victim")).unwrap() == "old");
    bring().unwrap();
    let read = |name: &str| fs_err::read_to_string(at(name)).unwrap();
    assert_eq!(
        (read("goal/results/a"), read("goal/results/b/c"), read("goal/results/b/kept")),
        ("new".into(), "new".into(), "kept".into())
    );
}
