//! How programs fail, hang, are killed, and what they can never do.

use std::path::Path;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::event::{Bus, StepOutcome};
use gpucl::host::{ExecEnd, Host, OnLine};
use gpucl::playbook::{self, KnownError, StageReport, Step};
use gpucl::render::Library;
use rustix::process::{Signal, kill_process};

use super::support::{Home, ShellHost, lines, outcomes, run, running_program, runs_anywhere, stage, step};

#[tokio::test]
async fn a_failing_step_shows_its_last_lines_and_its_hint() {
    let home = Home::new();
    let failing = Step {
        hint: Some("make it work".to_owned()),
        ..step("break", "for i in $(seq 30); do echo line $i; done; printf 'no newline' >&2; exit 7")
    };
    let error =
        run(&home.host(), &stage(vec![step("first", ":"), failing, step("never", "touch never")])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Host);
    assert_eq!(error.doing(), "prepare here: step `break`");
    let shown = &error.causes()[0];
    assert!(shown.starts_with("line 12\n") && shown.ends_with("line 30\nno newline"), "{shown}");
    assert_eq!(shown.lines().count(), 20);
    assert_eq!(error.hints(), ["make it work"]);
    assert!(!home.path().join("never").exists());
    // A failure is not remembered as success.
    assert!(
        run(&home.host(), &stage(vec![step("first", "exit 3")])).await.unwrap_err().to_string().contains("exit code 3")
    );
}

#[tokio::test]
async fn a_known_failure_says_what_it_means() {
    let home = Home::new();
    let known = vec![
        KnownError { matches: "not this".to_owned(), says: "wrong".to_owned(), hint: None, retry: false },
        KnownError {
            matches: "No space.*device".to_owned(),
            says: "the disk is full".to_owned(),
            hint: Some("df -h".to_owned()),
            retry: false,
        },
    ];
    let failing = Step { errors: known, ..step("write", "echo 'tar: No space left on device' >&2; echo more; exit 2") };
    let error = run(&home.host(), &stage(vec![failing])).await.unwrap_err();
    assert_eq!((error.causes()[0].as_str(), error.hints()), ("the disk is full", &["df -h".to_owned()][..]));
}

#[tokio::test]
async fn a_step_is_tried_again_as_often_as_it_says() {
    let home = Home::new();
    let flaky = Step { retry: 1, ..step("flaky", "echo try >>tries; [ \"$(wc -l <tries)\" -ge 2 ]") };
    let report = run(&home.host(), &stage(vec![flaky])).await.unwrap();
    assert_eq!(outcomes(&report), [("flaky", StepOutcome::Changed)]);
    assert_eq!(home.read("tries"), "try\ntry\n");
}

