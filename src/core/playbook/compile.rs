//! Compiles a stage into the text of one shell program.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::stage::{Stage, Step};
use crate::host::Host;
use crate::render::{quote, quote_path};

const COMMON: &str = include_str!("shell/common.sh");
const FACTS: &str = concat!(include_str!("shell/capacity.sh"), include_str!("shell/facts.sh"));
const EXEC: &str = include_str!("shell/exec.sh");
const DETACHED: &str = include_str!("shell/detached.sh");
const STEPS: &str = include_str!("shell/steps.sh");
const STEP: &str = include_str!("shell/step.sh");
const END: &str = include_str!("shell/end.sh");
const INSPECT: &str = include_str!("shell/inspect.sh");

/// How long the checks of a completed stage may take together, in seconds; one that hangs does not hold.
const CHECKS_LIMIT: u32 = 60;

/// Where a program runs.
#[derive(Debug, Clone)]
pub(super) struct ProgramPlace {
    /// The host's folder.
    pub(super) home: String,
    pub(super) lock: String,
    /// Whether it may reboot the machine.
    pub(super) reboots: bool,
    /// Whether it is for a person to read: what is sent has no comments, since its length can cost round trips.
    is_shown: bool,
}

impl ProgramPlace {
    /// The place of programs on a host.
    pub(super) fn of(host: &dyn Host) -> Self {
        let reboots = host.reboot_limit().is_some();
        Self { home: host.home().to_owned(), lock: host.lock(), reboots, is_shown: false }
    }

    /// A place known only by its folder, for programs that are shown.
    pub(super) fn at(home: &str) -> Self {
        Self { home: home.to_owned(), lock: format!("{home}/lock"), reboots: false, is_shown: true }
    }

    /// Adds a part of ours to a program. No part has a line of text, in a heredoc or in quotes, that begins with `#` or
    /// with spaces.
    fn add(&self, text: &mut String, part: &str) {
        if self.is_shown {
            text.push_str(part);
            return;
        }
        for line in part.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            text.push_str(line);
            text.push('\n');
        }
    }
}

/// The random ids of one run.
#[derive(Debug, Clone)]
pub(super) struct Ids {
    /// The detached program's id, in the environment of all its steps.
    pub(super) program: String,
    /// Marks the lines of the detached program.
    pub(super) program_nonce: String,
    /// Marks the lines of the exec.
    pub(super) exec_nonce: String,
}

/// Where to resume after a broken exec.
#[derive(Debug, Clone)]
pub(super) struct Resume {
    /// The program that was followed.
    pub(super) program: String,
    /// How many bytes of its log were received.
    pub(super) at: u64,
}

/// The program of an exec that runs a stage.
pub(super) fn stage_program(place: &ProgramPlace, stage: &Stage, ids: &Ids, resume: Option<&Resume>) -> String {
    let home = &place.home;
    let mut text = header(place, &stage.name, &ids.exec_nonce);
    let digest = stage.digest();
    assign(&mut text, "digest", &digest);
    assign(&mut text, "id", &ids.program);
    assign(&mut text, "program_nonce", &ids.program_nonce);
    assign_path(&mut text, "dir", &folder(home, stage));
    assign(&mut text, "limit", &seconds(stage.timeout).to_string());
    assign(&mut text, "resume", resume.map_or("", |resume| &resume.program));
    assign(&mut text, "resume_at", &resume.map_or(0, |resume| resume.at).to_string());
    assign(&mut text, "brief", if stage.wants_facts { "" } else { "1" });
    place.add(&mut text, COMMON);
    if stage.wants_facts {
        place.add(&mut text, FACTS);
    }
    deliver(&mut text, place, stage, ids);
    still_holds(&mut text, "still_holds", place, stage);
    place.add(&mut text, EXEC);
    // `main` comes last: a program that arrives cut off does nothing. And no step reads the program as its stdin.
    text.push_str("main </dev/null\n");
    text
}

/// The program of an exec that only collects the facts.
pub(super) fn facts_program(place: &ProgramPlace, nonce: &str) -> String {
    program_of(place, &[COMMON, FACTS, EXEC], nonce)
}

