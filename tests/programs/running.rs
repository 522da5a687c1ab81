//! How programs run, are followed, and never run twice.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gpucl::error::{ErrorKind, Result};
use gpucl::event::{Bus, EventKind, StepOutcome};
use gpucl::host::StageFile;
use gpucl::host::{ExecEnd, Host, OnLine};
use gpucl::playbook::{self, Stage, Step};

use super::support::{Home, ShellHost, lines, outcomes, run, stage, step};

#[tokio::test]
async fn steps_run_once_and_an_unchanged_host_runs_nothing() {
    let home = Home::new();
    let mut stage = stage(vec![
        step("count", "echo once >>count; value answer 'forty two'; echo counted"),
        Step { creates: Some("made".to_owned()), ..step("make", "touch made") },
        Step { unless: Some("test -e made".to_owned()), ..step("make again", "echo never >>count") },
    ]);
    stage.files = vec![
        StageFile { path: "bin/tool".to_owned(), mode: 0o750, bytes: (0..=255).cycle().take(10_000).collect() },
        StageFile { path: "a 'b/secret".to_owned(), mode: 0o400, bytes: b"x".to_vec() },
    ];
    let (bus, mut inbox) = Bus::new();
    let first = playbook::run_stage(&home.host(), &stage, &bus, std::future::pending()).await.unwrap();
    assert_eq!(
        outcomes(&first),
        [("count", StepOutcome::Changed), ("make", StepOutcome::Changed), ("make again", StepOutcome::Skipped)]
    );
    assert!(!first.skipped_as_unchanged && !first.attached);
    assert_eq!(first.values.get("answer").map(String::as_str), Some("forty two"));
    assert_eq!(lines(&mut inbox), ["[count]", "counted", "[make]", "[make again]"]);
    for file in &stage.files {
        let path = home.path().join(&file.path);
        assert_eq!(fs_err::read(&path).unwrap(), file.bytes, "{}", file.path);
        assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o7777, file.mode, "{}", file.path);
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
    assert!(!run(&home.host(), &stage).await.unwrap().skipped_as_unchanged);
}

/// A step that failed may have left what its check looks for: that is no success.
#[tokio::test]
async fn a_step_that_is_retried_is_not_skipped_by_what_its_first_attempt_left() {
    let home = Home::new();
    let stage = stage(vec![Step {
        unless: Some("[ -e made ]".to_owned()),
        retry: 1,
        ..step("make", "touch made; echo ran >>count; [ \"$(grep -c ran count)\" = 2 ]")
    }]);
    assert_eq!(outcomes(&run(&home.host(), &stage).await.unwrap()), [("make", StepOutcome::Changed)]);
    assert_eq!(home.read("count"), "ran\nran\n");
}

/// Each line of a check must hold, it may end with `exit`, and nothing that it sets is the step's.
#[tokio::test]
async fn a_check_is_strict_and_apart_from_its_step() {
    let home = Home::new();
    let check = |unless: &str| Step {
        unless: Some(unless.to_owned()),
        ..step("make", "echo \"ran ${mine:-apart}\" >>count; false || echo goes on; no-such-command || :")
    };
    for (unless, outcome) in [
        ("false\ntrue", StepOutcome::Changed),
        ("mine=1\nexit 3", StepOutcome::Changed),
        ("echo \"$unset_variable\"", StepOutcome::Changed),
        ("echo shown; exit 0", StepOutcome::Skipped),
    ] {
        let report = run(&home.host(), &stage(vec![check(unless)])).await.unwrap();
        assert_eq!(outcomes(&report), [("make", outcome)], "{unless}");
    }
    assert_eq!(home.read("count"), "ran apart\n".repeat(3));
    // The step itself stays strict after its check.
    let failing = stage(vec![Step { unless: Some("false".to_owned()), ..step("fail", "false\ntouch never") }]);
    run(&home.host(), &failing).await.unwrap_err();
    assert!(!home.path().join("never").exists());
}

#[tokio::test]
async fn facts_are_reported_with_every_exec_and_alone() {
    let home = Home::new();
    let alone = playbook::facts(&home.host()).await.unwrap();
    assert!(!home.path().exists(), "learning facts changed something");
    fs_err::create_dir(home.path()).unwrap();
    let report = run(&home.host(), &stage(vec![step("nothing", ":")])).await.unwrap();
    let boot = fs_err::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for facts in [&alone, &report.facts] {
        assert_eq!(facts.boot_id, boot.trim());
        assert_eq!(facts.cpus as usize, std::thread::available_parallelism().unwrap().get());
        assert!(facts.memory > 1 << 28 && !facts.kernel.is_empty());
    }
    assert!(report.facts.disk_free > 0);
}

