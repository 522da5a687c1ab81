//! Real clusters in tests: limited in number, and none left behind.

use std::fs::File;

use super::TestEnv;

/// How many real clusters of this machine's own run at a time.
const AT_ONCE: usize = 2;

/// The right to run a real cluster. Two cores carry two small ones at a time; others wait.
#[must_use]
pub(crate) struct Turn {
    _locks: Vec<File>,
}

fn place(number: usize) -> File {
    File::create(format!("{}/cluster-{number}.lock", env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

/// Waits for the right to run a cluster beside another.
pub(crate) fn turn() -> Turn {
    loop {
        for number in 0..AT_ONCE {
            let file = place(number);
            if file.try_lock().is_ok() {
                return Turn { _locks: vec![file] };
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Waits for the right to run a cluster while no other does.
pub(crate) fn alone() -> Turn {
    let locks = (0..AT_ONCE).map(place);
    Turn { _locks: locks.inspect(|file| file.lock().unwrap()).collect() }
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
    }
}