/// The program of an inspection: facts, completed stages, whether these still hold, and the output of the script.
pub(super) fn inspect_program(place: &ProgramPlace, stages: &[&Stage], script: &str, nonce: &str) -> String {
    inspection(place, stages, script, nonce, false)
}

/// The program of a glance: the boot id and the output of the script.
pub(super) fn glance_program(place: &ProgramPlace, script: &str, nonce: &str) -> String {
    inspection(place, &[], script, nonce, true)
}

fn inspection(place: &ProgramPlace, stages: &[&Stage], script: &str, nonce: &str, is_brief: bool) -> String {
    let mut text = header(place, "-", nonce);
    assign(&mut text, "brief", if is_brief { "1" } else { "" });
    assign(&mut text, "script", script);
    place.add(&mut text, COMMON);
    place.add(&mut text, FACTS);
    for (number, stage) in stages.iter().enumerate() {
        still_holds(&mut text, &format!("holds_{number}"), place, stage);
    }
    text.push_str("hold_all() {\n");
    for (number, stage) in stages.iter().enumerate() {
        let file = quote_path(&format!("{}/prepared/{}", place.home, stage.name));
        let (name, digest) = (quote(&stage.name), quote(&stage.digest()));
        let _ = writeln!(
            text,
            "done_digest=\n{{ read -r _ done_digest <{file}; }} 2>/dev/null\nif [ \"$done_digest\" = {digest} ]; then \
             if holds_{number}; then say holds {name} yes; else say holds {name} no; fi; fi"
        );
    }
    text.push_str(":\n}\n");
    place.add(&mut text, EXEC);
    place.add(&mut text, INSPECT);
    text.push_str("main </dev/null\n");
    text
}

/// The program of an exec that ends the running program.
pub(super) fn end_program(place: &ProgramPlace, nonce: &str) -> String {
    program_of(place, &[COMMON, EXEC, END], nonce)
}

/// A program of these parts alone, without a stage.
fn program_of(place: &ProgramPlace, parts: &[&str], nonce: &str) -> String {
    let mut text = header(place, "-", nonce);
    for part in parts {
        place.add(&mut text, part);
    }
    text.push_str("main </dev/null\n");
    text
}

fn header(place: &ProgramPlace, stage: &str, nonce: &str) -> String {
    let mut text = String::from("# A host program of gpucl.\nset -u\n");
    assign_path(&mut text, "home", &place.home);
    assign_path(&mut text, "lock", &place.lock);
    assign(&mut text, "reboots", if place.reboots { "yes" } else { "no" });
    assign(&mut text, "stage", stage);
    assign(&mut text, "nonce", nonce);
    text
}

fn assign(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name}={}", quote(value));
}

fn assign_path(text: &mut String, name: &str, path: &str) {
    let _ = writeln!(text, "{name}={}", quote_path(path));
}

/// The folder of a stage's detached program.
fn folder(home: &str, stage: &Stage) -> String {
    format!("{home}/program/{}-{}", stage.name, stage.digest())
}

/// The function that writes the detached program and the stage's files.
fn deliver(text: &mut String, place: &ProgramPlace, stage: &Stage, ids: &Ids) {
    let home = &place.home;
    let folder = folder(home, stage);
    text.push_str("deliver() {\n");
    let mut put = |name: String, script: &str| {
        let _ = writeln!(text, "printf '%s' {} >\"$dir\"/{name} || return 1", quote(script));
    };
    put("common.sh".to_owned(), &detached_header(place, stage, ids));
    let common = format!(". {}\n", quote_path(&format!("{folder}/common.sh")));
    put("run.sh".to_owned(), &format!("{common}{}", detached_program(place, stage)));
    put("steps.sh".to_owned(), &format!("{common}{}", steps_program(place, stage)));
    put("step.sh".to_owned(), &preamble(place, stage, &format!("{folder}/values")));
    for (number, step) in (1_usize..).zip(&stage.steps) {
        let mut script = format!(". {}\n", quote_path(&format!("{folder}/step.sh")));
        assign_path(&mut script, "gpucl_skipped", &format!("{folder}/{number}.skipped"));
        assign_all(&mut script, &step.variables);
        if let Some(unless) = &step.unless {
            script.push_str(&check_first(unless));
        }
        put(format!("{number}.sh"), &format!("{script}{}", step.run));
    }
    for file in &stage.files {
        let path = format!("{home}/{}", file.path);
        let parent = path.rsplit_once('/').map_or(home.as_str(), |(parent, _)| parent);
        let (new, path) = (quote_path(&format!("{path}.gpucl-new")), quote_path(&path));
        let _ = writeln!(
            text,
            "mkdir -p {} && base64 -d >{new} <<'GPUCL_FILE' && chmod {:04o} {new} && mv -f {new} {path} || return 1\n\
             {}GPUCL_FILE",
            quote_path(parent),
            file.mode & 0o7777,
            base64(&file.bytes)
        );
    }
    text.push_str("}\n");
}

