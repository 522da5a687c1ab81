//! Why a step failed, from what it printed: which lines can say so, and which known failure they show.
//!
//! Steps and the tools that they call print what they do beside what goes wrong: names of packages and files, the
//! commands of a spec, the text of a Dockerfile. Such a line can hold any word, so none of them shows a failure.

use super::stage::KnownError;

/// What the system says of a disk or a quota that is used up, as programs in C, Python and Rust print it.
const FULL: &[&str] = &[
    "No space left on device",
    "no space left on device",
    "os error 28)",
    "Disk quota exceeded",
    "Disc quota exceeded",
    "disk quota exceeded",
    "os error 122)",
];

/// How lines begin that only say what is being done.
const PROGRESS: &[&str] = &[
    // pip
    "Attempting uninstall:",
    "Building wheel for ",
    "Building wheels for ",
    "Cloning ",
    "Collecting ",
    "Created wheel for ",
    "Downloading ",
    "Found existing installation:",
    "Getting requirements to build ",
    "Ignoring ",
    "Installing backend dependencies:",
    "Installing build dependencies:",
    "Installing collected packages:",
    "Looking in indexes:",
    "Looking in links:",
    "Obtaining ",
    "Preparing editable metadata ",
    "Preparing metadata ",
    "Processing ",
    "Requirement already satisfied:",
    "Saved ",
    "Stored in directory:",
    "Successfully ",
    "Uninstalling ",
    "Using cached ",
    // uv, which lists packages with a sign before each; a shell with `set -x` prints its commands behind the same sign
    "+ ",
    "++ ",
    "~ ",
    "Audited ",
    "Building ",
    "Built ",
    "Downloaded ",
    "Installed ",
    "Prepared ",
    "Resolved ",
    "Updated ",
    "Using Python ",
    // apt and dpkg
    "Building dependency tree",
    "Fetched ",
    "Get:",
    "Hit:",
    "Preparing to unpack ",
    "Processing triggers for ",
    "Reading package lists",
    "Reading state information",
    "Selecting previously unselected package ",
    "Setting up ",
    "Suggested packages:",
    "The following NEW packages will be ",
    "The following additional packages will be ",
    "The following packages will be ",
    "Unpacking ",
    // Builders of images, which print each step of the Dockerfile.
    "---> ",
    "> [",
    "STEP ",
    "Step ",
];

/// Whether a text of these describes a disk or a quota that is used up.
fn is_full(text: &str) -> bool {
    FULL.iter().any(|full| text.contains(full))
}

/// A known failure that lines show.
#[derive(Debug)]
pub(super) struct Cause<'a> {
    /// The failure.
    pub(super) known: KnownError,
    /// The line that shows it.
    pub(super) line: &'a str,
    /// What was printed just before that line; empty if nothing was.
    pub(super) before: &'a str,
}

impl Cause<'_> {
    /// A text of the failure with its placeholders filled in.
    pub(super) fn fill(&self, text: &str) -> String {
        self.known
            .fill(text, self.line)
            .replace("{before}", if self.before.is_empty() { "nothing" } else { self.before })
    }
}

/// The known failure that the lines of a failed step show.
///
/// What the system refused comes first, whatever the order of the failures: a tool that cannot write reports all sorts
/// of things before and afterwards. It is known of every step. Of the others, the first in the list counts, and the last
/// of its lines.
pub(super) fn cause<'a>(known: &[KnownError], lines: impl Iterator<Item = &'a str>) -> Option<Cause<'a>> {
    let lines: Vec<&str> = lines.map(untimed).filter(|line| !line.is_empty()).collect();
    let said: Vec<(usize, &str)> =
        lines.iter().enumerate().filter_map(|(at, line)| Some((at, judged(line)?))).collect();
    let found = |known: KnownError, at: usize| {
        let before = at.checked_sub(1).and_then(|before| lines.get(before)).filter(|line| !is_announcement(line));
        Some(Cause { known, line: lines.get(at)?, before: before.copied().unwrap_or_default() })
    };
    if let Some((at, judged)) = said.iter().rfind(|(_, judged)| is_full(judged)) {
        // One that matches the system's own words, and not a path beside them.
        let is_of_it = |known: &&KnownError| FULL.iter().any(|full| judged.contains(full) && known.matches(full));
        let of_step = known.iter().find(is_of_it);
        return found(of_step.cloned().unwrap_or_else(|| full(judged)), *at);
    }
    known.iter().find_map(|known| {
        let (at, _) = said.iter().rfind(|(_, judged)| known.matches(judged))?;
        found(known.clone(), *at)
    })
}

