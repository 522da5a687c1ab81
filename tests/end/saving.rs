//! What is saved, in which order, and that nothing saved is lost.

use serde_json::json;

use super::slot::{SECRET, Slot, digest, noise};
use crate::support::until;

const ODD: &str = "a b'\"\n%2F+?#&=é~!*().txt";

#[test]
fn what_is_saved_is_there_with_its_digest_and_is_not_sent_again() {
    let slot =
        Slot::new(&[("results", "s3://bucket/run1"), ("results", "HOME/copy"), ("one.pt", "s3://bucket/single")]);
    let large = noise(20_000_001, 3);
    slot.write(&format!("results/{ODD}"), "odd");
    slot.write("results/empty", "");
    slot.write("results/checkpoint-4/model.bin", &large);
    slot.write("one.pt", "one");
    slot.store(&json!({"checksums": false}));
    let (code, state) = slot.save();
    assert_eq!(code, 0, "{state}");
    let held = slot.held();
    let wanted = [(ODD, digest("odd")), ("empty", digest("")), ("checkpoint-4/model.bin", digest(&large))];
    for (name, sum) in &wanted {
        assert_eq!(held.get(&format!("run1/{name}")), Some(sum), "{name:?}");
        assert_eq!(&digest(std::fs::read(slot.home().join("copy").join(name)).unwrap()), sum, "{name:?}");
    }
    assert_eq!(held["single/one.pt"], digest("one"));
    assert_eq!(slot.manifest(), wanted.iter().map(|(name, sum)| ((*name).to_owned(), sum.clone())).collect());
    let first = &state["saved"][0];
    assert_eq!(
        (&first["files"], &first["new_bytes"], &first["newest"]),
        (&json!(3), &json!(20_000_004), &json!("checkpoint-4"))
    );
    let written = slot.written();
    assert!(written.values().all(|count| *count == 1), "{written:?}");
    let (code, state) = slot.save();
    assert_eq!((code, &state["missing_bytes"]), (0, &json!(0)));
    assert_eq!(slot.written(), written, "something was sent twice");
}

/// Whoever follows a copy hears how far it is.
#[test]
fn a_copy_that_takes_a_while_says_how_far_it_is() {
    let slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/large.bin", noise(12_000_000, 4));
    slot.store(&json!({"rate": 4_000_000}));
    let (code, state, said) = slot.save_and_listen();
    assert_eq!(code, 0, "{state}");
    let heard: Vec<(u64, u64)> = said
        .lines()
        .filter_map(|line| line.strip_prefix("::progress ")?.split_once(' '))
        .map(|(done, all)| (done.parse().unwrap(), all.parse().unwrap()))
        .collect();
    assert!(heard.windows(2).all(|two| two[0].0 <= two[1].0), "{heard:?}");
    assert!(heard.iter().any(|(done, all)| done < all && *all == 12_000_000), "{heard:?}");
}

#[test]
fn the_newest_checkpoint_comes_first_then_the_rest_then_older_ones() {
    let slot = Slot::new(&[("results", "s3://bucket/a"), ("later", "s3://bucket/b")]);
    let names = [
        (400, "later/x"),
        (300, "results/run/checkpoint_9/w"),
        (200, "results/run/checkpoint_10/w"),
        (250, "results/log.txt"),
        (350, "results/other/epoch=1-step=5.ckpt"),
    ];
    for (age, name) in names {
        // Files of several parts are copied one after another.
        slot.write(name, noise(8_400_000, age));
        let when = std::time::SystemTime::now() - std::time::Duration::from_secs(age.into());
        std::fs::File::open(slot.home().join("data").join(name)).unwrap().set_modified(when).unwrap();
    }
    assert_eq!(slot.save().0, 0);
    let seen = slot.seen();
    let puts: Vec<&str> = seen["puts"].as_array().unwrap().iter().map(|put| put.as_str().unwrap()).collect();
    let puts: Vec<&str> = puts.into_iter().filter(|put| !put.contains(".gpucl")).collect();
    let order = ["a/run/checkpoint_10/w", "a/other/epoch=1-step=5.ckpt", "a/log.txt", "a/run/checkpoint_9/w", "b/x"];
    assert_eq!(puts, order);
}