/// What precedes a step that is skipped when a check holds: one process is enough for both. Only the first attempt
/// checks, since a step that failed may have left what its check looks for.
fn check_first(unless: &str) -> String {
    // A subshell, since a check may end with `exit`; outside of any condition, in which `set -e` does not hold.
    format!(
        "if [ \"${{1-}}\" = check ]; then\nset +e\n(\nset -e\n{unless}\n) >/dev/null 2>&1\n[ $? -ne 0 ] || {{ : \
         >\"$gpucl_skipped\"; exit 0; }}\nset -e\nfi\n"
    )
}

/// The shell function that checks cheaply whether the results of the stage still exist, in one process for all steps.
fn still_holds(text: &mut String, name: &str, place: &ProgramPlace, stage: &Stage) {
    let home = &place.home;
    let _ = writeln!(text, "{name}() {{");
    for file in &stage.files {
        let _ = writeln!(text, "[ -f {} ] || return 1", quote_path(&format!("{home}/{}", file.path)));
    }
    let mut checks = String::new();
    for step in &stage.steps {
        let exists = step.creates.as_ref().map(|path| format!("[ -e {} ]", quote(path)));
        let Some(unless) = &step.unless else {
            if let Some(exists) = exists {
                let _ = writeln!(text, "{exists} || return 1");
            }
            continue;
        };
        // A subshell, since a check may end with `exit`; outside of any condition, in which `set -e` does not hold.
        let mut check = String::new();
        if step.variables.is_empty() && is_single_test(unless) {
            let _ = writeln!(check, "{unless}");
        } else {
            check.push_str("(\n");
            assign_all(&mut check, &step.variables);
            let _ = writeln!(check, "{unless}\n)");
        }
        let _ = match exists {
            Some(exists) => write!(checks, "if ! {exists}; then\n{check}fi\n"),
            None => write!(checks, "{check}"),
        };
    }
    if !checks.is_empty() {
        let mut script = preamble(place, stage, &format!("{home}/prepared/{}", stage.name));
        assign(&mut script, "gpucl_skipped", "/dev/null");
        script.push_str(&checks);
        // Not as an argument, which everybody on the host can read: a variable may hold a proxy URL with its password.
        let end = end_of(&script);
        let _ = writeln!(
            text,
            "timeout {CHECKS_LIMIT} sh /dev/fd/3 3<<'{end}' </dev/null >/dev/null 2>&1 9>&- || return 1\n{script}{end}"
        );
    }
    text.push_str(":\n}\n");
}

/// Whether a check is a single `[ … ]`, which can neither end its shell nor change it.
fn is_single_test(check: &str) -> bool {
    let inner = check.trim().strip_prefix("[ ").and_then(|rest| rest.strip_suffix(" ]"));
    inner.is_some_and(|inner| !inner.contains(['\n', ';', '|', '&', '(', ')', '<', '>', '`', '=', '#']))
}

/// A heredoc delimiter that is not a line of the text.
fn end_of(text: &str) -> String {
    let mut end = "GPUCL_TEXT".to_owned();
    while text.lines().any(|line| line == end) {
        end.push('_');
    }
    end
}

/// What the detached program and the one that runs its steps share.
fn detached_header(place: &ProgramPlace, stage: &Stage, ids: &Ids) -> String {
    let mut text = header(place, &stage.name, &ids.program_nonce);
    assign(&mut text, "digest", &stage.digest());
    assign(&mut text, "id", &ids.program);
    assign_path(&mut text, "dir", &folder(&place.home, stage));
    place.add(&mut text, COMMON);
    text
}

