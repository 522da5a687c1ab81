//! On a machine with NVIDIA GPUs, a working driver and nobody's programs on them: what a job gets, that checks neither
//! disturb it nor fail beside it, and that none of its memory is left on a GPU.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{TestEnv, tagged_processes, turn, until, until_or};

/// Holds memory of a GPU.
const CUDA: &str = include_str!("cuda.py");

/// Each worker's GPU, as tasks see it; with an argument, all of them hold that much memory until a file exists.
const JOB: &str = r#"
import os, subprocess, sys, time
import ray
from cuda import Held

ray.init(log_to_driver=False)


@ray.remote(num_gpus=1)
class Holder:
    def sees(self):
        return os.environ["CUDA_VISIBLE_DEVICES"], ray.get_runtime_context().get_accelerator_ids()["GPU"]

    def hold(self, mib, until):
        # Another process of the job, which has left its session.
        subprocess.Popen([sys.executable, "cuda.py", "64"], start_new_session=True, stdout=subprocess.DEVNULL)
        self.held = Held(mib)
        print("holds", flush=True)
        while not os.path.exists(until):
            self.held.write(0.2)


holders = [Holder.remote() for _ in range(int(ray.cluster_resources()["GPU"]))]
for saw in ray.get([holder.sees.remote() for holder in holders]):
    print("sees", *saw, flush=True)
if sys.argv[1:]:
    running = [holder.hold.remote(*sys.argv[1:]) for holder in holders]
    print("holding", flush=True)
    ray.get(running)
print("done", flush=True)
"#;

/// Two tasks at a time share each GPU.
const SHARED: &str = r#"
import os, time
import ray

ray.init(log_to_driver=False)


@ray.remote(num_gpus=0.5, num_cpus=0.1)
def half(seconds):
    from cuda import Held
    begin, held = time.time(), Held(16)
    held.write(seconds)
    return os.environ["CUDA_VISIBLE_DEVICES"], begin, time.time()


count = 2 * int(ray.cluster_resources()["GPU"])
ray.get([half.remote(0.1) for _ in range(count)])
done = ray.get([half.remote(2) for _ in range(count)])
users = {}
for gpu, begin, end in done:
    users.setdefault(gpu, []).append((begin, end))
assert all(len(spans) == 2 for spans in users.values()), users
assert all(max(a, c) < min(b, d) for (a, b), (c, d) in users.values()), users
print("shared by", *sorted(map(len, users.values())))
"#;

