//! Many hosts at once, each 40 ms away: what a stage costs beside a plain `ssh host sh -s` for each that does the same
//! work.
//!
//! The hosts are network namespaces with sshd (`testbed/hosts/netns`): they are cheap, so that what is measured is the
//! way to them and not their engines. The figures are printed, whatever they are.
//!
//! `GPUCL_HOSTS` lists how many hosts there are (`1,8,32,128`); `GPUCL_PEERS` is a virtual environment with Ansible and
//! pyinfra, which then do the same work in the same run, each at its fastest: as many forks as hosts, pipelining, no
//! facts. `just fan-out` sets both.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use gpucl::event::{Bus, StepOutcome};
use gpucl::host::{Connections, HostEntry, SshHost, SshTarget};
use gpucl::playbook::{self, Playbook, Stage, StageReport};
use gpucl::render::Origin;
use serde_json::Value;

use super::testbed::{script, testbed};
use crate::support::alone;

const DELAY: &str = "40";
const STEPS: usize = 12;

/// What every step does: about 10 ms of work that leaves a file.
const WORK: &str =
    r#"i=0; while [ "$i" -lt 400 ]; do i=$((i + 1)); echo "$i $step"; done | sha256sum >"$folder/$step""#;

/// The hosts, gone when this is.
struct Namespaces;

impl Namespaces {
    fn up(count: usize) -> (Self, Vec<Value>) {
        let _ = testbed();
        let _ = Command::new(super::testbed::folder().join("netns")).arg("down").output();
        let printed = script("netns", &["up", &count.to_string(), "--delay", DELAY]);
        let hosts: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(hosts.len(), count);
        (Self, hosts)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _ = Command::new(super::testbed::folder().join("netns")).arg("down").output();
    }
}

/// Twelve steps that are skipped when they are done, as a playbook and its variables.
fn stage(folder: &str) -> Stage {
    let steps: String = (0..STEPS)
        .map(|step| format!("  - name: step {step}\n    unless: '[ -s \"$folder/{step}\" ]'\n    run: |\n      step={step}\n      mkdir -p \"$folder\"\n      {WORK}\n"))
        .collect();
    let text = format!("name: twelve\nsummary: twelve steps\nvariables:\n  folder:\nsteps:\n{steps}");
    let playbook = Playbook::parse(&text, &Origin::BuiltIn("twelve".to_owned())).unwrap();
    let given = BTreeMap::from([("folder".to_owned(), folder.to_owned())]);
    playbook.stage("prepare", &given, Duration::from_secs(60)).unwrap()
}

/// The same work as one script.
fn plain(folder: &str) -> String {
    let mut text = format!("set -eu\nfolder={folder}\n");
    for step in 0..STEPS {
        text.push_str(&format!("step={step}\nif ! [ -s \"$folder/$step\" ]; then\nmkdir -p \"$folder\"\n{WORK}\nfi\n"));
    }
    text
}