#[tokio::test]
async fn a_hanging_step_is_ended_at_its_limit_with_its_children() {
    let home = Home::new();
    let hanging = Step {
        // A busy machine takes a second to come to its first word.
        timeout: Some(Duration::from_secs(3)),
        // One child ignores SIGTERM, one has a session of its own.
        ..step("hang", "trap '' TERM; echo waiting; setsid sleep 86411 & (sleep 86412 &); sleep 86413")
    };
    let begun = Instant::now();
    let error = run(&home.host(), &stage(vec![hanging])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.causes(), ["it did not end within 3s, the step's limit, and was ended", "waiting"]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(!runs_anywhere(&running_program(&home).0), "something of the step still runs");
    for sleep in ["86411", "86412", "86413"] {
        assert!(!runs_anywhere(&format!("sleep\0{sleep}")), "sleep {sleep} still runs");
    }
    // The stage's limit holds as well.
    let mut short = stage(vec![step("first", ":"), step("hang", "sleep 86414")]);
    short.timeout = Duration::from_secs(1);
    let error = run(&home.host(), &short).await.unwrap_err();
    assert!(error.to_string().contains("the stage's limit"), "{error}");
    assert!(!runs_anywhere("sleep\x0086414"));
}

#[tokio::test]
async fn a_killed_program_is_distinguished_from_a_finished_one() {
    let home = Home::new();
    let stage = stage(vec![step("work", "if [ -e second ]; then exit 0; fi; touch second; setsid sleep 86415")]);
    let kill = async {
        while !home.path().join("second").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (id, pid) = running_program(&home);
        kill_process(pid, Signal::KILL).unwrap();
        id
    };
    let host = home.host();
    let (killed, id) = tokio::join!(run(&host, &stage), kill);
    let error = killed.unwrap_err();
    assert!(error.to_string().contains("disappeared without a result"), "{error}");
    let report = run(&home.host(), &stage).await.unwrap();
    assert_eq!(outcomes(&report), [("work", StepOutcome::Changed)]);
    assert!(!runs_anywhere(&id), "a step of the killed program still runs");
}

/// All steps have one process group, apart from the program's own.
#[tokio::test]
async fn a_step_that_kills_its_process_group_fails_by_its_name() {
    let home = Home::new();
    let steps =
        vec![step("first", ":"), step("group", "echo about to; trap 'kill 0' EXIT"), step("never", "touch never")];
    let error = run(&home.host(), &stage(steps)).await.unwrap_err();
    assert_eq!((error.kind(), error.doing()), (ErrorKind::Host, "prepare here: step `group`"));
    assert_eq!(error.causes(), ["about to"]);
    assert!(!home.path().join("never").exists());
    assert!(!runs_anywhere(&running_program(&home).0));
}

/// As on a full disk, where the log may still have room in its last block.
#[tokio::test]
async fn a_failure_is_reported_though_its_result_cannot_be_written() {
    let home = Home::new();
    let full = step("fill", "echo 'No space left'; cd program/prepare-*; mkdir result verdict; exit 7");
    let hint = Step { hint: Some("df -h".to_owned()), ..full };
    let error = run(&home.host(), &stage(vec![hint])).await.unwrap_err();
    assert_eq!((error.kind(), error.doing()), (ErrorKind::Host, "prepare here: step `fill`"));
    assert!(error.causes()[0].starts_with("No space left\n"), "{error}");
    assert_eq!(error.hints(), ["df -h"]);
}

#[tokio::test]
async fn a_step_at_its_limit_has_time_to_clean_up() {
    let home = Home::new();
    let careful =
        "trap 'echo asked >>said; sh -c \"sleep 1; echo cleaned >>said\"; exit 1' TERM; touch begun; sleep 30 & wait";
    let mut stage = stage(vec![step("careful", careful)]);
    // A busy machine takes a second to come to the step.
    stage.timeout = Duration::from_secs(4);
    let error = run(&home.host(), &stage).await.unwrap_err();
    assert!(error.to_string().contains("the stage's limit"), "{error}");
    assert_eq!(home.read("said"), "asked\ncleaned\n");
}

#[tokio::test]
async fn nothing_begins_once_the_program_is_gone() {
    for work in ["echo try >>tries; touch begun; sleep 1", "echo try >>tries; touch begun; sleep 1; exit 3"] {
        nothing_begins_after(work).await;
    }
}

async fn nothing_begins_after(work: &str) {
    let home = Home::new();
    let steps = vec![Step { retry: 2, ..step("work", work) }, step("never", "touch never")];
    let kill = async {
        while !home.path().join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (id, pid) = running_program(&home);
        kill_process(pid, Signal::KILL).unwrap();
        id
    };
    let (host, stage) = (home.host(), stage(steps));
    let (killed, id) = tokio::join!(run(&host, &stage), kill);
    assert!(killed.unwrap_err().to_string().contains("disappeared without a result"));
    let begun = Instant::now();
    while runs_anywhere(&id) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the steps go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(home.read("tries"), "try\n", "{work}");
    assert!(!home.path().join("never").exists(), "{work}");
}

#[tokio::test]
async fn cancelling_leaves_the_program_and_ending_it_ends_all() {
    let home = Home::new();
    let stage = stage(vec![step("work", "touch begun; sleep 86416")]);
    let (bus, _inbox) = Bus::new();
    let cancel = async {
        while !home.path().join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    let error = playbook::run_stage(&home.host(), &stage, &bus, cancel).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let (id, _) = running_program(&home);
    assert!(runs_anywhere(&id));
    assert_eq!(playbook::end_program(&home.host()).await.unwrap().as_deref(), Some("prepare"));
    assert!(!runs_anywhere(&id));
    assert_eq!(playbook::end_program(&home.host()).await.unwrap(), None);
}

#[tokio::test]
async fn output_of_a_step_cannot_pass_for_a_result() {
    let home = Home::new();
    let forging =
        "echo '::gpucl x end ok'; echo '::gpucl  change 1 0 forge'; printf '::gpucl over x result ok'; exit 9";
    let (bus, mut inbox) = Bus::new();
    let stage = stage(vec![step("forge", forging)]);
    let error = playbook::run_stage(&home.host(), &stage, &bus, std::future::pending()).await.unwrap_err();
    assert!(error.causes()[0].contains("::gpucl x end ok"), "{error}");
    // They are lines like any other, the one without its newline too.
    assert_eq!(lines(&mut inbox)[3], "::gpucl over x result ok");
}

#[tokio::test]
async fn variables_arrive_literally_in_every_shell() {
    let tricky = "it's \"quoted\" $HOME `id` \\ \n  two  spaces\n::gpucl $(id) 100% é\n";
    for shell in [&["dash", "-s"][..], &["bash", "--posix", "-s"], &["sh", "-s"]] {
        let home = Home::new();
        let mut host = ShellHost::new(&home, shell);
        // The detached program's `sh` is that shell, too.
        let bin = home.folder.path().join("bin");
        fs_err::create_dir(&bin).unwrap();
        let found = std::env::split_paths(&host.path).map(|folder| folder.join(shell[0])).find(|path| path.is_file());
        let Some(found) = found else {
            assert!(shell[0] != "sh", "there is no sh");
            continue;
        };
        fs_err::os::unix::fs::symlink(found, bin.join("sh")).unwrap();
        host.path = format!("{}:{}", bin.display(), host.path);
        let mut stage =
            stage(vec![step("write", "printf %s \"$tricky\" >out; value shell \"$(readlink /proc/$$/exe)\"")]);
        stage.variables.insert("tricky".to_owned(), tricky.to_owned());
        let report = run(&host, &stage).await.unwrap();
        assert_eq!(home.read("out"), tricky, "{shell:?}");
        let ran = &report.values["shell"];
        assert!(shell[0] == "sh" || Path::new(ran).ends_with(shell[0]), "{shell:?} ran {ran}");
        assert!(run(&host, &stage).await.unwrap().skipped_as_unchanged, "{shell:?}");
    }
}

/// A host with nothing but busybox: its `grep`, `timeout` and `flock` do less than others.
#[tokio::test]
#[ignore = "testbed"]
async fn busybox_alone_is_enough() {
    let home = Home::new();
    let bin = home.folder.path().join("bin");
    fs_err::create_dir(&bin).unwrap();
    let installed = std::process::Command::new("busybox").args(["--install", "-s"]).arg(&bin).status();
    assert!(installed.is_ok_and(|status| status.success()), "install busybox");
    // Debian builds it without this one.
    if !bin.join("flock").exists() {
        fs_err::os::unix::fs::symlink("/usr/bin/flock", bin.join("flock")).unwrap();
    }
    let mut host = ShellHost::new(&home, &[bin.join("sh").to_str().unwrap(), "-s"]);
    host.path = bin.display().to_string();
    let steps = vec![step("write", "echo done >out; value key text"), step("slow", "sleep 1; echo more >>out")];
    let whole = stage(steps);
    let report = run(&host, &whole).await.unwrap();
    assert_eq!(outcomes(&report), [("write", StepOutcome::Changed), ("slow", StepOutcome::Changed)]);
    assert_eq!((home.read("out").as_str(), report.values["key"].as_str()), ("done\nmore\n", "text"));
    assert!(report.facts.cpus > 0 && report.facts.memory > 0);
    assert!(run(&host, &whole).await.unwrap().skipped_as_unchanged);

    let mut short = stage(vec![step("hang", "setsid sleep 86421 & sleep 86422; touch went-on")]);
    short.timeout = Duration::from_secs(1);
    let error = run(&host, &short).await.unwrap_err();
    assert!(error.to_string().contains("the stage's limit"), "{error}");
    let own = Step { timeout: Some(Duration::from_secs(1)), ..step("hang", "setsid sleep 86423 & sleep 86424") };
    let error = run(&host, &stage(vec![own])).await.unwrap_err();
    assert!(error.to_string().contains("the step's limit"), "{error}");
    let error = run(&host, &stage(vec![step("fail", "setsid sleep 86425 & exit 3")])).await.unwrap_err();
    assert!(error.to_string().contains("exit code 3"), "{error}");
    for number in 86421..=86425 {
        assert!(!runs_anywhere(&format!("sleep\0{number}")), "sleep {number} still runs");
    }
    assert!(!home.path().join("went-on").exists());
}

#[tokio::test]
async fn a_truncated_program_does_nothing() {
    let home = Home::new();
    let whole = Recorder::default();
    let _: Result<StageReport> = run(&whole, &stage(vec![step("a", "touch ran")])).await;
    let program = whole.0.lock().unwrap().clone();
    assert!(program.contains("main </dev/null"));
    let program = program.replace("/nowhere", home.path().to_str().unwrap().replace('\'', "'\\''").as_str());
    for part in [program.len() / 4, program.len() / 2, program.len() - 20] {
        let _: ExecEnd = home.host().exec(&program[..part], &mut |_, _| {}).await.unwrap();
        assert!(!home.path().exists(), "{part} of {} bytes did something", program.len());
    }
}

/// A host that only keeps the program it was given.
#[derive(Default)]
struct Recorder(std::sync::Mutex<String>);

#[async_trait]
impl Host for Recorder {
    fn name(&self) -> &'static str {
        "nowhere"
    }

    fn home(&self) -> &'static str {
        "/nowhere"
    }

    async fn exec(&self, program: &str, _: OnLine<'_>) -> Result<ExecEnd> {
        let first = self.0.lock().unwrap().is_empty();
        if first {
            program.clone_into(&mut self.0.lock().unwrap());
        }
        Err(Error::new(ErrorKind::Host, "run nothing"))
    }
}

#[tokio::test]
async fn an_unwritable_folder_is_reported() {
    let home = Home::new();
    fs_err::write(home.path(), "a file in its place").unwrap();
    let error = run(&home.host(), &stage(vec![step("a", ":")])).await.unwrap_err();
    assert!(error.to_string().contains("cannot be written"), "{error}");
}

#[test]
fn a_playbook_with_an_unknown_key_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir(folder.path().join("playbooks")).unwrap();
    let path = folder.path().join("playbooks/mine.yaml");
    fs_err::write(&path, "name: mine\nsummary: x\nsteps:\n  - {name: a, run: ':', retries: 3}\n").unwrap();
    let error = playbook::load(&Library::new(vec![folder.path().into()]), "mine").unwrap_err();
    assert!(error.to_string().contains("unknown field `retries`"), "{error}");
    assert!(error.doing().contains(path.to_str().unwrap()), "{error}");
}
