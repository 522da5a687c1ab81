//! The program that fills data sets on a host, against a server on the loopback.

mod archives;
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest as _, Sha256};

use server::{Cut, FileServer};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/data/fill.py");

/// A data folder, and the program run for it.
struct Bench {
    root: tempfile::TempDir,
}

struct Filled {
    ok: bool,
    output: String,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("data")).unwrap();
        Self { root }
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.data().join(path)).unwrap_or_else(|error| format!("{path}: {error}"))
    }

    /// Runs the program by `sh` with these limits before it.
    fn limited(&self, limit: &str, set: &serde_json::Value) -> Filled {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{limit} exec python3 -I -B \"$0\" fill \"$1\" 2>&1"), PROGRAM])
            .arg(self.data())
            .env("GPUCL_DATA", self.data())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), set.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Filled { ok: output.status.success(), output: String::from_utf8_lossy(&output.stdout).into_owned() }
    }

    fn fill(&self, set: &serde_json::Value) -> Filled {
        self.limited("", set)
    }

    /// Nothing unfinished is left but what the next run goes on with.
    fn leaves_only(&self, names: &[&str]) {
        let mut there: Vec<String> = std::fs::read_dir(self.data().join(".gpucl"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        there.sort();
        assert_eq!(there, names);
    }
}

impl Filled {
    #[track_caller]
    fn succeeds(self) -> Self {
        assert!(self.ok, "{}", self.output);
        self
    }

    #[track_caller]
    fn fails_with(self, text: &str) -> Self {
        assert!(!self.ok && self.output.contains(text), "not said: {text}\n{}", self.output);
        self
    }

    #[track_caller]
    fn says(self, text: &str) -> Self {
        assert!(self.output.contains(text), "not said: {text}\n{}", self.output);
        self
    }
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn by_url(url: &str, bytes: &[u8], check: &str) -> serde_json::Value {
    serde_json::json!({"name": "set", "digest": "d1", "check": check, "url": url, "sha256": sum(bytes), "command": null})
}

fn by_command(command: &str, check: &str) -> serde_json::Value {
    serde_json::json!({"name": "set", "digest": "d1", "check": check, "url": null, "sha256": null, "command": command})
}

/// Bytes that do not repeat.
fn some_bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// An archive made by Python with these entries: each a call on `tar`.
fn archive(folder: &Path, name: &str, entries: &str) -> Vec<u8> {
    let path = folder.join(name);
    let program = format!(
        "import io, sys, tarfile, zipfile\n\
         def file(name, text, **more):\n    entry = tarfile.TarInfo(name)\n    entry.size = len(text)\n    \
         [setattr(entry, key, value) for key, value in more.items()]\n    tar.addfile(entry, io.BytesIO(text))\n\
         def link(name, to, kind=tarfile.SYMTYPE):\n    entry = tarfile.TarInfo(name)\n    entry.type = kind\n    \
         entry.linkname = to\n    tar.addfile(entry)\n\
         path = sys.argv[1]\n\
         tar = zipfile.ZipFile(path, 'w') if path.endswith('.zip') else tarfile.open(path, 'w:gz')\n\
         {entries}\ntar.close()\n"
    );
    let done = Command::new("python3").args(["-c", &program]).arg(&path).status().unwrap();
    assert!(done.success());
    std::fs::read(path).unwrap()
}

#[test]
fn a_download_that_is_cut_goes_on_where_it_was() {
    let bench = Bench::new();
    let bytes = some_bytes(3 << 20);
    // Twice within one run, and once more than one run goes on after.
    let server = FileServer::start("a.bin", &bytes, &[Cut::After(1 << 20), Cut::After(1 << 20)]);
    let set = by_url(&server.url("a.bin?Signature=secret"), &bytes, "test -s a.bin");
    let filled = bench.fill(&set).succeeds().says("the download was cut after").says("3.0 MiB received");
    assert!(!filled.output.contains("secret"), "{}", filled.output);
    assert_eq!(std::fs::read(bench.data().join("set/a.bin")).unwrap(), bytes);
    assert_eq!(server.ranges()[..3], ["", "bytes=1048576-", "bytes=2097152-"]);
    bench.leaves_only(&["set.state"]);

    let bench = Bench::new();
    let server =
        FileServer::start("a.bin", &bytes, &[Cut::After(1 << 20), Cut::Now, Cut::Now, Cut::Now, Cut::Now, Cut::Now]);
    let set = by_url(&server.url("a.bin"), &bytes, "true");
    let _ = bench.fill(&set).fails_with("1.0 MiB are kept, and the next `up` goes on");
    assert!(!bench.data().join("set").exists());
    let _ = bench.fill(&set).succeeds().says("going on after 1.0 MiB");
    assert_eq!(std::fs::read(bench.data().join("set/a.bin")).unwrap(), bytes);
}

#[test]
fn another_version_on_the_server_is_not_added_to_the_part_of_the_first() {
    let bench = Bench::new();
    let (old, new) = (some_bytes(2 << 20), vec![7; 2 << 20]);
    let server =
        FileServer::start("a.bin", &old, &[Cut::After(1 << 20), Cut::Now, Cut::Now, Cut::Now, Cut::Now, Cut::Now]);
    let set = by_url(&server.url("a.bin"), &new, "true");
    let _ = bench.fill(&set).fails_with("cannot be downloaded");
    server.replace(&new);
    let _ = bench.fill(&set).succeeds().says("the server sends all of it again");
    assert_eq!(std::fs::read(bench.data().join("set/a.bin")).unwrap(), new);
}

#[test]
fn a_wrong_sum_or_answer_leaves_nothing_in_its_place() {
    let bench = Bench::new();
    let server = FileServer::start("a.bin", b"what is there", &[]);
    let set = by_url(&server.url("a.bin"), b"what is wanted", "true");
    let both = format!("has the SHA-256 {}, and the spec says {}", sum(b"what is there"), sum(b"what is wanted"));
    let _ = bench.fill(&set).fails_with(&both);
    bench.leaves_only(&["set.state"]);
    let _ = bench.fill(&by_url(&server.url("none"), b"x", "true")).fails_with("answers 404");
    assert!(!bench.data().join("set").exists());
}

#[test]
fn archives_are_unpacked_and_other_files_stay() {
    let bench = Bench::new();
    let entries = "file('./a b/\\'x\\'\\n.txt', b'one', mode=0o755)\nlink('a b/y', '\\'x\\'\\n.txt')\n\
                   link('z', 'a b/\\'x\\'\\n.txt', tarfile.LNKTYPE)";
    let tar = archive(bench.root.path(), "a.tar.gz", entries);
    let server = FileServer::start("a.tar.gz", &tar, &[]);
    let _ = bench.fill(&by_url(&server.url("a.tar.gz"), &tar, "test -x z")).succeeds().says("set: 3 files");
    assert_eq!(bench.read("set/a b/y"), "one");

    let bench = Bench::new();
    let zip = archive(bench.root.path(), "a.zip", "tar.writestr('d/e.txt', 'two')");
    let server = FileServer::start("a.zip", &zip, &[]);
    let _ = bench.fill(&by_url(&server.url("a.zip"), &zip, "true")).succeeds();
    assert_eq!(bench.read("set/d/e.txt"), "two");
}

#[test]
fn nothing_of_an_archive_is_written_outside_of_its_set() {
    for (entries, why) in [
        ("file('../out', b'x')", "leads out of it: ../out"),
        ("file('/tmp/gpucl-out', b'x')", "leads out of it: /tmp/gpucl-out"),
        ("file('a/../../out', b'x')", "leads out of it"),
        ("link('a', '../..')\nfile('a/out', b'x')", "link that leads out of it: a to ../.."),
        ("link('a', '/etc/passwd')", "link that leads out of it: a to /etc/passwd"),
        ("link('b', '.')\nfile('b/out', b'x')", "two entries of one name and different kinds: b"),
        // Each is inside by its letters, and both together lead out.
        ("file('d/e/f', b'x')\nlink('d/e/s', '../..')\nlink('d/e/t', 's/../x')", "link that leads out of it: d/e/t"),
        ("link('a', '../../secret', tarfile.LNKTYPE)", "leads out of it: ../../secret"),
        ("link('a', 'gone', tarfile.LNKTYPE)", "to what is no file in it"),
        ("link('a', '', tarfile.FIFOTYPE)", "device or pipe"),
    ] {
        let bench = Bench::new();
        std::fs::write(bench.root.path().join("secret"), "x").unwrap();
        let tar = archive(bench.root.path(), "a.tgz", entries);
        let server = FileServer::start("a.tgz", &tar, &[]);
        let _ = bench.fill(&by_url(&server.url("a.tgz"), &tar, "true")).fails_with(why);
        assert!(!bench.data().join("set").exists() && !bench.root.path().join("out").exists(), "{entries}");
        assert!(!bench.data().join("out").exists() && !bench.data().join(".gpucl/out").exists(), "{entries}");
    }
    let bench = Bench::new();
    let zip = archive(bench.root.path(), "a.zip", "tar.writestr('../out', 'x')");
    let server = FileServer::start("a.zip", &zip, &[]);
    let _ = bench.fill(&by_url(&server.url("a.zip"), &zip, "true")).fails_with("leads out of it");
    // A file that says to be an archive and is none.
    let server = FileServer::start("b.tar", b"no archive", &[]);
    let _ = bench.fill(&by_url(&server.url("b.tar"), b"no archive", "true")).fails_with("cannot be unpacked");
}

#[test]
fn a_full_disk_is_said_and_the_download_is_kept() {
    let bench = Bench::new();
    let bytes = some_bytes(3 << 20);
    let server = FileServer::start("a.bin", &bytes, &[]);
    let set = by_url(&server.url("a.bin"), &bytes, "true");
    // As a disk that fills up: no file may be larger. Blocks are of 512 bytes.
    let _ = bench.limited("trap '' XFSZ; ulimit -f 2048;", &set).fails_with("data: set: File too large");
    assert!(!bench.data().join("set").exists());
    bench.leaves_only(&["set.part", "set.part.json", "set.state"]);
    let _ = bench.fill(&set).succeeds().says("going on after");

    // What cannot fit is refused before it is received.
    let bench = Bench::new();
    let server = FileServer::start("a.bin", &bytes, &[Cut::Claim(1 << 60)]);
    let set = by_url(&server.url("a.bin"), &bytes, "true");
    let _ = bench.fill(&set).fails_with("are free there").says("needs 1073741824.0 GiB");
}

#[test]
fn a_command_fills_a_folder_beside_the_set_which_appears_when_it_is_whole() {
    let bench = Bench::new();
    let _ = bench
        .fill(&by_command("echo half >x; echo why not; exit 3", "true"))
        .fails_with("(exit code 3)")
        .says("why not");
    assert!(!bench.data().join("set").exists());
    let _ = bench
        .fill(&by_command("echo \"it's\" >'a b'", "test -e c"))
        .fails_with("the check of set fails (exit code 1): test -e c");
    bench.leaves_only(&["set.state"]);
    let _ = bench
        .fill(&by_command("test \"$PWD\" = \"$GPUCL_DATA/.gpucl/set.new\" && echo one >a", "test -s a"))
        .succeeds();
    assert_eq!((bench.read("set/a"), bench.read(".gpucl/set.state")), ("one\n".to_owned(), "filled d1\n".to_owned()));
    // A later one replaces it whole; until then the first stays.
    std::fs::write(bench.data().join("set/by-a-job"), "").unwrap();
    let _ = bench.fill(&by_command("exit 1", "true")).fails_with("exit code 1");
    assert_eq!((bench.read("set/a"), bench.read(".gpucl/set.state")), ("one\n".to_owned(), "filling d1\n".to_owned()));
    let _ = bench.fill(&by_command("mkdir ro && echo two >ro/b && chmod 555 ro", "true")).succeeds();
    let _ = bench.fill(&by_command("echo two >b", "test -s b")).succeeds();
    assert!(!bench.data().join("set/a").exists() && !bench.data().join("set/by-a-job").exists());
    assert_eq!(bench.read("set/b"), "two\n");
    bench.leaves_only(&["set.state"]);
}

#[test]
fn a_folder_that_is_somebodys_own_is_not_replaced() {
    let bench = Bench::new();
    std::fs::create_dir(bench.data().join("set")).unwrap();
    std::fs::write(bench.data().join("set/results"), "mine").unwrap();
    let _ = bench.fill(&by_command("true", "true")).fails_with("gpucl did not fill it: move it away");
    assert_eq!(bench.read("set/results"), "mine");
}

/// A list of files as gpucl sends it, all changed at the same time.
fn listed(to: &str, files: &[(&str, &str)]) -> serde_json::Value {
    let entry =
        |(name, text): &(&str, &str)| serde_json::json!([name, text.len(), 1_700_000_000, 0o644, sum(text.as_bytes())]);
    serde_json::json!({"to": to, "files": files.iter().map(entry).collect::<Vec<_>>()})
}

impl Bench {
    fn program(&self, verb: &str, stdin: &[u8]) -> Filled {
        let mut child = Command::new("sh")
            .args(["-c", "exec python3 -I -B \"$0\" \"$1\" \"$2\" 2>&1", PROGRAM, verb])
            .arg(self.data())
            .env("GIT_SSH_COMMAND", self.root.path().join("ssh"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), stdin);
        let output = child.wait_with_output().unwrap();
        Filled { ok: output.status.success(), output: String::from_utf8_lossy(&output.stdout).into_owned() }
    }

    /// Sends what is wanted of these files, as gpucl does; returns the numbers of the files.
    fn deliver(&self, to: &str, files: &[(&str, &str)]) -> (Vec<usize>, Filled) {
        let list = listed(to, files);
        let wanted = self.program("wants", list.to_string().as_bytes()).succeeds().says("::wanted");
        let numbers: Vec<usize> =
            wanted.output.lines().filter_map(|line| line.strip_prefix("::want ")?.parse().ok()).collect();
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |name: &str, text: &str| {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, name, text.as_bytes()).unwrap();
        };
        add("list", &list.to_string());
        for number in &numbers {
            add(&number.to_string(), files[*number].1);
        }
        let done = self.program("take", &archive.into_inner().unwrap());
        (numbers, done)
    }

    fn has(&self, to: &str, files: &[(&str, &str)]) -> bool {
        self.program("have", listed(to, files).to_string().as_bytes()).ok
    }
}

#[test]
fn only_files_that_differ_are_sent_and_what_is_gone_is_removed() {
    let bench = Bench::new();
    let first = [("a.py", "one"), ("it's a/\n\"b\".py", "two"), ("old/c.py", "three")];
    let (sent, done) = bench.deliver("x/code", &first);
    assert_eq!(sent, [0, 1, 2]);
    let _ = done.succeeds().says("x/code: 3 of 3 files sent");
    assert_eq!(bench.read("x/code/it's a/\n\"b\".py"), "two");
    assert!(bench.has("x/code", &first));
    // A job's own file stays; what a job has deleted or changed is noticed and sent again.
    std::fs::write(bench.data().join("x/code/mine"), "mine").unwrap();
    std::fs::remove_file(bench.data().join("x/code/a.py")).unwrap();
    assert!(!bench.has("x/code", &first));
    assert_eq!(bench.deliver("x/code", &first).0, [0]);
    std::fs::write(bench.data().join("x/code/a.py"), "ONE").unwrap();
    assert!(!bench.has("x/code", &first), "the size alone is no proof");
    assert_eq!(bench.deliver("x/code", &first).0, [0]);
    // The same content at another time is not sent again.
    std::fs::write(bench.data().join("x/code/a.py"), "one").unwrap();
    let (sent, done) = bench.deliver("x/code", &first);
    let _ = done.succeeds();
    assert!(sent.is_empty() && bench.has("x/code", &first));
    // A folder becomes a file, and a file is gone.
    let second = [("a.py", "one"), ("old", "now a file")];
    let (sent, done) = bench.deliver("x/code", &second);
    let _ = done.succeeds().says("1 of 2 files sent");
    assert_eq!(
        (sent, bench.read("x/code/old"), bench.read("x/code/mine")),
        (vec![1], "now a file".to_owned(), "mine".to_owned())
    );
    assert!(!bench.data().join("x/code/it's a").exists());
    // One file.
    let _ = bench.deliver("one.txt", &[("", "text")]).1.succeeds();
    assert_eq!(bench.read("one.txt"), "text");
}

#[test]
fn files_are_not_written_through_links_of_jobs() {
    let bench = Bench::new();
    let outside = bench.root.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir(bench.data().join("code")).unwrap();
    std::os::unix::fs::symlink(&outside, bench.data().join("code/d")).unwrap();
    std::os::unix::fs::symlink(outside.join("y"), bench.data().join("code/x")).unwrap();
    let _ = bench.deliver("code", &[("d/x", "one"), ("x", "two")]).1.succeeds();
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!((bench.read("code/d/x"), bench.read("code/x")), ("one".to_owned(), "two".to_owned()));
}

#[test]
#[ignore = "testbed"]
fn a_repository_is_cloned_at_its_commit_without_hooks_or_other_protocols() {
    let bench = Bench::new();
    let root = bench.root.path();
    let git = |script: &str| {
        let done = Command::new("sh").args(["-euc", script]).current_dir(root).env("HOME", root).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    // `ssh` that stays here: the last argument is the command.
    let first = git("printf '#!/bin/sh\\nfor word; do :; done\\nexec sh -c \"$word\"\\n' >ssh && chmod 755 ssh && \
        git init -q -b main code && cd code && git config user.email a@b.c && git config user.name a && \
        echo one >a && git add a && git commit -qm one && git rev-parse HEAD");
    let second = git("cd code && echo two >a && git commit -qam two && git rev-parse HEAD");
    let url = format!("ssh://host{}", root.join("code").display());
    let wanted = |url: &str, commit: &str| {
        serde_json::json!({"to": "lab/code", "url": url, "ref": "main", "commit": commit}).to_string()
    };
    let call = |verb: &str, wanted: &str| bench.program(verb, wanted.as_bytes());
    let _ = call("clone", &wanted(&url, &first)).succeeds().says(&format!("at {} (main)", &first[..12]));
    assert_eq!(bench.read("lab/code/a"), "one\n");
    assert!(call("cloned", &wanted(&url, &first)).ok && !call("cloned", &wanted(&url, &second)).ok);
    // What a job deletes is noticed.
    std::fs::remove_file(bench.data().join("lab/code/a")).unwrap();
    assert!(!call("cloned", &wanted(&url, &first)).ok);
    let _ = call("clone", &wanted(&url, &second)).succeeds();
    assert_eq!(bench.read("lab/code/a"), "two\n");
    // A commit that is gone is said, and the clone that is there stays.
    let _ = call("clone", &wanted(&url, &"1".repeat(40))).fails_with("cannot be cloned at 111111111111 (main)");
    assert_eq!(bench.read("lab/code/a"), "two\n");
    for url in [format!("ext::sh -c touch% {}/x", root.display()), format!("file://{}/code", root.display())] {
        let _ = call("clone", &wanted(&url, &first)).fails_with("not allowed");
    }
    assert!(!root.join("x").exists());
}