/// A checkpoint is whole there, or not there.
#[test]
fn a_checkpoint_that_is_being_written_waits() {
    let slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/checkpoint_1/w", "whole");
    slot.write("results/log", "0");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                count += 1;
                slot.write("results/checkpoint_2/w", "x".repeat(count));
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            slot.write("results/checkpoint_2/w", "the whole one");
        });
        until("it is being written", 10, || slot.home().join("data/results/checkpoint_2/w").exists().then_some(()));
        let (code, state) = slot.save();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(code, 1, "{state}");
        assert_eq!(state["saved"][0]["failed"], "checkpoint_2 is being written");
        assert_eq!(state["saved"][0]["newest"], "checkpoint_1");
        let keys: Vec<String> = slot.held().into_keys().collect();
        assert_eq!(keys, ["run1/checkpoint_1/w", "run1/log"]);
    });
    let (code, state) = slot.save();
    assert_eq!((code, &state["saved"][0]["newest"]), (0, &json!("checkpoint_2")), "{state}");
    assert_eq!(slot.held()["run1/checkpoint_2/w"], digest("the whole one"));
}

#[test]
fn what_was_saved_is_kept_when_something_shorter_or_older_takes_its_place() {
    let slot = Slot::new(&[("results", "s3://bucket/run1"), ("results", "HOME/copy")]);
    let kept = |text: &str| {
        let is_it = |(key, sum): (&String, &String)| key.starts_with("run1/.gpucl/kept/") && *sum == digest(text);
        let in_store = slot.held().iter().any(is_it);
        let folder = slot.home().join("copy/.gpucl/kept");
        let in_folder = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let in_folder =
            in_folder.filter(|entry| std::fs::read(entry.path()).is_ok_and(|bytes| bytes == text.as_bytes())).count();
        (in_store, in_folder == 1)
    };
    // Somebody's own, of which nothing is known.
    slot.store(&json!({"objects": {"bucket": {"run1/last.bin": "of somebody"}}}));
    std::fs::create_dir_all(slot.home().join("copy")).unwrap();
    std::fs::write(slot.home().join("copy/last.bin"), "of somebody").unwrap();
    slot.write("results/last.bin", "long enough");
    assert_eq!(slot.save().0, 0);
    assert_eq!(kept("of somebody"), (true, false), "the folder says when it was written, and that was before");
    slot.write("results/last.bin", "short");
    assert_eq!(slot.save().0, 0);
    assert_eq!(kept("long enough"), (true, true));
    slot.write("results/last.bin", "longer than all of them");
    assert_eq!(slot.save().0, 0);
    assert_eq!(kept("short"), (false, false), "what is longer and newer replaces it");
    let when = std::time::SystemTime::now() - std::time::Duration::from_secs(9000);
    slot.write("results/last.bin", "older, and longer than all of those before");
    std::fs::File::open(slot.home().join("data/results/last.bin")).unwrap().set_modified(when).unwrap();
    assert_eq!(slot.save().0, 0);
    assert_eq!(kept("longer than all of them"), (true, true));
    assert_eq!(slot.held()["run1/last.bin"], digest("older, and longer than all of those before"));
}

#[test]
fn another_cluster_saves_beside_what_is_there_and_sends_nothing_twice() {
    let slot = Slot::new(&[("results", "s3://bucket/run1"), ("results", "HOME/copy")]);
    slot.write("results/large.bin", noise(9_000_000, 1));
    slot.write("results/small", "small");
    assert_eq!(slot.save().0, 0);
    let written = slot.written();
    // The data folder was brought to another host, and nothing is known of what was saved.
    std::fs::remove_dir_all(slot.home().join("guard")).unwrap();
    assert_eq!(slot.save().0, 0);
    assert_eq!(slot.written(), written);
    assert_eq!(slot.manifest().len(), 2);
    assert_eq!(slot.held().len(), 2);
}

