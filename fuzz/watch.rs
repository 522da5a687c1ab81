//! What must be seen from outside: an input that never ends, and how much memory was taken.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No input takes so long, on the slowest machine that has other things to do.
const HANGS: Duration = Duration::from_secs(60);

/// What is being tried, and since when.
type Trying = Arc<Mutex<Option<(Instant, Vec<u8>)>>>;

/// Looks after a target from a thread of its own.
pub(super) struct Watch {
    trying: Trying,
    is_over: Arc<std::sync::atomic::AtomicBool>,
}

impl Watch {
    pub(super) fn begin(name: &'static str, folder: PathBuf) -> Self {
        let watch = Self { trying: Arc::default(), is_over: Arc::default() };
        let (trying, is_over) = (Arc::clone(&watch.trying), Arc::clone(&watch.is_over));
        std::thread::spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(200));
                let held = trying.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((since, input)) = held.as_ref().filter(|(since, _)| since.elapsed() > HANGS) {
                    let seconds = since.elapsed().as_secs();
                    // Nothing else ends a thread that does not come back.
                    println!("fuzz {name}: an input runs for {seconds} s: {}", keep(&folder, input));
                    std::process::abort();
                }
            }
        });
        watch
    }

    pub(super) fn tries(&self, input: &[u8]) {
        let mut held = self.trying.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, kept) = held.get_or_insert_with(|| (Instant::now(), Vec::new()));
        *since = Instant::now();
        kept.clear();
        kept.extend_from_slice(input);
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        *self.trying.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes an input into the corpus; hands back where.
pub(super) fn keep(folder: &Path, input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = folder.join(format!("found-{:016x}", hasher.finish()));
    match fs_err::create_dir_all(folder).and_then(|()| fs_err::write(&path, input)) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("{error}; it is {:?}", String::from_utf8_lossy(input)),
    }
}

/// The most memory that this process ever had, in KiB.
pub(super) fn most_memory() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
