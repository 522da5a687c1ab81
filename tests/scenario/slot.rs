//! A training goes on on a second cluster after the end of the first: the programs of `examples/slot`, with real Ray.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;

use crate::support::{Outcome, TestEnv, nodes, ray_session, tagged_processes, turn, until, until_or};

pub(crate) const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/slot");
/// How far the end is once a job is at work, and when it is asked to save, in seconds: Ray's command that drains a node takes
/// seconds on a busy machine.
const AWAY: u64 = 100;
const WARNING: u64 = 70;

/// A job that hears of no end, and writes a checkpoint each second.
const STUBBORN: &str = r#"import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = os.environ["GPUCL_DATA"] + "/results"
os.makedirs(folder, exist_ok=True)
for step in range(100000):
    with open(f"{folder}/new", "w") as file:
        file.write(str(step))
    os.replace(f"{folder}/new", f"{folder}/checkpoint-{step:05}.json")
    print(f"step {step}", flush=True)
    time.sleep(1)
"#;

/// The first cluster of the example, on which a job is at work before its end comes near.
struct First {
    env: TestEnv,
    begun: Instant,
}

impl First {
    fn up() -> Self {
        let env = TestEnv::with_shared_ray();
        for name in ["a.yaml", "b.yaml"] {
            env.write(name, &std::fs::read_to_string(format!("{EXAMPLE}/{name}")).unwrap());
        }
        let first = Self { env, begun: Instant::now() };
        first.write_spec("30m");
        first.env.accept("a.yaml");
        first.env.run(&["up", "a.yaml"]).exits(0).prints("ready: ");
        first
    }

    /// The example's spec with another deadline.
    fn write_spec(&self, deadline: &str) {
        let spec = std::fs::read_to_string(format!("{EXAMPLE}/a.yaml")).unwrap();
        assert!(spec.contains("\ndeadline: 6m\n") && spec.contains("warning: 2m "), "{spec}");
        let sooner = spec.replace("deadline: 6m", &format!("deadline: {deadline}"));
        self.env.write("a.yaml", &sooner.replace("warning: 2m ", &format!("warning: {WARNING}s ")));
    }

    /// Has the end come nearer, as a changed spec does.
    fn ends_soon(&self) {
        self.write_spec(&format!("{}s", self.begun.elapsed().as_secs() + AWAY));
        self.env.run(&["up", "a.yaml"]).exits(0).prints("ready: ");
    }

    /// Submits a job, and waits until it has done some steps.
    fn submit(&self, id: &str, folder: &str, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let submit = ["job", "submit", "-c", "slot-a", "--no-wait", "--id", id, "--working-dir", folder, "--"];
        self.env.run(&[&submit[..], words.as_slice()].concat()).exits(0);
        let log = || self.env.run(&["job", "logs", "-c", "slot-a", id]).stdout;
        until_or("the job is at work", 180, || log().contains("step 3\n").then_some(()), log);
    }

    /// Follows a job to its end.
    fn follow(&self, id: &str) -> Outcome {
        self.env.run(&["job", "logs", "-c", "slot-a", id, "--follow"]).exits(0)
    }

    fn host(&self) -> std::path::PathBuf {
        let hosts = std::fs::read_dir(self.env.home().join(".local/share/gpucl/hosts")).unwrap();
        hosts.flatten().find(|entry| entry.file_name().to_string_lossy().ends_with("-slot-a-host0")).unwrap().path()
    }