#[test]
fn every_host_has_a_place_of_its_own_and_buckets_are_saved_too() {
    let mut slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/x", "of the head");
    slot.set(&json!({"hosts": 2}));
    assert_eq!(slot.save().0, 0);
    std::fs::remove_dir_all(slot.home().join("guard")).unwrap();
    slot.write("results/x", "of another");
    slot.set(&json!({"hosts": 2, "leads": false, "host": "host1"}));
    assert_eq!(slot.save().0, 0);
    let keys: Vec<String> = slot.held().into_keys().collect();
    assert_eq!(keys, ["run1/host-1/x", "run1/x"]);

    let large: String = "0123456789".repeat(1_000_000);
    let slot = Slot::new(&[("s3://own/runs", "s3://bucket/kept"), ("s3://own/runs", "HOME/copy")]);
    slot.store(&json!({"objects": {"own": {"runs/r1/checkpoint_1/w": large, (format!("runs/{ODD}")): "odd", "other/x": "not this", "runs/../up": "no"}}}));
    let (code, state) = slot.save();
    assert_eq!(code, 0, "{state}");
    let held = slot.held();
    assert_eq!(held.len(), 2, "{held:?}");
    assert_eq!(held["kept/r1/checkpoint_1/w"], digest(&large));
    assert_eq!(held[&format!("kept/{ODD}")], digest("odd"));
    assert_eq!(std::fs::read_to_string(slot.home().join("copy/r1/checkpoint_1/w")).unwrap(), large);
    assert!(!slot.home().join("up").exists());
}

#[test]
fn keys_may_have_a_token_and_are_in_no_message() {
    let slot = Slot::new(&[("results", "s3://bucket/run1")]);
    slot.write("results/x", "x");
    slot.store(&json!({"keys": {"token": "a+session/token=="}}));
    let (code, state) = slot.save();
    let failed = state["saved"][0]["failed"].as_str().unwrap();
    assert!(code == 1 && failed.contains("InvalidToken") && !failed.contains(SECRET), "{failed}");
    let keys = std::fs::read_to_string(slot.home().join("keys")).unwrap();
    std::fs::write(slot.home().join("keys"), format!("{keys}aws_session_token = a+session/token==\n")).unwrap();
    assert_eq!(slot.save().0, 0);
    assert_eq!(slot.held().len(), 1);
}

/// SQLite's own program of a job, which writes until it is killed, or for two minutes: `MODE PATH`. Every row of `a` has one of `b`.
const WRITER: &str = r#"import sqlite3, sys, time
base = sqlite3.connect(sys.argv[2], timeout=30, isolation_level=None)
base.execute("pragma journal_mode=" + sys.argv[1])
base.execute("pragma synchronous=off")
base.execute("create table a(n integer primary key, t text)")
base.execute("create table b(n integer primary key, t text)")
n, end = 0, time.monotonic() + 120
while time.monotonic() < end:
    n += 1
    base.execute("begin immediate")
    base.execute("insert into a values(?, ?)", (n, "x" * 3000))
    base.execute("insert into b values(?, ?)", (n, "y" * 3000))
    base.execute("update a set t = t || 'z' where n % 5 = 0 and n > ?", (n - 50,))
    base.execute("delete from a where n = ?", (n - 2000,))
    base.execute("delete from b where n = ?", (n - 2000,))
    base.execute("commit")
    time.sleep(0.005)
"#;

/// Says what is wrong with a database, or how many rows it has.
const CHECK: &str = r#"import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
print(base.execute("pragma integrity_check").fetchone()[0])
print(base.execute("select count(*) from a").fetchone() == base.execute("select count(*) from b").fetchone())
print(base.execute("select max(n) from a").fetchone()[0])
"#;

fn python(program: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("python3");
    command.args(["-I", "-B", "-c", program]).args(arguments);
    command
}

