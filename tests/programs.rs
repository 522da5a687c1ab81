//! Host programs for real: real shells, real detachment, real kills.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::event::{Bus, EventKind, Inbox, StepOutcome};
use gpucl::host::{ExecEnd, Host, LocalHost, OnLine, Stream};
use gpucl::playbook::{self, KnownError, Stage, StageFile, StageReport, Step};
use gpucl::render::Library;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// A folder that is the home of one host.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            folder: tempfile::Builder::new()
                .prefix("gpucl-test-programs-")
                .tempdir()
                .unwrap(),
        }
    }

    /// The host's folder; a blank and a quote in its path must not matter.
    fn path(&self) -> PathBuf {
        self.folder.path().join("it's home")
    }

    fn host(&self) -> LocalHost {
        LocalHost::new("here", self.path()).unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs_err::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// Waits until a file of the home holds this text.
    async fn until(&self, name: &str, text: &str) {
        let begun = Instant::now();
        while !self.read(name).contains(text) {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{name} never held {text}: {}",
                self.read(name)
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn step(name: &str, run: &str) -> Step {
    Step {
        name: name.to_owned(),
        run: run.to_owned(),
        ..Step::default()
    }
}

fn stage(steps: Vec<Step>) -> Stage {
    Stage {
        name: "prepare".to_owned(),
        steps,
        files: Vec::new(),
        variables: BTreeMap::new(),
        timeout: Duration::from_secs(60),
    }
}

async fn run(host: &dyn Host, stage: &Stage) -> Result<StageReport> {
    let (bus, _inbox) = Bus::new();
    playbook::run_stage(host, stage, &bus, std::future::pending()).await
}

fn outcomes(report: &StageReport) -> Vec<(&str, StepOutcome)> {
    report
        .steps
        .iter()
        .map(|step| (step.name.as_str(), step.outcome))
        .collect()
}

fn lines(inbox: &mut Inbox) -> Vec<String> {
    let mut lines = Vec::new();
    while let Ok(event) = inbox.try_recv() {
        if let EventKind::HostLine { line, .. } = event {
            lines.push(line);
        }
    }
    lines
}

/// Whether any process has this text in its command line or environment.
fn runs_anywhere(text: &str) -> bool {
    let holds = |path: PathBuf| {
        fs_err::read(path).is_ok_and(|bytes| {
            bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        })
    };
    fs_err::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .any(|path| {
            let pid = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.parse::<u32>().is_ok());
            pid && (holds(path.join("cmdline")) || holds(path.join("environ")))
        })
}

fn running_program(home: &Home) -> (String, Pid) {
    let current = home.read("program/current");
    let mut words = current.split(' ');
    let id = words.next().unwrap().to_owned();
    (
        id,
        Pid::from_raw(words.next().unwrap().parse().unwrap()).unwrap(),
    )
}

/// A host whose shell is named, and whose first so many execs are killed after a while.
struct ShellHost {
    home: PathBuf,
    shell: Vec<&'static str>,
    path: String,
    kills: AtomicU32,
    after: Duration,
}

impl ShellHost {
    fn new(home: &Home, shell: &[&'static str]) -> Self {
        let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
        Self {
            home: home.path(),
            shell: shell.to_vec(),
            path,
            kills: AtomicU32::new(0),
            after: Duration::ZERO,
        }
    }
}

#[async_trait]
impl Host for ShellHost {
    fn name(&self) -> &'static str {
        "here"
    }

    fn home(&self) -> &str {
        self.home.to_str().unwrap()
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        let mut child = tokio::process::Command::new(self.shell[0])
            .args(&self.shell[1..])
            .env("PATH", &self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        stdin.write_all(program.as_bytes()).await.unwrap();
        drop(stdin);
        let killed = self
            .kills
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok();
        let killer = async {
            if killed {
                tokio::time::sleep(self.after).await;
                child.start_kill().unwrap();
            }
        };
        let mut out = BufReader::new(stdout).lines();
        let read = async {
            while let Ok(Some(line)) = out.next_line().await {
                on_line(Stream::Out, &line);
            }
        };
        tokio::join!(killer, read);
        Ok(child
            .wait()
            .await
            .unwrap()
            .code()
            .map_or(ExecEnd::Broken, ExecEnd::Exited))
    }
}

#[tokio::test]
async fn steps_run_once_and_an_unchanged_host_runs_nothing() {
    let home = Home::new();
    let mut stage = stage(vec![
        step(
            "count",
            "echo once >>count; value answer 'forty two'; echo counted",
        ),
        Step {
            creates: Some("made".to_owned()),
            ..step("make", "touch made")
        },
        Step {
            unless: Some("test -e made".to_owned()),
            ..step("make again", "echo never >>count")
        },
    ]);
    stage.files = vec![
        StageFile {
            path: "bin/tool".to_owned(),
            mode: 0o750,
            bytes: (0..=255).cycle().take(10_000).collect(),
        },
        StageFile {
            path: "a 'b/secret".to_owned(),
            mode: 0o400,
            bytes: b"x".to_vec(),
        },
    ];
    let (bus, mut inbox) = Bus::new();
    let first = playbook::run_stage(&home.host(), &stage, &bus, std::future::pending())
        .await
        .unwrap();
    assert_eq!(
        outcomes(&first),
        [
            ("count", StepOutcome::Changed),
            ("make", StepOutcome::Changed),
            ("make again", StepOutcome::Skipped)
        ]
    );
    assert!(!first.skipped_as_unchanged && !first.attached);
    assert_eq!(
        first.values.get("answer").map(String::as_str),
        Some("forty two")
    );
    assert_eq!(
        lines(&mut inbox),
        ["[count]", "counted", "[make]", "[make again]"]
    );
    for file in &stage.files {
        let path = home.path().join(&file.path);
        assert_eq!(fs_err::read(&path).unwrap(), file.bytes, "{}", file.path);
        assert_eq!(
            fs_err::metadata(&path).unwrap().permissions().mode() & 0o7777,
            file.mode,
            "{}",
            file.path
        );
    }

    let second = run(&home.host(), &stage).await.unwrap();
    assert!(second.skipped_as_unchanged && second.steps.is_empty());
    assert_eq!(second.values, first.values);
    assert_eq!(home.read("count"), "once\n");

    // What a step created is gone: the digest alone is no proof.
    fs_err::remove_file(home.path().join("made")).unwrap();
    let third = run(&home.host(), &stage).await.unwrap();
    assert!(!third.skipped_as_unchanged);
    assert_eq!(home.read("count"), "once\nonce\n");

    // Another file is another digest.
    stage.files[0].bytes.push(0);
    assert!(
        !run(&home.host(), &stage)
            .await
            .unwrap()
            .skipped_as_unchanged
    );
}

#[tokio::test]
async fn facts_come_with_every_exec_and_alone() {
    let home = Home::new();
    let alone = playbook::facts(&home.host()).await.unwrap();
    assert!(!home.path().exists(), "learning facts changed something");
    fs_err::create_dir(home.path()).unwrap();
    let report = run(&home.host(), &stage(vec![step("nothing", ":")]))
        .await
        .unwrap();
    let boot = fs_err::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for facts in [&alone, &report.facts] {
        assert_eq!(facts.boot_id, boot.trim());
        assert_eq!(
            facts.cpus as usize,
            std::thread::available_parallelism().unwrap().get()
        );
        assert!(facts.memory > 1 << 28 && !facts.kernel.is_empty() && !facts.user.is_empty());
    }
    assert!(report.facts.disk_free > 0);
}

#[tokio::test]
async fn a_program_goes_on_without_its_exec_and_is_followed_again() {
    let home = Home::new();
    let stage = stage(vec![step(
        "wait",
        "echo one >>said; echo one; until [ -e go ]; do sleep 0.05; done; echo two >>said; echo two",
    )]);
    let left = home.host();
    {
        let (bus, _inbox) = Bus::new();
        // Dropped in the middle: what Ctrl-C twice, or the end of gpucl, comes to.
        tokio::select! {
            report = playbook::run_stage(&left, &stage, &bus, std::future::pending()) => panic!("it ended: {report:?}"),
            () = home.until("said", "one") => {}
        }
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    fs_err::write(home.path().join("go"), "").unwrap();
    home.until("said", "two").await;
    let again = run(&home.host(), &stage).await.unwrap();
    assert!(again.skipped_as_unchanged || again.attached);
    assert_eq!(home.read("said"), "one\ntwo\n");
}

#[tokio::test]
async fn attaching_shows_the_whole_log_and_the_result() {
    let home = Home::new();
    let stage = stage(vec![step(
        "wait",
        "echo from the beginning; touch begun; until [ -e go ]; do sleep 0.05; done; value k v",
    )]);
    let host = home.host();
    let (bus, _inbox) = Bus::new();
    let first = playbook::run_stage(&host, &stage, &bus, std::future::pending());
    let second = async {
        while !home.path().join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (bus, mut inbox) = Bus::new();
        let opener = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            fs_err::write(home.path().join("go"), "").unwrap();
        };
        let host = home.host();
        let (report, ()) = tokio::join!(
            playbook::run_stage(&host, &stage, &bus, std::future::pending()),
            opener
        );
        (report.unwrap(), lines(&mut inbox))
    };
    let (first, (second, shown)) = tokio::join!(first, second);
    let first = first.unwrap();
    assert!(second.attached && !first.attached);
    assert_eq!(outcomes(&first), outcomes(&second));
    assert_eq!(
        (
            second.values.get("k").map(String::as_str),
            second.values == first.values
        ),
        (Some("v"), true)
    );
    assert_eq!(shown, ["[wait]", "from the beginning"]);
}

#[tokio::test]
async fn a_killed_exec_is_replaced_and_no_line_is_lost_or_doubled() {
    let home = Home::new();
    let mut host = ShellHost::new(&home, &["sh", "-s"]);
    host.kills = AtomicU32::new(4);
    host.after = Duration::from_millis(350);
    let steps = (1..=3).map(|n| {
        step(
            &format!("s{n}"),
            "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.1; done",
        )
    });
    let (bus, mut inbox) = Bus::new();
    let stage = stage(steps.collect());
    let report = playbook::run_stage(&host, &stage, &bus, std::future::pending())
        .await
        .unwrap();
    assert_eq!(host.kills.load(Ordering::Relaxed), 0, "no exec was killed");
    assert!(!report.attached);
    assert_eq!(report.steps.len(), 3);
    let expected: Vec<String> = (1..=3)
        .flat_map(|n| {
            std::iter::once(format!("[s{n}]")).chain((1..=8).map(|i| format!("line {i}")))
        })
        .collect();
    assert_eq!(lines(&mut inbox), expected);
}

#[tokio::test]
async fn a_host_that_always_breaks_is_given_up() {
    let home = Home::new();
    let mut host = ShellHost::new(&home, &["sh", "-c", "exit 255"]);
    host.kills = AtomicU32::new(0);
    // Its shell ends before it has read anything.
    let error = match tokio::time::timeout(
        Duration::from_secs(30),
        run(&DeadHost(host), &stage(vec![step("a", ":")])),
    )
    .await
    {
        Ok(result) => result.unwrap_err(),
        Err(_) => panic!("it never gave up"),
    };
    assert_eq!(error.kind(), ErrorKind::Host);
    assert!(error.to_string().contains("exit code 255"), "{error}");
}

/// A host whose execs end at once, as those of `ssh` do without a connection.
struct DeadHost(ShellHost);

#[async_trait]
impl Host for DeadHost {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn home(&self) -> &str {
        self.0.home()
    }

    async fn exec(&self, _: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        self.0.exec("", on_line).await
    }
}

#[tokio::test]
async fn two_programs_never_run_beside_each_other() {
    let home = Home::new();
    let body = |n: u32| {
        step(
            "work",
            &format!("echo begin {n} >>work; sleep 0.3; echo end {n} >>work"),
        )
    };
    let stages: Vec<Stage> = [1, 2, 1]
        .into_iter()
        .map(|n| stage(vec![body(n), body(n)]))
        .collect();
    let hosts = [home.host(), home.host(), home.host()];
    let (a, b, c) = tokio::join!(
        run(&hosts[0], &stages[0]),
        run(&hosts[1], &stages[1]),
        run(&hosts[2], &stages[2])
    );
    let reports = [a.unwrap(), b.unwrap(), c.unwrap()];
    let work = home.read("work");
    let lines: Vec<&str> = work.lines().collect();
    for pair in lines.chunks(2) {
        let number = pair[0]
            .strip_prefix("begin ")
            .unwrap_or_else(|| panic!("overlap:\n{work}"));
        assert_eq!(
            pair.get(1).copied(),
            Some(format!("end {number}").as_str()),
            "overlap:\n{work}"
        );
    }
    assert!(lines.len() >= 8, "{work}");
    assert!(
        reports
            .iter()
            .all(|report| report.skipped_as_unchanged || report.steps.len() == 2)
    );
}

#[tokio::test]
async fn a_failing_step_shows_its_last_lines_and_its_hint() {
    let home = Home::new();
    let failing = Step {
        hint: Some("make it work".to_owned()),
        ..step(
            "break",
            "for i in $(seq 30); do echo line $i; done; printf 'no newline' >&2; exit 7",
        )
    };
    let error = run(
        &home.host(),
        &stage(vec![
            step("first", ":"),
            failing,
            step("never", "touch never"),
        ]),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Host);
    assert_eq!(error.doing(), "prepare here: step `break`");
    let shown = &error.causes()[0];
    assert!(
        shown.starts_with("line 12\n") && shown.ends_with("line 30\nno newline"),
        "{shown}"
    );
    assert_eq!(shown.lines().count(), 20);
    assert_eq!(error.hints(), ["make it work"]);
    assert!(!home.path().join("never").exists());
    // A failure is not remembered as success.
    assert!(
        run(&home.host(), &stage(vec![step("first", "exit 3")]))
            .await
            .unwrap_err()
            .to_string()
            .contains("exit code 3")
    );
}

#[tokio::test]
async fn a_known_failure_says_what_it_means() {
    let home = Home::new();
    let known = vec![
        KnownError {
            matches: "not this".to_owned(),
            says: "wrong".to_owned(),
            hint: None,
        },
        KnownError {
            matches: "No space.*device".to_owned(),
            says: "the disk is full".to_owned(),
            hint: Some("df -h".to_owned()),
        },
    ];
    let failing = Step {
        errors: known,
        ..step(
            "write",
            "echo 'tar: No space left on device' >&2; echo more; exit 2",
        )
    };
    let error = run(&home.host(), &stage(vec![failing])).await.unwrap_err();
    assert_eq!(
        (error.causes()[0].as_str(), error.hints()),
        ("the disk is full", &["df -h".to_owned()][..])
    );
}

#[tokio::test]
async fn a_step_is_tried_again_as_often_as_it_says() {
    let home = Home::new();
    let flaky = Step {
        retry: 1,
        ..step("flaky", "echo try >>tries; [ \"$(wc -l <tries)\" -ge 2 ]")
    };
    let report = run(&home.host(), &stage(vec![flaky])).await.unwrap();
    assert_eq!(outcomes(&report), [("flaky", StepOutcome::Changed)]);
    assert_eq!(home.read("tries"), "try\ntry\n");
}

#[tokio::test]
async fn a_hanging_step_is_ended_at_its_limit_with_all_it_began() {
    let home = Home::new();
    let hanging = Step {
        timeout: Some(Duration::from_secs(1)),
        // One child ignores SIGTERM, one has a session of its own.
        ..step(
            "hang",
            "trap '' TERM; echo waiting; setsid sleep 86411 & (sleep 86412 &); sleep 86413",
        )
    };
    let begun = Instant::now();
    let error = run(&home.host(), &stage(vec![hanging])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.causes(),
        [
            "it did not end within 1s, the step's limit, and was ended",
            "waiting"
        ]
    );
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        !runs_anywhere(&running_program(&home).0),
        "something of the step still runs"
    );
    for sleep in ["86411", "86412", "86413"] {
        assert!(
            !runs_anywhere(&format!("sleep\0{sleep}")),
            "sleep {sleep} still runs"
        );
    }
    // The stage's limit holds as well.
    let mut short = stage(vec![step("first", ":"), step("hang", "sleep 86414")]);
    short.timeout = Duration::from_secs(1);
    let error = run(&home.host(), &short).await.unwrap_err();
    assert!(error.to_string().contains("the stage's limit"), "{error}");
    assert!(!runs_anywhere("sleep\x0086414"));
}

#[tokio::test]
async fn a_killed_program_is_told_from_a_finished_one_and_leaves_no_step() {
    let home = Home::new();
    let stage = stage(vec![step(
        "work",
        "if [ -e second ]; then exit 0; fi; touch second; setsid sleep 86415",
    )]);
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
    assert!(
        error.to_string().contains("gone without a result"),
        "{error}"
    );
    let report = run(&home.host(), &stage).await.unwrap();
    assert_eq!(outcomes(&report), [("work", StepOutcome::Changed)]);
    assert!(
        !runs_anywhere(&id),
        "a step of the killed program still runs"
    );
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
    let error = playbook::run_stage(&home.host(), &stage, &bus, cancel)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let (id, _) = running_program(&home);
    assert!(runs_anywhere(&id));
    assert_eq!(
        playbook::end_program(&home.host())
            .await
            .unwrap()
            .as_deref(),
        Some("prepare")
    );
    assert!(!runs_anywhere(&id));
    assert_eq!(playbook::end_program(&home.host()).await.unwrap(), None);
}

#[tokio::test]
async fn what_a_step_prints_cannot_pass_for_a_result() {
    let home = Home::new();
    let forging = "echo '::gpucl x end ok'; echo '::gpucl  change 1 0 forge'; printf '::gpucl over x result ok'; exit 9";
    let (bus, mut inbox) = Bus::new();
    let stage = stage(vec![step("forge", forging)]);
    let error = playbook::run_stage(&home.host(), &stage, &bus, std::future::pending())
        .await
        .unwrap_err();
    assert!(error.causes()[0].contains("::gpucl x end ok"), "{error}");
    // They are lines like any other, the one without its newline too.
    assert_eq!(lines(&mut inbox)[3], "::gpucl over x result ok");
}

#[tokio::test]
async fn variables_arrive_literally_in_every_shell() {
    let tricky = "it's \"quoted\" $HOME `id` \\ \n  two  spaces\n::gpucl $(id) 100% é\n";
    for shell in [
        &["dash", "-s"][..],
        &["bash", "--posix", "-s"],
        &["sh", "-s"],
    ] {
        let home = Home::new();
        let mut host = ShellHost::new(&home, shell);
        // The detached program's `sh` is that shell, too.
        let bin = home.folder.path().join("bin");
        fs_err::create_dir(&bin).unwrap();
        let found = std::env::split_paths(&host.path)
            .map(|folder| folder.join(shell[0]))
            .find(|path| path.is_file());
        let Some(found) = found else {
            assert!(shell[0] != "sh", "there is no sh");
            continue;
        };
        fs_err::os::unix::fs::symlink(found, bin.join("sh")).unwrap();
        host.path = format!("{}:{}", bin.display(), host.path);
        let mut stage = stage(vec![step(
            "write",
            "printf %s \"$tricky\" >out; value shell \"$(readlink /proc/$$/exe)\"",
        )]);
        stage
            .variables
            .insert("tricky".to_owned(), tricky.to_owned());
        let report = run(&host, &stage).await.unwrap();
        assert_eq!(home.read("out"), tricky, "{shell:?}");
        let ran = &report.values["shell"];
        assert!(
            shell[0] == "sh" || Path::new(ran).ends_with(shell[0]),
            "{shell:?} ran {ran}"
        );
        assert!(
            run(&host, &stage).await.unwrap().skipped_as_unchanged,
            "{shell:?}"
        );
    }
}

#[tokio::test]
async fn a_program_that_arrives_cut_does_nothing() {
    let home = Home::new();
    let whole = Recorder::default();
    let _: Result<StageReport> = run(&whole, &stage(vec![step("a", "touch ran")])).await;
    let program = whole.0.lock().unwrap().clone();
    assert!(program.contains("main </dev/null"));
    let program = program.replace(
        "/nowhere",
        home.path()
            .to_str()
            .unwrap()
            .replace('\'', "'\\''")
            .as_str(),
    );
    for part in [program.len() / 4, program.len() / 2, program.len() - 20] {
        let _: ExecEnd = home
            .host()
            .exec(&program[..part], &mut |_, _| {})
            .await
            .unwrap();
        assert!(
            !home.path().exists(),
            "{part} of {} bytes did something",
            program.len()
        );
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
async fn a_folder_that_cannot_be_written_is_said() {
    let home = Home::new();
    fs_err::write(home.path(), "a file in its place").unwrap();
    let error = run(&home.host(), &stage(vec![step("a", ":")]))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("cannot be written"), "{error}");
}

#[test]
fn a_playbook_with_an_unknown_key_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir(folder.path().join("playbooks")).unwrap();
    let path = folder.path().join("playbooks/mine.yaml");
    fs_err::write(
        &path,
        "name: mine\nsummary: x\nsteps:\n  - {name: a, run: ':', retries: 3}\n",
    )
    .unwrap();
    let error = playbook::load(&Library::new(vec![folder.path().into()]), "mine").unwrap_err();
    assert!(
        error.to_string().contains("unknown field `retries`"),
        "{error}"
    );
    assert!(error.doing().contains(path.to_str().unwrap()), "{error}");
}

/// The playbook that is shipped, with an index that nothing answers at: each trouble is told apart, and nothing is left.
mod ray_native {
    use super::*;

    struct Place {
        home: Home,
        environments: PathBuf,
        host: ShellHost,
    }

    impl Place {
        /// A host whose PATH has the usual tools but only the Python that `python3` says to be, if any.
        fn new(python3: Option<&str>) -> Self {
            let home = Home::new();
            let bin = home.folder.path().join("bin");
            fs_err::create_dir(&bin).unwrap();
            for folder in ["/usr/bin", "/bin"] {
                for entry in fs_err::read_dir(folder).unwrap() {
                    let entry = entry.unwrap();
                    let name = entry.file_name().into_string().unwrap();
                    if !name.starts_with("python") && name != "uv" && !bin.join(&name).exists() {
                        fs_err::os::unix::fs::symlink(entry.path(), bin.join(name)).unwrap();
                    }
                }
            }
            if let Some(text) = python3 {
                fs_err::write(bin.join("python3"), format!("#!/bin/sh\n{text}\n")).unwrap();
                fs_err::set_permissions(
                    bin.join("python3"),
                    std::fs::Permissions::from_mode(0o755),
                )
                .unwrap();
            }
            let mut host = ShellHost::new(&home, &["sh", "-s"]);
            host.path = bin.display().to_string();
            Self {
                environments: home.folder.path().join("environments"),
                home,
                host,
            }
        }

        async fn run(&self, more: &[(&str, &str)]) -> Result<StageReport> {
            let playbook = playbook::load(&Library::default(), "ray-native").unwrap();
            let mut variables = BTreeMap::from([
                ("ray_version".to_owned(), "2.60.0".to_owned()),
                (
                    "environments".to_owned(),
                    self.environments.display().to_string(),
                ),
            ]);
            variables.extend(
                more.iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
            );
            run(
                &self.host,
                &playbook
                    .stage("prepare", &variables, Duration::from_secs(120))
                    .unwrap(),
            )
            .await
        }
    }

    /// The real Python of this machine, behind a script that stays away from every real index.
    fn real_python() -> String {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|folder| folder.join("python3"))
            .find(|path| path.is_file())
            .expect("these tests need python3");
        format!(
            "PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_RETRIES=0 exec '{}' \"$@\"",
            found.display()
        )
    }

    #[tokio::test]
    async fn python_that_is_missing_too_old_or_half_is_told_apart() {
        let fake = |version: &str| {
            format!(
                "case \"$*\" in *sys.version_info*) echo '{version} /nowhere/python3';; *) exit 1;; esac"
            )
        };
        let cases = [
            (
                None,
                "python3 is missing",
                "sudo apt-get install python3 python3-venv",
            ),
            (
                Some(fake("3.8.10")),
                "python3 is too old (3.8.10): Ray 2.60.0 needs 3.10 to 3.13",
                "sudo apt-get install python3.12",
            ),
            (
                Some(fake("3.14.0")),
                "python3 is too new (3.14.0)",
                "sudo apt-get install python3.13",
            ),
            (
                Some(fake("3.12.3")),
                "python3 (3.12.3) cannot make environments",
                "sudo apt-get install python3 python3-venv",
            ),
        ];
        for (python, says, hint) in cases {
            let place = Place::new(python.as_deref());
            let error = place.run(&[]).await.unwrap_err();
            assert!(error.causes()[0].starts_with(says), "{error}");
            assert!(error.hints()[0].starts_with(hint), "{:?}", error.hints());
            assert!(!place.environments.exists());
        }
    }

    #[tokio::test]
    async fn too_little_disk_says_how_much_is_free_where() {
        let place = Place::new(Some(&real_python()));
        let error = place
            .run(&[("disk_needed_mib", "999999999")])
            .await
            .unwrap_err();
        assert!(error.causes()[0].contains("MiB are free in"), "{error}");
        assert!(
            error.causes()[0].contains(place.environments.to_str().unwrap()),
            "{error}"
        );
        assert!(error.hints()[0].contains("df -h"), "{:?}", error.hints());
    }

    #[tokio::test]
    async fn an_index_that_cannot_be_reached_is_said_and_leaves_no_environment() {
        let place = Place::new(None);
        // The environment's own pip must meet the dead index too: the variables come with the shell.
        let wrapper = place.home.folder.path().join("bin/python3");
        fs_err::write(&wrapper, format!("#!/bin/sh\n{}\n", real_python())).unwrap();
        fs_err::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let folder = place.home.folder.path().join("shell");
        fs_err::write(
            &folder,
            "#!/bin/sh\nexport PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_RETRIES=0\nexec sh -s\n",
        )
        .unwrap();
        fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut place = place;
        let shell: &'static str = Box::leak(folder.display().to_string().into_boxed_str());
        place.host.shell = vec![shell];
        // A half-made environment, as a cut leaves it, is never taken for a whole one.
        let begun = Instant::now();
        let error = place.run(&[]).await.unwrap_err();
        assert_eq!(
            error.causes()[0],
            "the package index cannot be reached",
            "{error}"
        );
        assert!(
            error.hints()[0].contains("PIP_INDEX_URL"),
            "{:?}",
            error.hints()
        );
        assert!(begun.elapsed() < Duration::from_secs(90));
        let left: Vec<_> = fs_err::read_dir(&place.environments)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, [".lock-ray-2.60.0"]);
    }
}