/// One `ssh host sh -s` for each host, all at once; returns how long they took together.
fn floor(config: &Path, names: &[String], program: &str) -> Duration {
    let begin = Instant::now();
    let children: Vec<_> = names
        .iter()
        .map(|name| {
            let mut child = Command::new("ssh")
                .arg("-F")
                .arg(config)
                .args(["-o", "BatchMode=yes", name, "sudo -n -- sh -s"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
            child
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    begin.elapsed()
}

/// A stage on all hosts over connections of its own, as a command does it; returns how long both took, and the
/// reports.
async fn product(
    connections: &Connections,
    names: &[String],
    home: &str,
    stage: &Stage,
) -> (Duration, Duration, Vec<StageReport>) {
    let (events, _inbox) = Bus::new();
    let begin = Instant::now();
    let wait = Duration::from_secs(20);
    let one = async |name: &String| -> (Duration, SshHost, StageReport) {
        let host = connections.connect(name, home.to_owned(), wait, std::future::pending()).await.unwrap();
        let connected = begin.elapsed();
        let report = playbook::run_stage(&host, stage, &events, std::future::pending()).await.unwrap();
        (connected, host, report)
    };
    let ended = join_all(names.iter().map(one)).await;
    let took = begin.elapsed();
    let connected = ended.iter().map(|(connected, ..)| *connected).max().unwrap();
    let mut reports = Vec::new();
    for (_, host, report) in ended {
        host.close().await;
        reports.push(report);
    }
    (took, connected, reports)
}

/// A tool from PyPI: how it does the twelve steps on all hosts.
struct Peer {
    name: &'static str,
    program: String,
    arguments: Vec<String>,
}

/// Ansible and pyinfra, with their inventories; none without `GPUCL_PEERS`.
fn peers(folder: &Path, config: &Path, names: &[String], home: &str) -> Vec<Peer> {
    let Some(venv) = std::env::var_os("GPUCL_PEERS").map(PathBuf::from) else { return Vec::new() };
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs_err::write(&path, text).unwrap();
        path.display().to_string()
    };
    let ssh = format!("-F {} -o ControlMaster=auto -o ControlPersist=60s", config.display());
    let inventory = write("inventory.ini", names.join("\n"));
    write(
        "ansible.cfg",
        format!(
            "[defaults]\nforks = {}\ngathering = explicit\nhost_key_checking = False\nretry_files_enabled = False\n\
             interpreter_python = /usr/bin/python3\n[ssh_connection]\npipelining = True\nssh_args = {ssh}\n",
            names.len()
        ),
    );
    let task = |step: usize| {
        let work = format!("folder={home}\nstep={step}\nmkdir -p \"$folder\"\n{WORK}");
        let lines: String = work.lines().map(|line| format!("        {line}\n")).collect();
        format!(
            "    - ansible.builtin.shell:\n        creates: {home}/{step}\n        cmd: |\n{}",
            lines.replace("        ", "          ")
        )
    };
    let tasks: String = (0..STEPS).map(task).collect();
    let playbook =
        write("twelve.yaml", format!("- hosts: all\n  gather_facts: false\n  become: true\n  tasks:\n{tasks}"));
    let operation = |step: usize| {
        let work = format!("folder={home}; step={step}; [ -s $folder/{step} ] || {{ mkdir -p $folder; {WORK}; }}");
        format!("server.shell(name='step {step}', commands=[{}], _sudo=True)\n", serde_json::to_string(&work).unwrap())
    };
    let operations: String = (0..STEPS).map(operation).collect();
    let deploy = write("twelve.py", format!("from pyinfra.operations import server\n{operations}"));
    let hosts: String = names
        .iter()
        .map(|name| {
            let data = serde_json::json!({"ssh_config_file": config, "ssh_strict_host_key_checking": "off"});
            format!("({}, {data}),", serde_json::to_string(name).unwrap())
        })
        .collect();
    let hosts = write("hosts.py", format!("hosts = [{hosts}]\n"));
    let program = |name: &str| venv.join("bin").join(name).display().to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    vec![
        Peer {
            name: "Ansible",
            program: program("ansible-playbook"),
            arguments: words(&["-i", &inventory, &playbook]),
        },
        Peer {
            name: "pyinfra",
            program: program("pyinfra"),
            arguments: words(&["-y", "--parallel", &names.len().to_string(), &hosts, &deploy]),
        },
    ]
}

impl Peer {
    /// Runs it once; returns how long it took, and the memory of its largest process in MiB.
    fn run(&self, folder: &Path) -> (Duration, u64) {
        const MEASURED: &str = "import resource, subprocess, sys\ncode = subprocess.run(sys.argv[1:], \
                                stdout=subprocess.DEVNULL).returncode\nprint(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\nsys.exit(code)";
        let begin = Instant::now();
        let output = Command::new("python3")
            .args(["-c", MEASURED, &self.program])
            .args(&self.arguments)
            .current_dir(folder)
            .env("ANSIBLE_CONFIG", folder.join("ansible.cfg"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        let kib: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        (begin.elapsed(), kib >> 10)
    }
}

/// The most memory that this process has had, in MiB.
fn own_memory() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: just fan-out"]
async fn many_hosts_at_forty_milliseconds() {
    let _turn = alone();
    let counts = std::env::var("GPUCL_HOSTS").unwrap_or_else(|_| "8".to_owned());
    for count in counts.split(',') {
        measure(count.parse().unwrap()).await;
    }
}

async fn measure(count: usize) {
    let (_namespaces, hosts) = Namespaces::up(count);
    // The median of this many runs is reported.
    let rounds = if count > 8 { 3 } else { 5 };
    let folder = tempfile::Builder::new().prefix("gt-").tempdir().unwrap();
    let (events, _inbox) = Bus::new();
    let connections =
        Connections::new(folder.path().join("state"), folder.path().join("run"), folder.path().to_owned(), events);
    let text = |host: &Value, key: &str| host[key].as_str().unwrap().to_owned();
    let names: Vec<String> = (0..count).map(|number| format!("host-{number}")).collect();
    let entries: Vec<HostEntry> = hosts
        .iter()
        .zip(&names)
        .map(|(host, name)| HostEntry {
            names: vec![name.clone()],
            target: SshTarget {
                node: text(host, "address"),
                user: Some(text(host, "user")),
                identity_file: Some(text(host, "identity").into()),
                host_key: Some(text(host, "host_key")),
                ..SshTarget::default()
            },
        })
        .collect();
    let begin = Instant::now();
    connections.write(&entries).unwrap();
    let resolving = begin.elapsed();

    let (mut floors, mut products): ([Vec<Duration>; 2], [Vec<Duration>; 2]) = Default::default();
    let mut without_facts = Vec::new();
    let mut of_peers: BTreeMap<&str, ([Vec<Duration>; 2], u64)> = BTreeMap::new();
    let mut connecting = Vec::new();
    for round in 0..rounds {
        let program = plain(&format!("/var/tmp/plain-{round}"));
        let stage = stage(&format!("/var/tmp/stage-{round}"));
        let home = format!("/var/lib/gpucl/round-{round}");
        for again in [0, 1] {
            floors[again].push(floor(&connections.config_file(), &names, &program));
            let (took, connected, reports) = product(&connections, &names, &home, &stage).await;
            products[again].push(took);
            connecting.push(connected);
            for report in reports {
                assert_eq!(report.skipped_as_unchanged, again == 1);
                let steps = if again == 0 { STEPS } else { 0 };
                assert_eq!(
                    report.steps.iter().filter(|step| step.outcome == StepOutcome::Changed).count(),
                    steps,
                    "{report:?}"
                );
            }
        }
        // As the stages that start things run: they do not ask for facts.
        let mut stage = self::stage(&format!("/var/tmp/factless-{round}"));
        stage.wants_facts = false;
        without_facts.push(product(&connections, &names, &format!("{home}-factless"), &stage).await.0);
        // They take minutes with many hosts: once is enough to see that, and 128 would show the same.
        if count > 32 || (count > 8 && round > 0) {
            continue;
        }
        for peer in peers(folder.path(), &connections.config_file(), &names, &format!("/var/tmp/peer-{round}")) {
            let peer_home = format!("/var/tmp/peer-{round}");
            let clear = format!("rm -rf {peer_home}\n");
            floor(&connections.config_file(), &names, &clear);
            let (times, memory) = of_peers.entry(peer.name).or_default();
            for time in times {
                let (took, mib) = peer.run(folder.path());
                time.push(took);
                *memory = mib.max(*memory);
            }
        }
    }
    let delay = format!("{DELAY} ms by {}", text(&hosts[0], "delay_by"));
    println!("{count} hosts, {delay}, {STEPS} steps, the middle of {rounds} rounds; at most {} MiB", own_memory());
    println!("connecting: {} ms of it; `ssh -G` before: {} ms", median(connecting).as_millis(), resolving.as_millis());
    for (again, word) in [(0, "cold"), (1, "unchanged")] {
        let floor = median(floors[again].clone());
        let ratio =
            |time: Duration| format!("{:.2} ({} ms)", time.as_secs_f64() / floor.as_secs_f64(), time.as_millis());
        let product = median(products[again].clone());
        println!("{word}: gpucl {}; one plain ssh per host {} ms", ratio(product), floor.as_millis());
        if again == 0 {
            println!("{word}: gpucl without facts afterwards {}", ratio(median(without_facts.clone())));
        }
        for (name, (times, memory)) in &of_peers {
            println!("{word}: {name} {}; its largest process {memory} MiB", ratio(median(times[again].clone())));
        }
    }
}
