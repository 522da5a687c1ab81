//! Fuzzing on stable Rust: every target is a unit test beside what it tries, and this is what they share.
//!
//! `cargo test` runs the kept corpus and a few thousand inputs of each target; `just fuzz` runs ten millions over all. An input is made
//! of one of the seeds by a few changes, and of the target's name and the input's number alone: what failed once fails again. What
//! failed is written into the corpus, where it is run first from then on. README.md in this folder says more.

#![expect(clippy::print_stdout, reason = "a run of the tests shows what was tried")]

mod mutate;
mod watch;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use mutate::Form;
use watch::Watch;

/// After so many failures a target ends: more tell nothing new.
const MOST_FAILURES: usize = 10;
/// No input is longer.
const LONGEST: usize = 64 * 1024;
/// What the program may come to in memory over a long run, in KiB.
const MOST_MEMORY: u64 = 1024 * 1024;

/// What is tried, and with what.
pub struct Target {
    /// Its name, and its folder in the corpus.
    pub name: &'static str,
    /// What kind of thing an input is.
    pub form: Form,
    /// Inputs as they should be, from which others are made.
    pub seeds: Vec<Vec<u8>>,
    /// Words that mean something to what is tried.
    pub words: Vec<String>,
    /// How many of a short run's inputs it gets.
    pub short: u64,
    /// How many of a thousand inputs of a long run it gets; with none a long run is as its short one.
    pub share: u64,
}

impl Target {
    /// One whose inputs are text.
    pub fn of_text<T: AsRef<str>>(name: &'static str, seeds: &[T]) -> Self {
        let seeds = seeds.iter().map(|seed| seed.as_ref().as_bytes().to_vec()).collect();
        Self { name, form: Form::Text, seeds, words: Vec::new(), short: 1000, share: 100 }
    }

    /// One whose inputs are JSON, most of it whole.
    pub fn of_json(name: &'static str, seeds: &[serde_json::Value]) -> Self {
        let seeds = seeds.iter().map(|seed| seed.to_string().into_bytes()).collect();
        Self { name, form: Form::Json, seeds, words: Vec::new(), short: 1000, share: 100 }
    }

    /// The same, with these words.
    pub fn with_words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// The same, with so many inputs in a short run, and so many of a thousand in a long one.
    pub fn with_inputs(mut self, short: u64, share: u64) -> Self {
        (self.short, self.share) = (short, share);
        self
    }

    /// Tries inputs: none may panic, hang, or break what `check` demands.
    #[track_caller]
    pub fn run(self, check: impl Fn(&[u8]) -> Result<(), String>) {
        let (inputs, is_long) = match variable("GPUCL_FUZZ_INPUTS").and_then(|text| text.parse::<u64>().ok()) {
            Some(all) if self.share > 0 => (all * self.share / 1000, true),
            Some(_) | None => (self.short, false),
        };
        let round = variable("GPUCL_FUZZ_ROUND").and_then(|text| text.parse().ok()).unwrap_or(0);
        let begun = Instant::now();
        let watch = Watch::begin(self.name, self.folder());
        let mut failures: BTreeMap<String, (String, usize)> = BTreeMap::new();
        let kept = self.kept();
        let corpus = kept.iter().chain(&self.seeds).cloned();
        let made = (0..inputs).map(|number| mutate::input(&self, &kept, round, number));
        let (mut tried, mut longest) = (0_u64, Duration::ZERO);
        for input in corpus.chain(made) {
            if failures.len() >= MOST_FAILURES {
                break;
            }
            tried += 1;
            let since = Instant::now();
            watch.tries(&input);
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| check(&input)));
            longest = longest.max(since.elapsed());
            let why = match outcome {
                Ok(Ok(())) => continue,
                Ok(Err(why)) => why,
                Err(panic) => format!("it panicked: {}", said(&*panic)),
            };
            // Of each mistake one input is kept.
            let known = failures.entry(why).or_insert_with(|| (watch::keep(&self.folder(), &input), 0));
            known.1 += 1;
        }
        watch.end();
        if is_long {
            let memory = watch::most_memory();
            let seconds = begun.elapsed().as_secs_f64();
            println!(
                "fuzz {:<18} {tried:>9} inputs in {seconds:>7.1} s, {} kept, longest {longest:?}, {} MiB, {} failures",
                self.name,
                kept.len(),
                memory / 1024,
                failures.len()
            );
            assert!(memory < MOST_MEMORY, "{} came to {} MiB", self.name, memory / 1024);
        }
        let lines = failures.iter().map(|(why, (path, times))| format!("\n{why}, {times} times: {path}"));
        assert!(failures.is_empty(), "{} failed:{}", self.name, lines.collect::<String>());
    }

    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }

    /// The inputs that are kept, in the order of their names.
    fn kept(&self) -> Vec<Vec<u8>> {
        let entries = fs_err::read_dir(self.folder()).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        paths.iter().filter_map(|path| fs_err::read(path).ok()).collect()
    }
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("nothing").to_owned()
}

/// What is demanded; says what was seen.
pub fn demand(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

#[expect(clippy::disallowed_methods, reason = "a run of the tests takes its length from it")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A mistake is found, and found again by what was kept of it.
#[test]
fn a_mistake_is_found_and_kept() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/mistake");
    let _ = fs_err::remove_dir_all(&folder);
    let target = || Target::of_text("mistake", &["abcdef"]).with_inputs(5000, 0);
    let panics = |input: &[u8]| {
        assert!(!input.contains(&0x1b), "an escape character");
        Ok(())
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = std::panic::catch_unwind(|| target().run(panics)).is_err();
    let kept = target().kept();
    let again = std::panic::catch_unwind(|| target().with_inputs(0, 0).run(panics)).is_err();
    std::panic::set_hook(hook);
    let _ = fs_err::remove_dir_all(&folder);
    assert!(found && again && !kept.is_empty());
    assert!(kept.iter().all(|input| input.contains(&0x1b)));
    // The same number is the same input.
    let target = target();
    assert_eq!(mutate::input(&target, &[], 0, 7), mutate::input(&target, &[], 0, 7));
    assert_ne!(mutate::input(&target, &[], 0, 7), mutate::input(&target, &[], 1, 7));
}