#[tokio::test]
async fn a_program_survives_its_exec_and_is_followed_again() {
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
        // The program ends only when the second is seen to follow it.
        let opener = async {
            let first = inbox.recv().await.unwrap();
            fs_err::write(home.path().join("go"), "").unwrap();
            first
        };
        let host = home.host();
        let (report, first) = tokio::join!(playbook::run_stage(&host, &stage, &bus, std::future::pending()), opener);
        let mut shown = match first {
            EventKind::HostLine { line, .. } => vec![line],
            _ => Vec::new(),
        };
        shown.extend(lines(&mut inbox));
        (report.unwrap(), shown)
    };
    let (first, (second, shown)) = tokio::join!(first, second);
    let first = first.unwrap();
    assert!(second.attached && !first.attached);
    assert_eq!(outcomes(&first), outcomes(&second));
    assert_eq!((second.values.get("k").map(String::as_str), second.values == first.values), (Some("v"), true));
    assert_eq!(shown, ["[wait]", "from the beginning"]);
}

#[tokio::test]
async fn a_killed_exec_is_replaced_and_no_line_is_lost_or_doubled() {
    let home = Home::new();
    let mut host = ShellHost::new(&home, &["sh", "-s"]);
    host.kills = AtomicU32::new(4);
    host.after = Duration::from_millis(350);
    let steps = (1..=3).map(|n| step(&format!("s{n}"), "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.1; done"));
    let (bus, mut inbox) = Bus::new();
    let stage = stage(steps.collect());
    let report = playbook::run_stage(&host, &stage, &bus, std::future::pending()).await.unwrap();
    assert_eq!(host.kills.load(Ordering::Relaxed), 0, "no exec was killed");
    assert!(!report.attached);
    assert_eq!(report.steps.len(), 3);
    let expected: Vec<String> =
        (1..=3).flat_map(|n| std::iter::once(format!("[s{n}]")).chain((1..=8).map(|i| format!("line {i}")))).collect();
    assert_eq!(lines(&mut inbox), expected);
}

#[tokio::test]
async fn a_host_that_always_breaks_is_given_up() {
    let home = Home::new();
    let mut host = ShellHost::new(&home, &["sh", "-c", "exit 255"]);
    host.kills = AtomicU32::new(0);
    // Its shell ends before it has read anything.
    let error =
        match tokio::time::timeout(Duration::from_secs(30), run(&DeadHost(host), &stage(vec![step("a", ":")]))).await {
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
    let body = |n: u32| step("work", &format!("echo begin {n} >>work; sleep 0.3; echo end {n} >>work"));
    let stages: Vec<Stage> = [1, 2, 1].into_iter().map(|n| stage(vec![body(n), body(n)])).collect();
    let hosts = [home.host(), home.host(), home.host()];
    let (a, b, c) = tokio::join!(run(&hosts[0], &stages[0]), run(&hosts[1], &stages[1]), run(&hosts[2], &stages[2]));
    let reports = [a.unwrap(), b.unwrap(), c.unwrap()];
    let work = home.read("work");
    let lines: Vec<&str> = work.lines().collect();
    for pair in lines.chunks(2) {
        let number = pair[0].strip_prefix("begin ").unwrap_or_else(|| panic!("overlap:\n{work}"));
        assert_eq!(pair.get(1).copied(), Some(format!("end {number}").as_str()), "overlap:\n{work}");
    }
    assert!(lines.len() >= 8, "{work}");
    assert!(reports.iter().all(|report| report.skipped_as_unchanged || report.steps.len() == 2));
}

/// A proxy's address holds a password, and everybody on the host reads everybody's arguments.
#[tokio::test]
async fn no_stage_variable_appears_in_a_process_argument() {
    let home = Home::new();
    let mut once = step("once", "touch done");
    once.unless =
        Some("tr '\\0' ' ' </proc/$$/cmdline >>seen\ntr '\\0' ' ' </proc/$PPID/cmdline >>seen\n[ -e done ]".to_owned());
    let mut stage = stage(vec![once]);
    stage.variables.insert("https_proxy".to_owned(), "http://me:planted-31c2@proxy:3128".to_owned());
    assert!(!run(&home.host(), &stage).await.unwrap().skipped_as_unchanged);
    assert!(run(&home.host(), &stage).await.unwrap().skipped_as_unchanged);
    assert!(
        playbook::inspect(&home.host(), &[&stage], "cat /proc/$$/cmdline >>seen").await.unwrap().stages["prepare"]
            .holds
            == Some(true)
    );
    let seen = home.read("seen");
    assert!(seen.contains("/steps.sh") && seen.matches("timeout").count() >= 2, "{seen}");
    assert!(!seen.contains("planted") && !seen.contains("cmdline"), "{seen}");
}
