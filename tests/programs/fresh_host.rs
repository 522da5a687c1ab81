//! The playbooks of the docker runtime on a fresh machine of the testbed (`testbed/hosts`): packages, engine, driver,
//! reboot.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gpucl::error::{Error, ErrorKind, Result, Status};
use gpucl::event::{Bus, EventKind, StepOutcome};
use gpucl::host::{ExecEnd, Host, OnLine, Stream};
use gpucl::playbook::{self, Inspection, StageReport};
use gpucl::render::Library;
use gpucl::runtime::compose;
use gpucl::spec::Spec;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

const TAG: &str = "gpucl-testtest-demo-host0";
const IMAGES: [&str; 2] = ["gpucl-test/rocm-base:1", "prom/node-exporter:v1.12.1"];

/// A machine of the testbed, as root, removed at the end.
struct Fresh {
    name: String,
    address: String,
    identity: String,
    testbed: serde_json::Value,
    said: Mutex<String>,
}

fn scripts() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testbed/hosts");
    std::env::var_os("GPUCL_TESTBED_SCRIPTS").map_or(own, PathBuf::from)
}

/// Runs a script of the testbed; the last line that it prints is JSON.
fn script(name: &str, arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(scripts().join(name)).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default()
}

impl Fresh {
    fn new(name: &str, arguments: &[&str]) -> Self {
        let testbed = script("up", &[]);
        let host = script("host", &[&[name], arguments].concat());
        let text = |key: &str| host[key].as_str().unwrap().to_owned();
        Self {
            name: name.to_owned(),
            address: text("address"),
            identity: text("identity"),
            testbed,
            said: Mutex::default(),
        }
    }

    fn ssh(&self) -> Vec<String> {
        let options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"];
        let more = ["-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=5"];
        let mut words: Vec<String> = options.iter().chain(&more).map(|word| (*word).to_owned()).collect();
        words.extend(["-i".to_owned(), self.identity.clone(), format!("cc@{}", self.address)]);
        words
    }

