//! Real clusters in tests: limited in number, and none left behind.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use super::{TestEnv, times};

/// How many real clusters of this machine's own run at a time.
const AT_ONCE: usize = 2;

/// The right to run a real cluster. Two cores carry two small ones at a time; others wait.
#[must_use]
pub(crate) struct Turn {
    _locks: Vec<File>,
}

/// Whoever has the lock of a place has written its name there.
fn place(number: usize) -> File {
    let path = format!("{}/cluster-{number}.lock", env!("CARGO_TARGET_TMPDIR"));
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn taken(mut file: File) -> File {
    file.set_len(0).unwrap();
    file.write_all(std::thread::current().name().unwrap_or("a test").as_bytes()).unwrap();
    file
}

/// Waits for the right to run a cluster beside another. Says who has it, if that takes minutes.
pub(crate) fn turn() -> Turn {
    times::begin();
    let begin = Instant::now();
    let mut says = Instant::now() + Duration::from_secs(180);
    loop {
        for number in 0..AT_ONCE {
            let file = place(number);
            if file.try_lock().is_ok() {
                times::waited(begin.elapsed());
                return Turn { _locks: vec![taken(file)] };
            }
        }
        if Instant::now() > says {
            says += Duration::from_secs(180);
            let who = (0..AT_ONCE).map(|number| std::io::read_to_string(place(number)).unwrap_or_default());
            println!("waiting for {}", who.collect::<Vec<_>>().join(", "));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits for the right to run a cluster while no other does.
pub(crate) fn alone() -> Turn {
    times::begin();
    let begin = Instant::now();
    let locks = (0..AT_ONCE).map(place);
    let turn = Turn { _locks: locks.inspect(|file| file.lock().unwrap()).map(taken).collect() };
    times::waited(begin.elapsed());
    turn
}

/// The processes that carry a tag of this environment's owner, with their command lines.
pub(crate) fn tagged_processes(env: &TestEnv) -> Vec<(u32, String)> {
    let Ok(owner) = std::fs::read_to_string(env.home().join(".config/gpucl/owner")) else { return Vec::new() };
    let wanted = format!("gpucl-{}-", owner.lines().next().unwrap_or_default());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let (environ, command) =
            (String::from_utf8_lossy(&environ).into_owned(), String::from_utf8_lossy(&command).into_owned());
        if environ.contains(&wanted) || command.contains(&wanted) {
            found.push((pid, command.replace('\0', " ")));
        }
    }
    found
}

/// Whatever a failing test leaves is taken down: no test leaves a cluster on the machine.
impl Drop for TestEnv {
    fn drop(&mut self) {
        let clusters = self.home().join(".local/state/gpucl/clusters");
        for entry in std::fs::read_dir(clusters).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let _ = self.command(&["down", "--yes", "-c", &name]).output();
        }
        times::end();
    }
}