/// What nvidia-smi says of each GPU, by UUID.
fn ask(field: &str) -> BTreeMap<String, String> {
    let query = format!("--query-gpu=uuid,{field}");
    let output = Command::new("nvidia-smi").args([&query, "--format=csv,noheader,nounits"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split_once(", ").unwrap()).map(|(uuid, value)| (uuid.into(), value.into())).collect()
}

fn memory_used() -> BTreeMap<String, u64> {
    ask("memory.used").into_iter().map(|(uuid, mib)| (uuid, mib.parse().unwrap())).collect()
}

/// Waits until at most so much more memory of each GPU is in use, in MiB, than there was.
fn is_given_back(before: &BTreeMap<String, u64>) {
    let left = || memory_used().into_iter().filter(|(uuid, used)| *used > before[uuid] + 8).collect::<Vec<_>>();
    until_or("GPUs' memory is free again", 20, || left().is_empty().then_some(()), || format!("{:?}", left()));
}

/// A program of somebody else that holds memory of a GPU.
struct Stranger(Child);

impl Stranger {
    fn new(env: &TestEnv, mib: &str) -> Self {
        let mut python = Command::new("python3");
        python.arg(env.work().join("job/cuda.py")).arg(mib).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("holds "), "{line}");
        Self(child)
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The results of the check `gpu`: whether each passed, and what it saw.
fn checks(env: &TestEnv, code: i32) -> Vec<(bool, String)> {
    let lines = env.run(&["verify", "--output", "json"]).exits(code).json();
    let of_gpu = |line: &&Value| line["type"] == "check" && line["check"] == "gpu";
    lines.iter().filter(of_gpu).map(|line| (line["outcome"] == "passed", text(&line["saw"]))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A job that holds memory of every GPU, until the file exists that is returned.
fn hold(env: &TestEnv, id: &str, mib: &str) -> PathBuf {
    let stop = env.root().join(format!("stop-{id}"));
    let path = stop.display().to_string();
    env.run(&["job", "submit", "--working-dir", "job", "--id", id, "--no-wait", "--", "python", "job.py", mib, &path])
        .exits(0);
    until("the job holds memory", 60, || {
        let log = env.run(&["job", "logs", id]).stdout;
        assert!(!log.contains("Error"), "{log}");
        log.contains("holding").then_some(())
    });
    stop
}

#[test]
#[ignore = "by hand: just real-gpus"]
fn a_job_gets_its_gpus_and_nothing_of_it_stays_on_them() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let products = ask("name");
    assert!(!products.is_empty(), "this test needs a GPU of NVIDIA");
    let idle = memory_used();
    env.write("job/cuda.py", CUDA);
    env.write("job/job.py", JOB);
    env.write("job/shared.py", SHARED);
    env.write(
        "cluster.yaml",
        "name: real\nray:\n  workers: {per: gpu, cpus: 2, memory: 1GiB, object_store_memory: 100MiB}\n\
         oversubscribe: true\n",
    );
    let mut stranger = Stranger::new(&env, "32");
    let before = memory_used();

    // Each worker has a GPU of its own, by the driver's word.
    let up = env.run(&["up"]).exits(0);
    println!("{}{}", up.stderr, up.stdout);
    let proven = checks(&env, 0);
    println!("{proven:#?}");
    let uuids: Vec<&String> = products.keys().collect();
    assert_eq!(proven.len(), uuids.len());
    for (uuid, product) in &products {
        let of_it = |(passed, saw): &&(bool, String)| *passed && saw.contains(&format!("{product} {uuid}"));
        assert_eq!(proven.iter().filter(of_it).count(), 1, "{uuid}");
    }

    // Tasks see theirs, and share it where they ask for a half.
    let job = |arguments: &[&str]| {
        let submit = [&["job", "submit", "--working-dir", "job", "--", "python"], arguments].concat();
        env.run(&submit).exits(0).stdout
    };
    let seen = job(&["job.py"]);
    println!("{seen}");
    assert_eq!(seen.lines().filter(|line| line.starts_with("sees ")).count(), uuids.len(), "{seen}");
    assert!(uuids.iter().all(|uuid| seen.contains(&format!("sees {uuid} "))), "{seen}");
    assert!(job(&["shared.py"]).contains("shared by 2"));
    is_given_back(&before);

    // A job that uses the GPUs is seen, and the checks pass beside it.
    let stop = hold(&env, "some", "512");
    let nodes = until("what the GPUs do is shown", 30, || {
        let rows = env.run(&["top", "--output", "json"]).exits(0).json();
        let gpus = rows.iter().flat_map(|row| row["gpus"].as_array().cloned().unwrap_or_default());
        let busy =
            |gpu: &Value| gpu["busy_percent"].as_u64() > Some(0) && gpu["memory_used"].as_u64() > Some(512 << 20);
        let busy: Vec<Value> = gpus.filter(busy).collect();
        (busy.len() >= uuids.len()).then_some(rows)
    });
    println!("{}", env.run(&["top"]).exits(0).stdout);
    assert!(nodes.iter().any(|row| row["holds"]["some"]["GPU"] == 1.0), "{nodes:?}");
    let begun = std::time::Instant::now();
    let beside = checks(&env, 0);
    println!("beside a job, after {:.1} s: {beside:#?}", begun.elapsed().as_secs_f64());
    assert_eq!(beside.len(), uuids.len());
    env.run(&["up"]).exits(0).prints("nothing was changed");
    std::fs::write(stop, "").unwrap();
    env.run(&["job", "logs", "some", "--follow"]).exits(0).says("job some succeeded");
    is_given_back(&before);

    // The same beside one that leaves no memory for a check.
    let stop = hold(&env, "all", "all");
    until("all memory is taken", 60, || {
        let totals = ask("memory.total");
        memory_used().iter().all(|(uuid, used)| used + 1024 > totals[uuid].parse().unwrap()).then_some(())
    });
    let full = checks(&env, 0);
    println!("beside one that uses all memory: {full:#?}");
    assert!(full.iter().all(|(_, saw)| saw.contains("in use by this worker's own processes")), "{full:?}");

    // A worker killed with its job's processes gives the memory back, and comes again.
    env.run(&["worker", "kill", "worker-0", "--yes"]).exits(0);
    std::fs::write(stop, "").unwrap();
    until("the killed worker's GPU is free", 60, || {
        let used = memory_used();
        used.values().zip(before.values()).all(|(now, before)| *now <= before + 8).then_some(())
    });
    until("the worker is back", 90, || {
        let verify = env.run(&["verify"]);
        (verify.code == Some(0)).then_some(())
    });

    // What others use is not ours: a GPU without memory for jobs is not ready, and it is said why.
    if uuids.len() == 1 {
        let _all = Stranger::new(&env, "all");
        let full = checks(&env, 3);
        println!("beside a stranger who uses all memory: {full:#?}");
        assert!(
            full.iter().all(|(passed, saw)| !passed && saw.contains("no job of this worker holds that memory")),
            "{full:?}"
        );
    }

    // And back to nothing, with a job that still runs.
    hold(&env, "last", "512");
    until("its memory is taken", 30, || {
        memory_used().iter().all(|(uuid, used)| *used > before[uuid] + 512).then_some(())
    });
    env.run(&["down", "--yes"]).exits(0).prints("nothing of real is left");
    is_given_back(&before);
    assert_eq!(tagged_processes(&env), []);
    assert!(stranger.runs(), "a program of somebody else was ended");
    drop(stranger);
    is_given_back(&idle);
}