/// The line without the seconds that a builder of images puts before what a step printed: `12.34 error: …`.
fn untimed(line: &str) -> &str {
    let line = line.trim();
    let is_time = |word: &str| {
        let parts = word.split_once('.');
        parts.is_some_and(|(seconds, rest)| {
            [seconds, rest].iter().all(|part| digits(part) > 0 && digits(part) == part.len())
        })
    };
    match line.split_once(' ') {
        Some((time, rest)) if is_time(time) => rest.trim(),
        _ => line,
    }
}

/// How many digits the text begins with.
fn digits(text: &str) -> usize {
    text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len()
}

/// Whether a line says which command of `setup` is run next.
fn is_announcement(line: &str) -> bool {
    line.starts_with("setup: command ") && judged(line).is_none()
}

/// The failure of a step that does not know it itself.
fn full(line: &str) -> KnownError {
    let is_quota = line.contains("quota") || line.contains("os error 122");
    let what = if is_quota { "the disk quota is used up" } else { "the disk is full" };
    let hint = if is_quota {
        "what is used: quota -s, or the site's own command (diskusage_report, lfs quota)"
    } else {
        "what is left on that machine: df -h, and in number of files: df -i"
    };
    KnownError {
        matches: String::new(),
        says: format!("{what}, in bytes or in number of files"),
        hint: Some(hint.to_owned()),
        retry: false,
    }
}

/// The part of a line that can say why a step failed; `None` for a line that says what is being done.
fn judged(line: &str) -> Option<&str> {
    if PROGRESS.iter().any(|begin| line.starts_with(begin)) || is_of_a_build(line) {
        return None;
    }
    if let Some(command) = line.strip_prefix("setup: command ") {
        // `1 of 2: THE COMMAND`, and later `1 of 2 failed with exit status 3: THE COMMAND`.
        let (number, title) = command.split_once(": ")?;
        return number.contains(" failed with ").then(|| &line[..line.len() - title.len()]);
    }
    Some(line)
}

