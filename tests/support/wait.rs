//! Waiting for a condition, never for a time.

use std::process::Child;
use std::time::{Duration, Instant};

/// Polls until there is a value to return; panics after the time limit.
#[track_caller]
pub(crate) fn until<T>(what: &str, seconds: u64, look: impl FnMut() -> Option<T>) -> T {
    until_or(what, seconds, look, String::new)
}

/// The same, with a description of the state in the panic message.
#[track_caller]
pub(crate) fn until_or<T>(
    what: &str,
    seconds: u64,
    mut look: impl FnMut() -> Option<T>,
    tell: impl Fn() -> String,
) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(seconds), "not within {seconds} s: {what}\n{}", tell());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends SIGINT, like Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}
