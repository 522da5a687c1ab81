//! A fresh home: to ready, again, one worker more and one less beside a running job, and back to nothing.

use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use crate::support::{SharedFolders, TestEnv, nodes, port_blocks, ray_session, tagged_processes, turn, until};

/// A job that counts on worker-0 until it is asked to end; the count restarts when anything disturbs it.
const COUNTER: &str = r#"
import os, sys, time
import ray

ray.init(log_to_driver=False)


@ray.remote(num_cpus=1, resources={"gpucl_worker0": 0.01})
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count


counter = Counter.remote()
while not os.path.exists(sys.argv[1]):
    print("count", ray.get(counter.add.remote()), flush=True)
    time.sleep(0.1)
print("asked to end", flush=True)
"#;

#[test]
fn from_nothing_to_ready_and_back_to_nothing() {
    let _turn = turn();
    let shared = SharedFolders::now();
    let env = TestEnv::new();
    let example = include_str!("../../examples/local.yaml");
    let three = example.replace("count: 2", "count: 3") + "\noversubscribe: true\n";
    env.write("cluster.yaml", example);
    let mut clock = Instant::now();
    let mut took = |what: &str| {
        println!("{what}: {:.1} s", clock.elapsed().as_secs_f64());
        clock = Instant::now();
    };

    // The first command.
    env.run(&["up"]).exits(0).prints("ready: 11 checks passed, 3 operations");
    took("first up, with the install");
    let first = nodes(&env, "local");
    assert_eq!(first.keys().collect::<Vec<_>>(), ["head", "worker0", "worker1"]);
    let session = ray_session(&env, "local");

    // The same again changes nothing and starts nothing.
    env.run(&["up"]).exits(0).prints("ready: 11 checks passed, nothing was changed");
    took("second up");
    assert_eq!(nodes(&env, "local"), first);
    assert_eq!(ray_session(&env, "local"), session);

    // One worker more, beside a running job.
    env.write("job/count.py", COUNTER);
    let stop = env.work().join("stop");
    let submit = ["job", "submit", "--working-dir", "job", "--id", "count", "--no-wait", "--", "python", "count.py"];
    let mut arguments: Vec<&str> = submit.to_vec();
    let stop_text = stop.display().to_string();
    arguments.push(&stop_text);
    env.run(&arguments).exits(0);
    until("the job counts", 60, || (last_count(&env) >= 3).then_some(()));
    env.write("cluster.yaml", &three);
    env.run(&["plan"]).exits(0).is(concat!(
        "#1 project-0, deploy: the spec has changed for it\n    keep head: it is as it should be\n",
        "    keep worker-0: it is as it should be\n    keep worker-1: it is as it should be\n",
        "    start worker-2: it does not run yet\n"
    ));
    took("job begun and planned");
    env.run(&["up"]).exits(0).prints("ready: 14 checks passed, 1 operation");
    took("up with one worker more");
    let mut more = nodes(&env, "local");
    assert!(more.remove("worker2").is_some());
    assert_eq!(more, first, "the nodes that were there are the same processes");
    goes_on(&env);

    // And one less: exactly that one.
    env.write("cluster.yaml", example);
    env.run(&["plan"])
        .exits(0)
        .prints("    keep worker-1: it is as it should be\n    stop worker-2: not in the spec\n");
    env.run(&["up"]).exits(0).prints("ready: 11 checks passed, 1 operation");
    took("up with one worker less");
    assert_eq!(nodes(&env, "local"), first);
    assert_eq!(ray_session(&env, "local"), session);
    goes_on(&env);
    std::fs::write(&stop, "").unwrap();
    let log = env.run(&["job", "logs", "count", "--follow"]).exits(0).says("job count succeeded").stdout;
    let counts: Vec<usize> = log.lines().filter_map(|line| line.strip_prefix("count ")?.parse().ok()).collect();
    assert_eq!(counts, (1..=counts.len()).collect::<Vec<_>>(), "the actor of the job was disturbed");
    assert!(log.ends_with("asked to end\n"), "{log}");
    took("job ended");

    // Back to nothing.
    let blocks = port_blocks(&env, "local");
    env.run(&["down", "--yes"]).exits(0).prints("nothing of local is left");
    took("down");
    assert_eq!(tagged_processes(&env), []);
    for port in blocks.iter().flat_map(|base| *base..base + 100) {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "port {port} of ours is open");
    }
    assert_eq!(shared.new_since(env.root()), Vec::<std::path::PathBuf>::new());
    let mut left = Vec::new();
    walk(env.root(), env.root(), &mut left);
    left.retain(|path| !is_allowed(path));
    assert_eq!(left, Vec::<String>::new(), "left after `down`");
}

/// The highest number that the job has printed.
fn last_count(env: &TestEnv) -> usize {
    let log = env.run(&["job", "logs", "count"]).stdout;
    log.lines().rev().find_map(|line| line.strip_prefix("count ")?.parse().ok()).unwrap_or(0)
}

/// The job goes on counting.
#[track_caller]
fn goes_on(env: &TestEnv) {
    env.run(&["job", "status", "count"]).exits(0).prints("RUNNING");
    let before = last_count(env);
    until("the job goes on", 30, || (last_count(env) > before).then_some(()));
}

/// Everything below a folder, by its path from `root`. A link is not followed.
fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let is_folder = entry.file_type().unwrap().is_dir();
        // The inside of the environment has tens of thousands of files, and is all allowed.
        if is_folder && !name.starts_with("home/.cache/gpucl/environments/ray-2.60.0-py3.") {
            walk(root, &entry.path(), found);
        }
        found.push(if is_folder { name + "/" } else { name });
    }
}

/// The run records, the shared environment, the owner, and the folders that they lie in.
fn is_allowed(path: &str) -> bool {
    const PATHS: &[&str] = &[
        "home/",
        "home/.cache/",
        "home/.cache/gpucl/",
        "home/.cache/gpucl/environments/",
        "home/.cache/gpucl/environments/.lock-ray-2.60.0",
        "home/.config/",
        "home/.config/gpucl/",
        "home/.config/gpucl/owner",
        "home/.local/",
        "home/.local/state/",
        "home/.local/state/gpucl/",
        "home/.local/state/gpucl/machine",
        "home/.local/state/gpucl/runs/",
        // Not ours alone: other programs of the user keep their data there.
        "home/.local/share/",
        "run/",
        // What this test wrote.
        "work/",
        "work/cluster.yaml",
        "work/job/",
        "work/job/count.py",
        "work/stop",
    ];
    let record = path.strip_prefix("home/.local/state/gpucl/runs/").is_some_and(|name| name.ends_with(".jsonl"));
    let environment = path.strip_prefix("home/.cache/gpucl/environments/ray-2.60.0-py3.");
    let environment = environment.is_some_and(|rest| rest.trim_end_matches('/').parse::<u8>().is_ok());
    PATHS.contains(&path) || record || environment
}