    /// The guard's own state.
    fn guard(&self) -> Value {
        let text = std::fs::read_to_string(self.host().join("guard/state.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Waits until nothing of it is left.
    fn is_gone(&self) {
        let listed = || self.env.run(&["list"]).exits(0).stdout;
        until_or(
            "the cluster is taken down",
            240,
            || (!listed().contains("slot-a")).then_some(()),
            || {
                let log =
                    std::fs::read_to_string(self.env.home().join(".local/state/gpucl/clusters/slot-a/deadline.log"));
                format!("{}{}{}", listed(), self.guard(), log.unwrap_or_default())
            },
        );
        assert_eq!(tagged_processes(&self.env), []);
    }
}

/// The steps that a job says it has done.
fn steps(log: &str) -> BTreeSet<u64> {
    let said = log.lines().filter_map(|line| line.rsplit_once("step "));
    let done = said.filter(|(before, _)| before.is_empty() || before.ends_with("\u{1b}[0m ") || before.ends_with(") "));
    done.filter_map(|(_, number)| number.parse().ok()).collect()
}

/// How many steps were done on both clusters; none is left out.
pub(crate) fn done_twice(first: &str, second: &str, all: u64) -> usize {
    let (first, second) = (steps(first), steps(second));
    let (last, next) = (*first.last().unwrap(), *second.first().unwrap());
    let twice = first.intersection(&second).count();
    println!(
        "slot: the first cluster did steps 0 to {last}, the second {next} to {}; steps done twice: {twice}",
        all - 1
    );
    assert_eq!(first.union(&second).count() as u64, all, "a step is missing: {first:?} {second:?}");
    assert!(last + 1 < all, "the end came too late for this test: all {all} steps were done");
    twice
}

#[test]
#[ignore = "by hand: just end-story"]
fn a_training_goes_on_on_a_second_cluster_after_the_end_of_the_first() {
    let _turn = turn();
    let first = First::up();
    let storage = first.env.home().join("gpucl-slot/runs");
    let command = format!("python train.py --storage {} --steps 300 --seconds 0.5 --every 100", storage.display());
    first.submit("train", EXAMPLE, &command);
    let begin = Instant::now();
    first.ends_soon();
    let job = first.follow("train").prints("ended at step ").says("succeeded after");
    let job = job.says("job train ended by itself while the cluster was about to end");
    println!("slot {:5.1} s  from `up` with a near end to the end of the job", begin.elapsed().as_secs_f64());
    first.is_gone();
    println!("slot {:5.1} s  the first cluster is gone", begin.elapsed().as_secs_f64());
    // What it wrote is where it outlives the cluster.
    let results = std::fs::read_to_string(first.env.home().join("gpucl-slot/results/slot.json")).unwrap();
    assert!(results.contains("\"step\""), "{results}");

    let begin = Instant::now();
    let words: Vec<&str> = command.split(' ').collect();
    first.env.accept("b.yaml");
    let run = ["run", "b.yaml", "--working-dir", EXAMPLE, "--"];
    let second = first.env.run(&[&run[..], words.as_slice()].concat()).exits(0);
    let second = second.prints("goes on after step ").prints("trained to step 299").says("saved results to ~/");
    println!("slot {:5.1} s  gpucl run b.yaml", begin.elapsed().as_secs_f64());
    assert!(done_twice(&job.stdout, &second.stdout, 300) <= 1);
    assert_eq!(tagged_processes(&first.env), []);
}

#[test]
#[ignore = "by hand: just end-story"]
fn a_job_that_goes_on_is_stopped_and_what_it_wrote_is_saved() {
    let _turn = turn();
    let first = First::up();
    first.env.write("job/stubborn.py", STUBBORN);
    first.submit("stubborn", "job", "python stubborn.py");
    first.ends_soon();
    let job = first.follow("stubborn").says("job stubborn was stopped after");
    let job = job.says("stopped by the end of the cluster, since it went on after it was asked to save");
    first.is_gone();
    let saved = first.env.home().join("gpucl-slot/results");
    let names = std::fs::read_dir(saved).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let newest = names.filter(|name| name.starts_with("checkpoint-")).max().unwrap();
    let last = *steps(&job.stdout).last().unwrap();
    println!("slot: the last step was {last}, the newest checkpoint that was saved is {newest}");
    assert_eq!(newest, format!("checkpoint-{last:05}.json"));
}

#[test]
#[ignore = "by hand: just end-story"]
fn an_end_that_is_called_off_leaves_the_head_alone_and_brings_the_workers_back() {
    let _turn = turn();
    let first = First::up();
    let env = &first.env;
    first.submit("plain", EXAMPLE, "python plain.py --steps 100000 --seconds 0.5");
    let before = (nodes(env, "slot-a")["head"].clone(), ray_session(env, "slot-a"));
    first.ends_soon();
    let job = first.follow("plain").prints("ended at step ").says("succeeded after");
    println!("{}", job.stderr);
    let _ = job.says("job plain ended by ");
    until_or(
        "the workers are drained",
        60,
        || (first.guard()["drained"].as_array()?.len() >= 2).then_some(()),
        || first.guard().to_string(),
    );
    let file = first.host().join("data/.gpucl-end.json");
    assert!(file.exists());
    // What needs no worker runs in the last minutes.
    env.run(&["job", "submit", "-c", "slot-a", "--", "python", "-c", "print(6 * 7)"]).exits(0).prints("42\n");

    let begin = Instant::now();
    println!("{}", env.run(&["keep", "-c", "slot-a", "1h"]).exits(0).stdout);
    until("the file is gone", 20, || (!file.exists()).then_some(()));
    let task = ["job", "submit", "-c", "slot-a", "--entrypoint-num-cpus", "1", "--", "python", "-c", "print(43)"];
    env.run(&task).exits(0).prints("43\n");
    println!("slot {:5.1} s  from `keep` to the end of a job on a worker", begin.elapsed().as_secs_f64());
    until_or(
        "both workers are ready",
        180,
        || (env.run(&["verify", "-c", "slot-a"]).code == Some(0)).then_some(()),
        || env.run(&["verify", "-c", "slot-a"]).stderr,
    );
    println!("slot {:5.1} s  from `keep` to a cluster that is as it was", begin.elapsed().as_secs_f64());
    assert_eq!(before, (nodes(env, "slot-a")["head"].clone(), ray_session(env, "slot-a")), "the head is another one");
    assert_eq!(first.guard()["phase"], "waiting");
    env.run(&["down", "--yes", "-c", "slot-a"]).exits(0);
    assert_eq!(tagged_processes(env), []);
}
