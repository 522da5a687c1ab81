//! Every port, socket and file of a cluster, tried by somebody who is not to get in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

use super::TestEnv;

/// One that all users may run; a version manager's may not be.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// The program that finds what is there, and tries it.
pub(crate) const SCAN: &str = include_str!("scan.py");
/// Where the threat model lists what answers.
const LIST: &str = "## What another user of the same machine reaches";
/// An application of Serve.
const APPLICATION: &str = "\
from ray import serve

@serve.deployment(ray_actor_options={'num_cpus': 0.1})
class App:
    async def __call__(self, request):
        return 'answered'

app = App.bind()
";

/// Deploys an application where the program asks for one.
#[track_caller]
pub(crate) fn serve(env: &TestEnv, cluster: &str) {
    env.write("app/app.py", APPLICATION);
    let app = ["app:app", "--working-dir", "app", "--route-prefix", "/app"];
    env.run(&[&["serve", "deploy", "-c", cluster], app.as_slice()].concat()).exits(0);
}

/// An attempt, and its result.
#[derive(Debug, Deserialize)]
pub(crate) struct Tried {
    pub(crate) what: String,
    /// Whose it is: `raylet`.
    pub(crate) of: String,
    pub(crate) sent: String,
    pub(crate) came: String,
    /// It is more than a refusal.
    pub(crate) answers: bool,
    pub(crate) ip: Option<String>,
    pub(crate) port: Option<u16>,
}

impl Tried {
    /// As the threat model lists it.
    pub(crate) fn named(&self) -> (String, String) {
        let sent = if self.sent.starts_with("metrics as ") { "metrics" } else { self.sent.as_str() };
        (self.of.clone(), sent.to_owned())
    }
}

/// The services that answer without a credential according to the threat model: the program, and the request.
pub(crate) fn listed() -> BTreeSet<(String, String)> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/concepts/threat-model.md")).unwrap();
    let section = text.split(&format!("\n{LIST}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let quoted = cells[1].split('`').skip(1).step_by(2).map(str::to_owned);
        let of = cells[0].to_owned();
        quoted.map(move |sent| (of.clone(), sent)).collect::<Vec<_>>()
    })
    .collect()
}

/// What is there of the processes that have to do with a folder, and of those that were started by hand.
#[track_caller]
pub(crate) fn found(folder: &Path, pids: &[u32]) -> Value {
    let pids = pids.iter().map(u32::to_string);
    let output = Command::new(PYTHON).args(["-c", SCAN, "find"]).arg(folder).args(pids).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What the program has printed when it has tried all.
pub(crate) fn results(printed: &str) -> Vec<Tried> {
    printed.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// Prints what was sent to each port and what came back; equal results only once.
pub(crate) fn tell(tried: &[Tried]) {
    let mut ports: BTreeMap<(String, String), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for one in tried.iter().filter(|one| one.what == "port" || one.what == "udp") {
        let place = format!("{}:{}", one.ip.clone().unwrap_or_default(), one.port.unwrap_or_default());
        ports.entry((one.of.clone(), place)).or_default().entry(&one.came).or_default().push(&one.sent);
    }
    for ((of, place), answers) in &ports {
        println!("\n{of} at {place}");
        answers.iter().for_each(|(came, sent)| println!("  {}\n    -> {came}", sent.join(", ")));
    }
    println!();
    for one in tried.iter().filter(|one| one.what == "socket") {
        println!("{}: {} -> {}", one.of, one.sent, one.came);
    }
    let files: Vec<&Tried> = tried.iter().filter(|one| one.what == "file").collect();
    println!("{} files and folders tried, {} open", files.len(), files.iter().filter(|one| one.answers).count());
    println!("tried as {}", tried.iter().find(|one| one.what == "who").map_or("?", |who| &who.came));
}
