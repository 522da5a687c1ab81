//! Runs: a cluster that is there for one job, with what is kept of it, and an end by Ctrl-C.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::support::{Outcome, TestEnv, interrupt, tagged_processes, turn};

/// Writes an output into the cluster's data folder.
const WRITES: &str = r#"
import glob, os, sys

hosts = os.path.expanduser("~/.local/share/gpucl/hosts")
data = os.environ.get("GPUCL_DATA") or os.path.join(glob.glob(hosts + "/*-one-host0")[0], "data")
os.makedirs(data + "/out", exist_ok=True)
with open(data + "/out/answer.txt", "w") as file:
    file.write("42")
with open(data + "/out/cluster.yaml", "w") as file:
    file.write("of the job")
print("written", flush=True)
if sys.argv[1] == "and waits":
    import time
    time.sleep(600)
sys.exit(int(sys.argv[1]))
"#;

const SPEC: &str = "name: one\noutputs: [out/answer.txt, out/cluster.yaml]\n";

/// The last line on stderr, which says what is left.
fn last_line(outcome: &Outcome) -> &str {
    outcome.stderr.lines().last().unwrap_or_default()
}

#[test]
fn a_cluster_is_there_for_one_job() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", SPEC);
    env.write("job/job.py", WRITES);
    let run = |more: &[&str], with: &str| {
        let all: Vec<&str> = ["run", "--working-dir", "job"].iter().chain(more).copied().collect();
        env.run(&[all.as_slice(), &["--", "python", "job.py", with]].concat())
    };
    let at = |name: &str| std::fs::read_to_string(env.work().join(name)).unwrap_or_default();
    let fetched =
        |to: &str| at(&format!("{to}/answer.txt")) == "42" && at(&format!("{to}/cluster.yaml")) == "of the job";

    // From nothing; a job that succeeds, and hosts that are kept.
    let kept = run(&["--keep", "hosts"], "0").exits(0).prints("written\n").says("succeeded");
    let kept = kept.says("fetched out/answer.txt to outputs/one/answer.txt");
    assert_eq!(last_line(&kept), "left of one: host host-0; to remove it: gpucl down -c one");
    assert!(fetched("outputs/one"));
    assert_eq!(at("cluster.yaml"), SPEC, "an output has replaced a file of the working folder");
    assert_eq!(tagged_processes(&env), []);

    // It exists, so that to end it must be said; its exit code is the job's, and an output comes of a job that fails.
    let _ = env.run(&["run", "--outputs-to", "more", "--", "true"]).exits(2).says("`run` would take it down");
    let _ = run(&["--keep", "all"], "3").exits(2).says("outputs/one/answer.txt already exists");
    env.write("outputs/one/answer.txt", "of the first run");
    let kept = run(&["--keep", "all", "--replace-outputs"], "3").exits(3).prints("written\n");
    let kept = kept.says("its command exited with 3");
    assert_eq!(last_line(&kept), "left of one: host host-0, head, worker-0; to remove it: gpucl down -c one");
    assert!(fetched("outputs/one"));

    let _ = env.run(&["mlflow", "export", "runs"]).exits(6).says("the cluster one has no MLflow");

    // Ctrl-C while the job runs: its outputs come, and the rest goes. What came into the way of one stays as it is.
    let arguments = "--keep nothing --outputs-to third --output json --working-dir job -- python job.py".split(' ');
    let mut command = env.command(&["run"]);
    command.args(arguments).arg("and waits").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("written")), "the job ended without a word");
    env.write("third/cluster.yaml", "mine");
    interrupt(&child);
    let lines: Vec<String> = lines.collect();
    let end: serde_json::Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!((&end["type"], &end["exit_code"]), (&"run_ended".into(), &130.into()), "{said}");
    assert_eq!((&end["kept"], &end["left"]), (&"nothing".into(), &().into()), "{said}");
    assert_eq!(end["fetched"], serde_json::json!(["out/answer.txt"]), "{said}");
    assert!(end["job"].as_str().is_some_and(|id| said.contains(id)), "{said}");
    assert!(said.ends_with("nothing of one is left\n"), "{said}");
    assert_eq!((at("third/answer.txt"), at("third/cluster.yaml")), ("42".into(), "mine".into()));
    let kept = lines.iter().find_map(|line| line.split("it is in ").nth(1)?.split('"').next());
    let kept = kept.unwrap_or_else(|| panic!("no word of the other output: {lines:?}"));
    assert!(kept.contains("third/incoming-"), "{kept}");
    assert_eq!(at(kept), "of the job");
    assert_eq!(tagged_processes(&env), []);
    let _ = env.run(&["list"]).exits(0).is("");
}

/// Interrupts a run when it prints this line to stderr; returns how it ended, and the rest of what it printed there.
fn interrupted_at(env: &TestEnv, marker: &str) -> (Option<i32>, Vec<String>) {
    let mut command = env.command(&["run", "--keep", "nothing", "--working-dir", "job", "--", "python", "job.py", "0"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(marker)), "no line with `{marker}`");
    interrupt(&child);
    let rest = lines.collect();
    (child.wait().unwrap().code(), rest)
}

/// Before anything runs, while nodes start, when the job is about to be submitted, and while all is taken down.
#[test]
#[ignore = "by hand: just more-local"]
fn a_run_is_interrupted_at_each_stage_and_nothing_is_left() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", "name: one\n");
    env.write("job/job.py", WRITES);
    for marker in ["host-0: acquire", "project-0: deploy", "ready: ", "taking one down"] {
        let begin = std::time::Instant::now();
        let (code, rest) = interrupted_at(&env, marker);
        let last = rest.last().map_or("", String::as_str);
        println!("interrupted at `{marker}`: exit code {code:?} after {:.1} s: {last}", begin.elapsed().as_secs_f64());
        if last != "nothing of one is left" {
            // It was the end itself that was interrupted: it says so, and goes on where it was.
            assert!(last.ends_with("to remove it: gpucl down -c one"), "{rest:?}");
            assert_eq!((marker, code), ("taking one down", Some(130)), "{rest:?}");
            env.run(&["down", "--yes", "-c", "one"]).exits(0).prints("nothing of one is left");
        }
        assert!(code == Some(130) || marker == "taking one down", "{rest:?}");
        assert_eq!(tagged_processes(&env), []);
        let _ = env.run(&["list"]).exits(0).is("");
    }
}
