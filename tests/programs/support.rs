//! A home for a host, hosts with various shells, and helpers for the tests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gpucl::error::Result;
use gpucl::event::{Bus, EventKind, Inbox, StepOutcome};
use gpucl::host::{ExecEnd, Host, LocalHost, OnLine, Stream};
use gpucl::playbook::{self, Stage, StageReport, Step};
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// A folder that is the home of one host.
pub(super) struct Home {
    pub(super) folder: tempfile::TempDir,
}

impl Home {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("gpucl-test-programs-").tempdir().unwrap() }
    }

    /// The host's folder; a blank and a quote in its path must not matter.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("it's home")
    }

    pub(super) fn host(&self) -> LocalHost {
        LocalHost::new("here", self.path(), std::env::vars_os()).unwrap()
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs_err::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// Waits until a file of the home holds this text.
    pub(super) async fn until(&self, name: &str, text: &str) {
        let begun = Instant::now();
        while !self.read(name).contains(text) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{name} never held {text}: {}", self.read(name));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(super) fn step(name: &str, run: &str) -> Step {
    Step { name: name.to_owned(), run: run.to_owned(), ..Step::default() }
}

pub(super) fn stage(steps: Vec<Step>) -> Stage {
    Stage {
        name: "prepare".to_owned(),
        steps,
        files: Vec::new(),
        variables: BTreeMap::new(),
        timeout: Duration::from_secs(60),
        wants_facts: true,
    }
}

pub(super) async fn run(host: &dyn Host, stage: &Stage) -> Result<StageReport> {
    let (bus, _inbox) = Bus::new();
    playbook::run_stage(host, stage, &bus, std::future::pending()).await
}

pub(super) fn outcomes(report: &StageReport) -> Vec<(&str, StepOutcome)> {
    report.steps.iter().map(|step| (step.name.as_str(), step.outcome)).collect()
}

pub(super) fn lines(inbox: &mut Inbox) -> Vec<String> {
    let mut lines = Vec::new();
    while let Ok(event) = inbox.try_recv() {
        if let EventKind::HostLine { line, .. } = event {
            lines.push(line);
        }
    }
    lines
}

/// Whether any process has this text in its command line or environment.
pub(super) fn runs_anywhere(text: &str) -> bool {
    let holds = |path: PathBuf| {
        fs_err::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    };
    fs_err::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path())).any(|path| {
        let pid = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.parse::<u32>().is_ok());
        pid && (holds(path.join("cmdline")) || holds(path.join("environ")))
    })
}

pub(super) fn running_program(home: &Home) -> (String, Pid) {
    let current = home.read("program/current");
    let mut words = current.split(' ');
    let id = words.next().unwrap().to_owned();
    (id, Pid::from_raw(words.next().unwrap().parse().unwrap()).unwrap())
}

/// A host with a given shell, whose first few execs are killed after a while.
pub(super) struct ShellHost {
    pub(super) home: PathBuf,
    pub(super) shell: Vec<String>,
    pub(super) path: String,
    pub(super) kills: AtomicU32,
    pub(super) after: Duration,
}

impl ShellHost {
    pub(super) fn new(home: &Home, shell: &[&str]) -> Self {
        let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
        Self {
            home: home.path(),
            shell: shell.iter().map(|word| (*word).to_owned()).collect(),
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
        let mut child = tokio::process::Command::new(&self.shell[0])
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
        let killed = self.kills.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
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
        Ok(child.wait().await.unwrap().code().map_or(ExecEnd::Broken, ExecEnd::Exited))
    }
}
