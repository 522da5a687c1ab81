//! Steps that reboot the machine, on a fake one: its boot id is a file, and its reboot command a stand-in.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gpucl::error::{Error, ErrorKind, Result, Status};
use gpucl::event::StepOutcome;
use gpucl::host::{ExecEnd, Host, OnLine};
use gpucl::playbook::{Stage, Step};
use rustix::process::{Signal, kill_process};

use super::support::{Home, ShellHost, outcomes, run, running_program, runs_anywhere, stage, step};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A machine whose boots are counted in a file.
struct Machine {
    home: Home,
    shell: ShellHost,
    execs: AtomicU32,
    limit: Option<Duration>,
    comes_back: bool,
}

impl Machine {
    fn new() -> Self {
        let home = Home::new();
        let bin = home.folder.path().join("bin");
        fs_err::create_dir(&bin).unwrap();
        // The real ones must never be reached from here.
        for (name, text) in [
            ("systemd-run", "exit 1"),
            ("systemctl", "exit 1"),
            ("reboot", "echo asked >>\"$ASKED\""),
            ("sleep", "exec /bin/sleep 0.1"),
        ] {
            let asked = home.folder.path().join("asked");
            fs_err::write(bin.join(name), format!("#!/bin/sh\nASKED='{}'\n{text}\n", asked.display())).unwrap();
            fs_err::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut shell = ShellHost::new(&home, &["sh", "-s"]);
        shell.path = format!("{}:{}", bin.display(), shell.path);
        fs_err::write(home.folder.path().join("boot"), "boot-0\n").unwrap();
        Self { home, shell, execs: AtomicU32::new(0), limit: Some(Duration::from_secs(60)), comes_back: true }
    }

    fn boot_file(&self) -> PathBuf {
        self.home.folder.path().join("boot")
    }

    fn asked(&self) -> usize {
        fs_err::read_to_string(self.home.folder.path().join("asked")).unwrap_or_default().lines().count()
    }

    fn execs(&self) -> u32 {
        self.execs.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Host for Machine {
    fn name(&self) -> &'static str {
        "here"
    }

    fn home(&self) -> &str {
        self.shell.home()
    }

    fn reboot_limit(&self) -> Option<Duration> {
        self.limit
    }

    async fn rebooted(&self, _: Duration) -> Result<()> {
        if !self.comes_back {
            return Err(Error::new(ErrorKind::Host, "connect to here")
                .status(Status::Permanent)
                .because("no route to host"));
        }
        let count = self.asked();
        fs_err::write(self.boot_file(), format!("boot-{count}\n")).unwrap();
        Ok(())
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        self.execs.fetch_add(1, Ordering::Relaxed);
        self.shell.exec(&program.replace(BOOT_ID, self.boot_file().to_str().unwrap()), on_line).await
    }
}

/// A stage whose second step takes effect after a reboot, if that is the boot `works_from`.
fn needs_reboot(machine: &Machine, works_from: &str) -> Stage {
    let unless = format!("read -r boot <'{}'; [ \"$boot\" = '{works_from}' ]", machine.boot_file().display());
    stage(vec![
        Step {
            creates: Some(machine.home.path().join("installed").display().to_string()),
            ..step("install", "touch installed; value a b")
        },
        Step { reboot: true, unless: Some(unless), ..step("load it", "echo needs a reboot") },
        step("use", "echo used >>used"),
    ])
}

#[tokio::test]
async fn a_stage_continues_after_a_reboot() {
    let machine = Machine::new();
    let stage = needs_reboot(&machine, "boot-1");
    let report = run(&machine, &stage).await.unwrap();
    assert_eq!(
        outcomes(&report),
        [("install", StepOutcome::Skipped), ("load it", StepOutcome::Skipped), ("use", StepOutcome::Changed)]
    );
    assert_eq!((machine.asked(), machine.execs(), machine.home.read("used").as_str()), (1, 2, "used\n"));
    assert_eq!(report.facts.boot_id, "boot-1");
    let again = run(&machine, &stage).await.unwrap();
    assert!(again.skipped_as_unchanged);
    assert_eq!(machine.asked(), 1);
}

/// Only who reboots records it: a step whose program was killed is run again.
#[tokio::test]
async fn a_program_killed_before_its_reboot_does_not_count_as_one() {
    let machine = Machine::new();
    let mut stage = needs_reboot(&machine, "boot-1");
    stage.steps[1].run = "[ ! -e begun ] || exit 0; touch begun; /bin/sleep 1".to_owned();
    let kill = async {
        while !machine.home.path().join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (id, pid) = running_program(&machine.home);
        kill_process(pid, Signal::KILL).unwrap();
        id
    };
    let (killed, id) = tokio::join!(run(&machine, &stage), kill);
    assert!(killed.unwrap_err().to_string().contains("disappeared without a result"));
    while runs_anywhere(&id) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(machine.asked(), 0);
    let report = run(&machine, &stage).await.unwrap();
    assert_eq!(outcomes(&report).last(), Some(&("use", StepOutcome::Changed)));
    assert_eq!(machine.asked(), 1);
}

#[tokio::test]
async fn a_reboot_without_effect_fails_instead_of_looping() {
    let machine = Machine::new();
    let error = run(&machine, &needs_reboot(&machine, "never")).await.unwrap_err();
    assert_eq!(error.doing(), "prepare here: step `load it`");
    assert!(error.to_string().contains("rebooted for this step, and its check still fails"), "{error}");
    assert_eq!((machine.asked(), machine.home.read("used").as_str()), (1, ""));
}

#[tokio::test]
async fn a_machine_without_permission_is_not_rebooted() {
    let mut machine = Machine::new();
    machine.limit = None;
    let error = run(&machine, &needs_reboot(&machine, "boot-1")).await.unwrap_err();
    assert!(error.to_string().contains("this step needs a reboot, which gpucl does not do on this machine"), "{error}");
    assert_eq!(machine.asked(), 0);
}

#[tokio::test]
async fn a_machine_that_does_not_come_back_is_reported_with_the_limit() {
    let mut machine = Machine::new();
    machine.comes_back = false;
    let error = run(&machine, &needs_reboot(&machine, "boot-1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("did not come back within 1m"), "{error}");
    assert!(error.hints()[0].contains("console"), "{:?}", error.hints());
    // Until it has rebooted nothing starts there, for any caller.
    let mut other = stage(vec![step("other", "touch begun")]);
    other.name = "other".to_owned();
    machine.limit = Some(Duration::from_millis(1));
    let error = run(&machine, &other).await.unwrap_err();
    assert!(error.to_string().contains("reboot"), "{error}");
    assert!(!machine.home.path().join("begun").exists());
    assert_eq!(machine.asked(), 1);
}

#[tokio::test]
async fn a_failed_stage_releases_what_it_held() {
    let home = Home::new();
    let steps = vec![
        step("hold", "touch held"),
        step("work", "exit 4"),
        Step { finally: true, ..step("give back", "rm held; echo given >>given") },
    ];
    let error = run(&home.host(), &stage(steps.clone())).await.unwrap_err();
    assert!(error.to_string().contains("exit code 4"), "{error}");
    assert_eq!((home.path().join("held").exists(), home.read("given").as_str()), (false, "given\n"));
    let mut works = steps;
    works[1].run = ":".to_owned();
    run(&home.host(), &stage(works)).await.unwrap();
    assert_eq!(home.read("given"), "given\ngiven\n");
}

#[tokio::test]
async fn a_step_can_find_that_there_is_nothing_to_do() {
    let home = Home::new();
    let report =
        run(&home.host(), &stage(vec![step("look", "done_already 'it is there'; touch never"), step("next", ":")]))
            .await
            .unwrap();
    assert_eq!(outcomes(&report), [("look", StepOutcome::Skipped), ("next", StepOutcome::Changed)]);
    assert!(!home.path().join("never").exists());
}
