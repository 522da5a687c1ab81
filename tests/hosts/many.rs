//! Many hosts at once, each 40 ms away: what a stage costs beside a plain `ssh host sh -s` for each that does the same
//! work.
//!
//! The hosts are network namespaces with sshd (`testbed/hosts/netns`): they are cheap, so that what is measured is the
//! way to them and not their engines. The figures are printed, whatever they are.

use std::collections::BTreeMap;
use std::io::Write as _;
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

const HOSTS: usize = 8;
const DELAY: &str = "40";
const STEPS: usize = 12;
/// The median of this many runs is reported.
const ROUNDS: usize = 5;

/// What every step does: about 10 ms of work that leaves a file.
const WORK: &str =
    r#"i=0; while [ "$i" -lt 400 ]; do i=$((i + 1)); echo "$i $step"; done | sha256sum >"$folder/$step""#;

/// The hosts, gone when this is.
struct Namespaces;

impl Namespaces {
    fn up() -> (Self, Vec<Value>) {
        let _ = testbed();
        let _ = Command::new(super::testbed::folder().join("netns")).arg("down").output();
        let printed = script("netns", &["up", &HOSTS.to_string(), "--delay", DELAY]);
        let hosts: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(hosts.len(), HOSTS);
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
fn floor(config: &std::path::Path, names: &[String], program: &str) -> Duration {
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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "testbed"]
async fn eight_hosts_at_forty_milliseconds() {
    let _turn = alone();
    let (_namespaces, hosts) = Namespaces::up();
    let folder = tempfile::Builder::new().prefix("gt-").tempdir().unwrap();
    let (events, _inbox) = Bus::new();
    let connections =
        Connections::new(folder.path().join("state"), folder.path().join("run"), folder.path().to_owned(), events);
    let text = |host: &Value, key: &str| host[key].as_str().unwrap().to_owned();
    let names: Vec<String> = (0..HOSTS).map(|number| format!("host-{number}")).collect();
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
    connections.write(&entries).unwrap();

    let (mut floors, mut products): ([Vec<Duration>; 2], [Vec<Duration>; 2]) = Default::default();
    let mut connecting = Vec::new();
    for round in 0..ROUNDS {
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
    }
    let delay = format!("{DELAY} ms by {}", text(&hosts[0], "delay_by"));
    println!("{HOSTS} hosts, {delay}, {STEPS} steps, the middle of {ROUNDS} rounds");
    println!("connecting: {} ms of it", median(connecting).as_millis());
    for (again, word) in [(0, "cold"), (1, "unchanged")] {
        let (floor, product) = (median(floors[again].clone()), median(products[again].clone()));
        let ratio = product.as_secs_f64() / floor.as_secs_f64();
        println!(
            "{word}: ratio {ratio:.2} ({} ms; one plain ssh per host {} ms)",
            product.as_millis(),
            floor.as_millis()
        );
    }
}