/// MLflow's database, say, to which a job writes: what is saved is of one moment, in each of SQLite's two ways to write.
#[test]
fn a_database_that_is_written_meanwhile_is_saved_as_it_was_at_one_moment() {
    let mut slot = Slot::new(&[("runs", "HOME/copy")]);
    slot.write("runs/artifacts/model", "a model");
    let folder = slot.home().join("data/runs");
    let mut writers: Vec<_> = ["wal", "delete"]
        .map(|mode| {
            let path = folder.join(format!("{mode}.db")).display().to_string();
            python(WRITER, &[mode, &path]).stderr(std::process::Stdio::null()).spawn().unwrap()
        })
        .into();
    let size = |name: &str| std::fs::metadata(folder.join(name)).map(|found| found.len()).unwrap_or_default();
    until("they write", 20, || (size("wal.db") > 200_000 && size("delete.db") > 200_000).then_some(()));
    let copy = slot.home().join("copy");
    let check = |name: &str| {
        let output = python(CHECK, &[&copy.join(name).display().to_string()]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.starts_with("ok\nTrue\n"), "{name}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said.lines().nth(2).unwrap().parse::<u64>().unwrap()
    };
    slot.set(&json!({"warning_s": 600}));
    slot.ends_in(590, 1);
    slot.run();
    let copied = |name: &str| copy.join(name).exists();
    until("both are saved", 40, || (copied("wal.db") && copied("delete.db")).then_some(()));
    let first = ["wal.db", "delete.db"].map(check);
    let grown = |at: usize, name: &str| check(name) > first[at];
    until("what came since is saved", 40, || (grown(0, "wal.db") && grown(1, "delete.db")).then_some(()));
    let last = ["wal.db", "delete.db"].map(check);
    for writer in &mut writers {
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    slot.kill();
    let (code, state) = slot.save();
    assert_eq!(code, 0, "{state}");
    let now = ["wal.db", "delete.db"].map(check);
    assert!(now[0] >= last[0] && now[1] >= last[1] && last[0] > 1 && last[1] > 1, "{now:?} {last:?}");
    let beside = ["wal.db-wal", "wal.db-shm"].iter().filter(|name| copy.join(name).exists()).count();
    assert_eq!(beside, 0, "what belongs to another moment is beside the copy");
    assert!(!slot.home().join("guard/.snapshot").exists());
    // Nothing is written any more: nothing is sent again.
    let files = |state: &serde_json::Value| state["saved"][0]["new_files"].clone();
    let (code, again) = slot.save();
    assert_eq!((code, files(&again)), (0, files(&state)), "{again}");
}

/// A database that is held is said, and holds up nothing else; what only looks like one is saved as it is.
#[test]
fn a_database_that_is_held_is_said_and_what_only_looks_like_one_is_saved_as_it_is() {
    let slot = Slot::new(&[("runs", "HOME/copy")]);
    let lies = [b"SQLite format 3\0".as_slice(), &[1; 5000]].concat();
    slot.write("runs/lies.db", &lies);
    slot.write("runs/text.db", "no database");
    slot.write("runs/other", "other");
    std::os::unix::fs::symlink("/etc/passwd", slot.home().join("data/runs/link.db")).unwrap();
    let path = slot.home().join("data/runs/held.db").display().to_string();
    let hold = "import sqlite3, sys, time\nbase = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                base.execute('create table a(n)')\nbase.execute('begin exclusive')\nprint(1, flush=True)\ntime.sleep(600)";
    let mut holder = python(hold, &[&path]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut first).unwrap();
    let (code, state) = slot.save();
    let failed = state["saved"][0]["failed"].as_str().unwrap().to_owned();
    assert!(code == 1 && failed.contains("held.db is a database of SQLite that cannot be copied now"), "{state}");
    let copied = |name: &str| std::fs::read(slot.home().join("copy").join(name)).ok();
    assert_eq!(copied("lies.db"), Some(lies));
    assert_eq!((copied("text.db"), copied("other")), (Some(b"no database".to_vec()), Some(b"other".to_vec())));
    assert_eq!((copied("link.db"), copied("held.db")), (None, None));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let _ = slot.save();
    assert!(copied("held.db").is_some_and(|bytes| bytes.starts_with(b"SQLite format 3")));
}
