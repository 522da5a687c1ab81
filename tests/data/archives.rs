//! Archives and deliveries that would change something outside of their place.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::process::Command;

use super::server::FileServer;
use super::{Bench, Filled, PROGRAM, archive, by_url};

const ORDERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/orders.py");

/// Fills a set from an archive with these entries.
fn unpacked(bench: &Bench, name: &str, entries: &str) -> Filled {
    let bytes = archive(bench.root.path(), name, entries);
    let server = FileServer::start(name, &bytes, &[]);
    bench.fill(&by_url(&server.url(name), &bytes, "true"))
}

/// A folder of the user's own beside the data, with a file.
fn home(bench: &Bench) -> std::path::PathBuf {
    let home = bench.root.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(home.join("id"), "id").unwrap();
    std::fs::set_permissions(home.join("id"), PermissionsExt::from_mode(0o600)).unwrap();
    home
}

const FOLDER: &str = "def folder(name):\n    entry = tarfile.TarInfo(name)\n    entry.type = tarfile.DIRTYPE\n    \
                      entry.mode = 0o777\n    tar.addfile(entry)\n\
                      def zipped(name, to):\n    entry = zipfile.ZipInfo(name)\n    entry.external_attr = 0o120777 << 16\n    \
                      tar.writestr(entry, to)\n";

#[test]
fn a_link_whose_way_is_changed_later_does_not_lead_out() {
    for (name, entries) in [
        // `s` is not there when `t` is read, and leads to the top of the set later.
        ("a.tgz", "link('d/e/f/t', 's/../../../home')\nlink('d/e/f/s', '../../..')\nfolder('d/e/f/t')"),
        ("a.tgz", "folder('d/e/f/t')\nlink('d/e/f/s', '../../..')\nlink('d/e/f/t', 's/../../../home')"),
        ("a.tgz", "link('d/e/f/t', 's/../../../home')\nlink('d/e/f/s', '../../..')\nfile('d/e/f/t/id', b'new')"),
        (
            "a.tgz",
            "link('d/e/f/t', 's/../../../home')\nlink('d/e/f/s', '../../..')\nlink('h', 'd/e/f/t/id', tarfile.LNKTYPE)",
        ),
        ("a.tgz", "link('d/e/f/t', 's/../../../home')\nlink('d/e/f/s', '../../..')"),
        ("a.zip", "zipped('d/e/f/t', 's/../../../home')\nzipped('d/e/f/s', '../../..')\ntar.writestr('d/e/f/t/', '')"),
        ("a.zip", "zipped('d/e/f/t', 's/../../../home')\nzipped('d/e/f/s', '../../..')"),
    ] {
        let bench = Bench::new();
        let home = home(&bench);
        let filled = unpacked(&bench, name, &format!("{FOLDER}{entries}"));
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&home), mode(&home.join("id"))), (0o700, 0o600), "{entries}");
        assert_eq!(std::fs::metadata(home.join("id")).unwrap().nlink(), 1, "{entries}");
        let _ = filled.fails_with("the archive has");
        assert!(!bench.data().join("set").exists() && !bench.data().join(".gpucl/set.new").exists(), "{entries}");
    }
}

#[test]
fn what_an_archive_may_have_in_any_order() {
    let bench = Bench::new();
    let entries = "link('up', 'd/../x')\nlink('d/y', '../x')\nlink('deep/l', '../d/../deep/../x')\nlink('gone', 'nowhere')\n\
                   link('d/top', '..')\nfile('x', b'old')\nfolder('d')\nfolder('deep')\nfile('x', b'new', mode=0o755, mtime=7)\n\
                   link('hard', 'x', tarfile.LNKTYPE)";
    let _ = unpacked(&bench, "a.tgz", &format!("{FOLDER}{entries}")).succeeds();
    for path in ["x", "up", "d/y", "deep/l", "hard", "d/top/x"] {
        assert_eq!(bench.read(&format!("set/{path}")), "new", "{path}");
    }
    let found = std::fs::metadata(bench.data().join("set/x")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime(), found.nlink()), (0o755, 7, 2));
    assert_eq!(std::fs::metadata(bench.data().join("set/d")).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn an_archive_of_any_kind_is_refused_in_one_line() {
    for (entries, why) in [
        ("file('d/' * 1500 + 'x', b'')", "whose path is too long"),
        ("file('a', b'')\nlink('a', 'b')", "two entries of one name"),
        ("file('a', b'')\nfile('a/b', b'')", "below one that is no folder: a/b"),
        ("file('a/b', b'')\nfile('a', b'')", "two entries of one name"),
        ("link('a', 'x' * 5000)", "link that leads out of it: a"),
    ] {
        let bench = Bench::new();
        let filled = unpacked(&bench, "a.tgz", entries).fails_with(why);
        assert_eq!(filled.output.lines().filter(|line| !line.starts_with("set: ")).count(), 1, "{}", filled.output);
        assert!(!bench.data().join(".gpucl/set.new").exists(), "{entries}");
    }
    // A time that no file system has.
    let entries = "file('a', b'x', mtime=0, pax_headers={'mtime': 'nan'})\nfile('b', b'x', mtime=2.0**80)";
    let bench = Bench::new();
    let _ = unpacked(&bench, "a.tgz", entries).succeeds();
}

#[test]
fn a_delivery_changes_and_removes_nothing_through_a_folder_that_a_job_made_a_link() {
    let bench = Bench::new();
    let home = home(&bench);
    let _ = bench.deliver("code", &[("d/id", "id"), ("d/more", "more")]).1.succeeds();
    let d = bench.data().join("code/d");
    std::fs::remove_dir_all(&d).unwrap();
    symlink(&home, &d).unwrap();
    std::fs::write(home.join("more"), "more").unwrap();
    let before = std::fs::metadata(home.join("id")).unwrap();
    assert!(!bench.has("code", &[("d/id", "id")]));
    let (sent, done) = bench.deliver("code", &[("d/id", "id")]);
    let _ = done.succeeds();
    let after = std::fs::metadata(home.join("id")).unwrap();
    assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    assert_eq!((sent, std::fs::read_to_string(home.join("more")).unwrap()), (vec![0], "more".to_owned()));
    assert_eq!(bench.read("code/d/id"), "id");
}

/// In whatever order the entries come, nothing around the set changes, and no link in it leads out.
#[test]
fn archives_in_any_order_change_nothing_outside() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = variable("GPUCL_FUZZ_INPUTS").map_or(400, |all| all / 500);
    let seed = variable("GPUCL_FUZZ_ROUND").unwrap_or(0);
    let done = Command::new("python3")
        .args(["-I", "-B", ORDERS, PROGRAM, &seed.to_string(), &count.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    println!("{said}");
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
}