/// The text of the detached program.
fn detached_program(place: &ProgramPlace, stage: &Stage) -> String {
    let mut text = String::new();
    assign(&mut text, "limit", &seconds(stage.timeout).to_string());
    let finally: Vec<String> =
        (1_usize..).zip(&stage.steps).filter(|(_, step)| step.finally).map(|(number, _)| number.to_string()).collect();
    assign(&mut text, "finally", &finally.join(" "));
    place.add(&mut text, DETACHED);
    text.push_str("begin\nrun_steps\ncomplete\n");
    text
}

/// The text of the program that runs the steps.
fn steps_program(place: &ProgramPlace, stage: &Stage) -> String {
    let mut text = String::new();
    place.add(&mut text, STEPS);
    for (number, step) in (1..).zip(&stage.steps) {
        let _ = writeln!(text, "{}", call(number, step));
    }
    text
}

fn call(number: usize, step: &Step) -> String {
    format!(
        "step {number} {} {} {} {} {}",
        step.retry,
        step.timeout.map_or(0, seconds),
        quote(step.creates.as_deref().unwrap_or_default()),
        quote(&step.name),
        if step.reboot { "yes" } else { "no" }
    )
}

/// What precedes every script of a stage: the functions for steps, and the stage's variables.
fn preamble(place: &ProgramPlace, stage: &Stage, values: &str) -> String {
    let mut text = String::new();
    assign_path(&mut text, "gpucl_home", &place.home);
    assign_path(&mut text, "gpucl_values", values);
    place.add(&mut text, STEP);
    assign_all(&mut text, &stage.variables);
    text
}

fn assign_all(text: &mut String, variables: &BTreeMap<String, String>) {
    for (name, value) in variables {
        assign(text, name, value);
    }
}

/// Whole seconds, at least one.
fn seconds(duration: Duration) -> u64 {
    duration.as_millis().div_ceil(1000).clamp(1, 1_000_000) as u64
}

/// Base64 in lines of 76 letters, each with a line break.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3 / 2);
    for line in bytes.chunks(57) {
        STANDARD.encode_string(line, &mut text);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sent without comments and indentation is the same program, as a shell prints it that has read it.
    #[test]
    fn a_program_without_comments_is_the_same_program() {
        let read = |text: &str| {
            let program = format!("code() {{\n{text}\n:\n}}\ndeclare -f code\n");
            let output = std::process::Command::new("bash").args(["-c", &program]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let lines = String::from_utf8(output.stdout).unwrap();
            // Text within quotes keeps its lines: only awk reads any of it.
            lines.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>()
        };
        let place = ProgramPlace { home: "/x".to_owned(), lock: "/x/lock".to_owned(), reboots: false, is_shown: false };
        for part in [COMMON, FACTS, EXEC, DETACHED, STEPS, STEP, END, INSPECT] {
            let mut sent = String::new();
            place.add(&mut sent, part);
            assert!(sent.len() < part.len() && !sent.contains("\n#"), "{sent}");
            assert_eq!(read(&sent), read(part));
        }
    }

    #[test]
    fn only_a_single_test_runs_without_a_subshell() {
        for check in ["[ -s \"$folder/1\" ]", " [ -e /dev/kfd ]\n", "[ ! -d data ]"] {
            assert!(is_single_test(check), "{check}");
        }
        for check in [
            "[ -e a ] || exit 0",
            "[ -e a ]; [ -e b ]",
            "[ -e a ]\n[ -e b ]",
            "[ $(id -u) -gt 0 ]",
            "[ \"${a:=1}\" ]",
            "true",
        ] {
            assert!(!is_single_test(check), "{check}");
        }
    }

    #[test]
    fn a_heredoc_delimiter_is_not_a_line_of_its_text() {
        assert_eq!(end_of("a\nGPUCL_TEXT\nGPUCL_TEXT_\n"), "GPUCL_TEXT__");
    }

    #[test]
    fn base64_is_standard_and_wrapped() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"f"), "Zg==\n");
        assert_eq!(base64(b"fo"), "Zm8=\n");
        assert_eq!(base64(b"foobar"), "Zm9vYmFy\n");
        assert_eq!(base64(&[0xff; 58]).lines().map(str::len).collect::<Vec<_>>(), [76, 4]);
    }
}
