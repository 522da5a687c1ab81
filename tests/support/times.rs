//! How long tests take, and which could not do their work: for `.ci/run`, which shows both.

use std::cell::Cell;
use std::io::Write as _;
use std::time::{Duration, Instant};

thread_local! {
    static BEGUN: Instant = Instant::now();
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Begins the clock of this thread's test, if it does not run yet.
pub(super) fn begin() {
    BEGUN.with(|_| {});
}

/// Adds to the time in which the test only waited for its turn.
pub(super) fn waited(time: Duration) {
    WAITED.set(WAITED.get() + time);
}

/// Writes down how long the test has run, if that is seconds.
pub(super) fn end() {
    let (all, waited) = (BEGUN.with(Instant::elapsed), WAITED.get());
    let thread = std::thread::current();
    let Some(name) = thread.name().filter(|name| name.contains("::") && all > Duration::from_secs(2)) else { return };
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/test-times");
    let Ok(mut file) = std::fs::File::options().append(true).create(true).open(path) else { return };
    let waited = waited.as_secs();
    let note = if waited > 0 { format!("  ({waited} s of it for its turn)") } else { String::new() };
    let _ = file.write_all(format!("{:5} s  {name}{note}\n", all.as_secs()).as_bytes());
}

/// Says that a test, or a part of it, is not done on this machine, and why. `.ci/run` fails for each that it does not
/// name. Written to stderr itself, since a test that passes prints nothing.
pub(crate) fn skipped(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