    /// What a command prints there, as root.
    fn run(&self, command: &str) -> String {
        let output = Command::new("ssh").args(self.ssh()).args(["sudo", "-n", command]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn spec(&self, more: &str) -> Spec {
        let of = |key: &str| self.testbed[key].as_str().unwrap();
        let text = format!(
            "name: demo\nruntime: docker\nplaybooks:\n  docker: {{registry_mirror: '{}'}}\n  nvidia:\n    \
             {{toolkit_repository: '{}', toolkit_key_url: '{}', toolkit_key_fingerprint: '{}'{more}}}\n",
            of("registry"),
            of("toolkit_repository"),
            of("toolkit_key_url"),
            of("toolkit_fingerprint")
        );
        serde_yaml::from_str(&text).unwrap()
    }

    async fn prepare(&self, more: &str, peers: &[&str]) -> Result<StageReport> {
        let facts = playbook::facts(self).await?;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let ports = words(&["6379", "20000-20999"]);
        let spec = self.spec(more);
        let library = Library::default();
        let addresses = words(peers);
        let peers = match peers.is_empty() {
            true => compose::Peers::None,
            false => compose::Peers::Known { addresses: &addresses, ports: &ports },
        };
        let stage = compose::preparation(&spec, &facts, TAG, peers, &words(&IMAGES), &[], &library)?;
        let (bus, mut inbox) = Bus::new();
        let report = playbook::run_stage(self, &stage, &bus, std::future::pending()).await;
        while let Ok(event) = inbox.try_recv() {
            let line = match event {
                EventKind::HostLine { line, .. } => line,
                EventKind::Step { step, outcome, milliseconds, .. } => {
                    format!("== {step}: {outcome:?} {milliseconds} ms")
                }
                EventKind::Note { message } => format!("== {message}"),
                _ => continue,
            };
            self.said.lock().unwrap().push_str(&format!("{line}\n"));
        }
        report
    }

    async fn undo(&self, purge: bool) -> Inspection {
        playbook::inspect(self, &[], &compose::undo_script(TAG, purge)).await.unwrap()
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if std::env::var_os("GPUCL_TEST_KEEP").is_none() {
            script("rm", &[&self.name]);
        }
    }
}

#[async_trait]
impl Host for Fresh {
    fn name(&self) -> &str {
        &self.name
    }

    fn home(&self) -> &'static str {
        "/var/lib/gpucl/gpucl-testtest-demo-host0"
    }

    fn lock(&self) -> String {
        "/var/lib/gpucl/lock".to_owned()
    }

    fn reboot_limit(&self) -> Option<Duration> {
        Some(Duration::from_secs(120))
    }

    async fn rebooted(&self, wait: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < wait {
            let ended = self.exec("exit 0\n", &mut |_, _| {}).await?;
            if ended == ExecEnd::Exited(0) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Err(Error::new(ErrorKind::Host, "connect again").status(Status::Temporary))
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        let mut child = tokio::process::Command::new("ssh")
            .args(self.ssh())
            .args(["sudo", "-n", "sh", "-s"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let program = program.to_owned();
        let feed = async move {
            let _ = stdin.write_all(program.as_bytes()).await;
        };
        let mut out = BufReader::new(stdout).lines();
        let read = async {
            while let Ok(Some(line)) = out.next_line().await {
                on_line(Stream::Out, &line);
            }
        };
        tokio::join!(feed, read);
        Ok(match child.wait().await.unwrap().code() {
            Some(255) | None => ExecEnd::Broken,
            Some(code) => ExecEnd::Exited(code),
        })
    }
}

fn outcome(report: &StageReport, step: &str) -> StepOutcome {
    report.steps.iter().find(|have| have.name == step).expect(step).outcome
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: just testbed-all"]
async fn a_fresh_gpu_machine_is_prepared_with_a_reboot_and_restored() {
    let host = Fresh::new("pb-nvidia", &["--gpus", "nvidia:2"]);
    host.run("mkdir -p /etc/standin");
    host.run("touch /etc/standin/nouveau");
    let packages = "dpkg-query -W -f '${Package}\\n'";
    let before = host.run(packages);
    let timer = host.run("systemctl is-active apt-daily.timer");
    let sessions = || host.run("journalctl -u ssh -o cat").matches("Starting session:").count();
    let report = host.prepare("", &["10.0.0.2"]).await.unwrap();
    let said = host.said.lock().unwrap().clone();
    assert!(said.contains("== pb-nvidia rebooted"), "{said}");
    assert_eq!(report.values["gpus_expected"], "2");
    assert_eq!(report.values["cdi"], "yes");
    assert!(report.values["driver_version"].starts_with("580."), "{:?}", report.values);
    assert!(!report.values["docker_version"].is_empty() && !report.values["compose_version"].is_empty());
    assert!(report.values["images"].contains("gpucl-test/rocm-base:1@sha256:"), "{:?}", report.values);
    // It went through a reboot: what was installed before is skipped after it.
    assert_eq!(outcome(&report, "install the NVIDIA driver"), StepOutcome::Skipped);
    assert_eq!(outcome(&report, "install the container toolkit"), StepOutcome::Changed);
    let facts = playbook::facts(&host).await.unwrap();
    assert!(facts.gpus.iter().all(|gpu| gpu.uuid.is_some() && gpu.memory.is_some()), "{:?}", facts.gpus);
    assert!(facts.docker_engine.is_some() && !facts.cdi.is_empty() && facts.systemd, "{facts:?}");
    let uuid = facts.gpus[1].uuid.clone().unwrap();
    let listed = host.run(&format!("docker run --rm --device nvidia.com/gpu={uuid} {} nvidia-smi -L", IMAGES[0]));
    assert!(listed.contains(&uuid) && listed.lines().count() == 1, "{listed}");
    assert_eq!(host.run("systemctl is-active apt-daily.timer"), timer);

    // The firewall is rolled back automatically; once confirmed, it stays.
    let table = compose::firewall_table(TAG);
    assert!(host.run(&format!("nft list table inet {table}")).contains("20000-20999"));
    let confirm = compose::confirm_steps(TAG, &Library::default()).unwrap();
    let (bus, _inbox) = Bus::new();
    playbook::run_stage(&host, &confirm, &bus, std::future::pending()).await.unwrap();
    assert!(!host.run("systemctl list-timers --all").contains("revert"));

    // An unchanged machine: one exec more, and nothing runs.
    let count = sessions();
    let again = host.prepare("", &["10.0.0.2"]).await.unwrap();
    assert!(again.skipped_as_unchanged, "{again:?}");
    // The facts that the test asks for, the stage, and the count itself.
    assert!(sessions() - count <= 3);

    let inspection = host.undo(true).await;
    assert!(!inspection.lines.iter().any(|line| line.starts_with("::left")), "{:?}", inspection.lines);
    assert_eq!(host.run(packages), before);
    assert_eq!(host.run("ls /etc/docker/daemon.json /etc/cdi/nvidia.yaml"), "");
    assert!(!host.run("nft list ruleset").contains("gpucl"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: just testbed-all"]
async fn failures_on_a_fresh_machine_have_hints() {
    let host = Fresh::new("pb-trouble", &["--gpus", "nvidia:1"]);
    let timer = host.run("systemctl is-active apt-daily.timer");
    let error = host.prepare(", branch: '999'", &[]).await.unwrap_err();
    assert!(error.to_string().contains("this host's package lists do not have branch 999"), "{error}");
    assert!(error.hints()[0].contains("apt-cache search nvidia-headless"), "{:?}", error.hints());
    // What was held is given back after a failure, too.
    assert_eq!(host.run("systemctl is-active apt-daily.timer"), timer);
    let wrong = "0123456789012345678901234567890123456789";
    let mut host = host;
    let right = host.testbed.clone();
    host.testbed["toolkit_fingerprint"] = wrong.into();
    let error = host.prepare("", &[]).await.unwrap_err();
    assert!(error.to_string().contains("is not the pinned one"), "{error}");
    assert_eq!(host.run("ls /etc/apt/sources.list.d/gpucl-nvidia-container-toolkit.list"), "");
    host.testbed = right;

    // Somebody works on packages: he is named, waited for, and what he left half done is put right.
    host.run("sh -c 'cd /tmp && apt-get download -q tree && dpkg --unpack tree_*.deb'");
    assert!(host.run("dpkg --audit").contains("tree"));
    host.run(concat!(
        "systemd-run --collect python3 -c 'import fcntl,time; f=open(\"/var/lib/apt/lists/lock\",\"r+\"); ",
        "fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(8)'"
    ));
    let report = host.prepare("", &[]).await.unwrap();
    assert_eq!(report.values["gpus_expected"], "1");
    assert_eq!(host.run("dpkg --audit"), "");
    let said = host.said.lock().unwrap().clone();
    assert!(said.contains("Waiting for the package system: process"), "{said}");
    assert!(said.contains("python3 -c") && said.contains("holds /var/lib/apt/lists/lock"), "{said}");
}