/// Whether a builder of images prints a step, or quotes the Dockerfile: the commands in it name what they would say.
fn is_of_a_build(line: &str) -> bool {
    // `#8 [4/5] RUN …`, and `  15 | >>> RUN …`
    let step = line.strip_prefix('#').is_some_and(|rest| digits(rest) > 0 && rest[digits(rest)..].starts_with(" ["));
    let quoted = digits(line) > 0 && line[digits(line)..].starts_with(" |");
    // `process "/bin/sh -c …" did not complete successfully: exit code: 1`, `building at STEP "RUN …"`
    let failed = ["process \"/bin/sh -c ", "The command '/bin/sh -c ", "building at STEP \"RUN "];
    step || quoted || failed.iter().any(|text| line.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(matches: &str, says: &str) -> KnownError {
        KnownError { matches: matches.to_owned(), says: says.to_owned(), hint: None, retry: false }
    }

    fn said(known: &[KnownError], lines: &[&str]) -> Option<String> {
        cause(known, lines.iter().copied()).map(|cause| cause.fill(&cause.known.says))
    }

    #[test]
    fn what_is_being_done_shows_no_failure() {
        let known = [
            rule("pyarrow.*module", "a module"),
            rule("setup: afterwards there was", "another Ray"),
            rule("nvcc|CUDA", "no compiler"),
        ];
        for progress in [
            "Installing collected packages: pyarrow, pyasn1-modules, ray",
            "  Downloading pyarrow_modules-1.0-py3-none-any.whl (1 MB)",
            " + pyarrow-module==1.0",
            "+ echo nvcc",
            "Setting up nvidia-cuda-toolkit CUDA (12.4) ...",
            "Get:7 http://archive.example/ubuntu noble/multiverse CUDA amd64",
            "setup: command 1 of 2: which nvcc",
            "#9 [4/4] RUN sh commands.sh && { echo \"setup: afterwards there was $found\"; }",
            " > [4/4] RUN sh commands.sh && { echo \"setup: afterwards there was $found\"; }:",
            "  16 | >>>  && { echo \"setup: afterwards there was $found instead of Ray\"; exit 1; } \\",
            "ERROR: failed to solve: process \"/bin/sh -c echo \\\"setup: afterwards there was\\\"\" did not complete \
             successfully: exit code: 1",
            "Step 4/4 : RUN echo \"setup: afterwards there was $found\"",
            "The command '/bin/sh -c echo \"setup: afterwards there was\"' returned a non-zero code: 1",
        ] {
            assert_eq!(said(&known, &[progress, "exit 1"]), None, "{progress}");
        }
        assert_eq!(said(&known, &["  RuntimeError: pyarrow: load its module"]).as_deref(), Some("a module"));
        assert_eq!(said(&known, &["setup: afterwards there was Ray 2"]).as_deref(), Some("another Ray"));
    }

    #[test]
    fn a_command_of_the_user_is_not_what_it_said() {
        let known = [rule("setup: command .* failed with", "{line}"), rule("nvcc", "no compiler")];
        let failed = "setup: command 1 of 1 failed with exit status 1: which nvcc || { echo No space left on device; }";
        assert_eq!(said(&known, &["setup: command 1 of 1: which nvcc", failed]).as_deref(), Some(failed));
        assert_eq!(said(&known[1..], &["setup: command 1 of 1: which nvcc", failed]), None);
    }

    #[test]
    fn what_the_system_refused_comes_before_what_follows_from_it() {
        let rules = [
            rule("pyarrow.*module|No matching distribution found for", "a module"),
            rule("Disk quota exceeded|os error 122", "no quota"),
            rule("No space left on device|os error 28", "no room"),
            rule("data: ", "{line}"),
        ];
        let full = [
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device: \
             '/home/a/pyarrow/module.so'",
            "  Caused by: failed to write `/home/a/pyarrow/module.py`: No space left on device (os error 28)",
            "ERROR: No matching distribution found for ray",
        ];
        assert_eq!(said(&rules, &full).as_deref(), Some("no room"));
        assert_eq!(said(&rules, &[full[2], "cp: cannot create 'x': Disk quota exceeded"]).as_deref(), Some("no quota"));
        // Also where the step does not know it.
        assert_eq!(said(&rules[..1], &full).as_deref(), Some("the disk is full, in bytes or in number of files"));
        let quota = said(&[], &["error: I/O error (os error 122)"]);
        assert_eq!(quota.as_deref(), Some("the disk quota is used up, in bytes or in number of files"));
        // A name is no cause.
        assert_eq!(said(&rules, &["Collecting no-space (No space left on device)"]), None);
    }

    #[test]
    fn the_line_before_is_what_a_command_last_said() {
        let known = [rule("setup: command .* failed with", "{line}; it last printed: {before}")];
        let failed = "setup: command 2 of 2 failed with exit status 2: [[ 1 ]]";
        let of = |lines: &[&str]| said(&known, lines).unwrap();
        let lines = ["setup: command 2 of 2: [[ 1 ]]", "sh: 1: [[: not found", "", failed];
        assert_eq!(of(&lines), format!("{failed}; it last printed: sh: 1: [[: not found"));
        assert_eq!(of(&[lines[0], lines[3]]), format!("{failed}; it last printed: nothing"));
        assert_eq!(of(&lines[3..]), format!("{failed}; it last printed: nothing"));
        // As BuildKit prints it again at the end.
        let timed: Vec<String> =
            lines.iter().filter(|line| !line.is_empty()).map(|line| format!("0.240 {line}")).collect();
        let timed: Vec<&str> = timed.iter().map(String::as_str).collect();
        assert_eq!(of(&timed), of(&lines));
    }

    #[test]
    fn the_first_known_failure_counts_with_the_last_of_its_lines() {
        let rules = [rule("timed out", "{line}"), rule("failed", "failed")];
        assert_eq!(said(&rules, &["a timed out", "b timed out ", "c failed"]).as_deref(), Some("b timed out"));
        assert_eq!(said(&rules, &["nothing"]), None);
    }
}
