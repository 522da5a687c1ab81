//! The runtime `native` on a host that is reached by SSH: a real `sshd` of this user with a home of its own, and real
//! Ray.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use gpucl::sandbox::hosts::{Config, LocalHosts, NewHost};

use crate::support::{
    Hidden, TestEnv, checks_pass_beside_a_job_that_holds_all_gpus, short_folders, tagged_processes, turn, until,
};

/// Nobody else of the tests has it.
const PORT: u16 = 2294;

struct Host {
    runtime: tokio::runtime::Runtime,
    hosts: LocalHosts,
    home: PathBuf,
    key: PathBuf,
    node: String,
}

impl Host {
    /// Its login prints whatever its start-up files print, as many do.
    fn new(env: &TestEnv) -> Self {
        let key = env.root().join("key");
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
        assert!(made.unwrap().success());
        let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache").to_owned();
        // Package indexes are configured by the machine.
        let passes = |name: &str| name.starts_with("PIP_") || name.starts_with("UV_");
        let environment = std::env::vars().filter(|(name, _)| passes(name));
        let folder = env.root().join("hosts");
        // The owner of the host chooses its programs.
        let path = format!("{}/one/home/bin:{}", folder.display(), std::env::var("PATH").unwrap());
        let environment =
            environment.chain([("XDG_CACHE_HOME".to_owned(), cache), ("PATH".to_owned(), path)]).collect();
        let hosts = LocalHosts::new(Config { folder: folder.clone(), port: PORT, environment }).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let public = std::fs::read_to_string(key.with_extension("pub")).unwrap().trim().to_owned();
        let new = NewHost { id: "one".to_owned(), public_keys: vec![public], ..NewHost::default() };
        let address = runtime.block_on(hosts.boot(&new)).unwrap();
        let home = folder.join("one/home");
        let greeting = "echo Welcome to gpu1!; printf 'no end of a line'; echo of errors >&2; false\n";
        std::fs::write(home.join(".bashrc"), greeting).unwrap();
        Self { runtime, hosts, home, key, node: address.ip().to_string() }
    }

    fn spec(&self, cpus: u32) -> String {
        format!(
            "gpu: declared\n{}workers: {{count: 1, cpus: {cpus}, gpus: 1, memory: 300MiB, object_store_memory: 80MiB}}\n",
            self.spec_without_workers()
        )
    }

    fn spec_without_workers(&self) -> String {
        format!(
            "name: bare\nprovider: ssh\nruntime: native\ntimeouts: {{start: 4m, ready: 4m}}\n\
             hosts:\n  - {{node: {}, port: {PORT}, identity_file: {}}}\n\
             ray:\n  head: {{object_store_memory: 80MiB}}\n  ",
            self.node,
            self.key.display()
        )
    }

    /// What the supervisor says of a node: its state, process, and how often it was started again.
    fn describe(&self, key: &str) -> Option<(String, String, u32)> {
        let folder = std::fs::read_dir(self.home.join(".gpucl")).ok()?.flatten().find(|entry| entry.path().is_dir())?;
        let line = std::fs::read_to_string(folder.path().join("run").join(key)).ok()?;
        let words: Vec<&str> = line.split_whitespace().collect();
        Some((words[0].to_owned(), words[1].to_owned(), words[4].parse().ok()?))
    }

    fn process(&self, key: &str) -> String {
        self.describe(key).unwrap().1
    }

    fn kill(&self, key: &str) {
        assert!(Command::new("kill").args(["-9", &self.process(key)]).status().unwrap().success());
    }
}

/// An archive of files with these names, whatever they are.
fn archive(names: &[&str]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for name in names {
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        header.set_mode(0o644);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, &b"evil\n"[..]).unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
#[ignore = "testbed"]
fn a_host_without_root_goes_from_nothing_to_nothing() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let host = Host::new(&env);
    env.write("cluster.yaml", &host.spec(1));

    let up = env.run(&["up"]);
    assert_eq!(up.code, Some(0), "{}{}", up.stdout, up.stderr);
    for seen in [
        "closed ports",
        "token enforced   dashboard",
        "token enforced   gRPC",
        "node alive       worker-0",
        "task ran         worker-0",
    ] {
        assert!(up.stderr.lines().any(|line| line.contains("passed") && line.contains(seen)), "{seen}\n{}", up.stderr);
    }
    assert!(!up.stderr.contains("sudo"));
    let again = env.run(&["up"]);
    assert!(again.stdout.contains("nothing was changed"), "{}", again.stdout);

    // Everything is in the host's home, except for the short link into it.
    assert!(!env.home().join(".gpucl").exists());
    assert_eq!(short_folders(&host.home).len(), 1);
    let logs = env.run(&["logs", "worker-0", "-n", "1"]);
    assert_eq!((logs.code, logs.stdout.lines().count()), (Some(0), 1), "{}{}", logs.stdout, logs.stderr);

    // A compromised host may send anything, but only the requested file is written here.
    let tar = host.home.join("bin/tar");
    std::fs::create_dir(host.home.join("bin")).unwrap();
    std::fs::write(&tar, format!("#!/bin/sh\nexec cat {}\n", host.home.join("stream").display())).unwrap();
    std::fs::set_permissions(&tar, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(host.home.join("stream"), archive(&["results.txt", ".bashrc"])).unwrap();
    let folders = std::fs::read_dir(host.home.join(".gpucl")).unwrap().flatten();
    let data = folders.map(|entry| entry.path().join("data")).find(|path| path.is_dir()).unwrap();
    std::fs::write(data.join("results.txt"), "x").unwrap();
    let copy = env.run(&["cp", "head:results.txt", "."]);
    let written = |name: &str| env.work().join(name).exists();
    assert!(!written(".bashrc"), "{}{}", copy.stdout, copy.stderr);
    assert_eq!(copy.code, Some(1), "{}{}", copy.stdout, copy.stderr);
    std::fs::remove_dir_all(host.home.join("bin")).unwrap();
    let copy = env.run(&["cp", "head:results.txt", "."]);
    assert_eq!((copy.code, written("results.txt")), (Some(0), true), "{}{}", copy.stdout, copy.stderr);
    let sent = env.run(&["cp", "results.txt", "head:sets/a/"]);
    assert_eq!((sent.code, data.join("sets/a/results.txt").is_file()), (Some(0), true), "{}", sent.stderr);
    let home = env.run(&["cp", "results.txt", "head:~/mine.txt"]);
    assert_eq!((home.code, host.home.join("mine.txt").is_file()), (Some(0), true), "{}", home.stderr);
    let shown = env.run(&["exec", "--", "sh", "-c", "ls $GPUCL_DATA"]);
    assert_eq!(shown.stdout, "results.txt\nsets\n", "{}", shown.stderr);

    // A worker that ends is started again by the supervisor, with no command of ours. What a task hid there ends with
    // it.
    let hidden = Hidden::by_a_task(&env, "bare", "task");
    let head = host.process("head");
    host.kill("worker0");
    until("the worker runs again", 60, || {
        host.describe("worker0").filter(|(state, _, restarts)| state == "running" && *restarts == 1)
    });

    assert_eq!(hidden.running(), [0; 0], "what a task has hidden survived its worker");

    // The supervisor may die: this is reported, and the next one adopts the running nodes. Only changed nodes are
    // restarted.
    host.kill("supervisor");
    let status = env.run(&["status"]);
    assert!(
        status.stdout.lines().any(|line| line.contains("supervisor") && line.contains("exited")),
        "{}",
        status.stdout
    );
    let worker = host.process("worker0");
    env.write("cluster.yaml", &host.spec(2));
    let up = env.run(&["up"]);
    assert_eq!(up.code, Some(0), "{}{}", up.stdout, up.stderr);
    assert_eq!(host.process("head"), head, "the head was started anew for a change of its worker");
    assert_ne!(host.process("worker0"), worker);
    assert!(up.stderr.contains("ALIVE with 2 CPU"), "{}", up.stderr);

    let hidden = Hidden::by_a_job(&env, "bare", "hides");
    let stop = env.run(&["stop"]);
    assert_eq!(stop.code, Some(0), "{}{}", stop.stdout, stop.stderr);
    assert_eq!(tagged_processes(&env), []);
    assert_eq!(hidden.running(), [0; 0], "what a job has hidden survived `stop`");
    let begun = std::time::Instant::now();
    let verify = env.run(&["verify"]);
    assert_ne!(verify.code, Some(0));
    assert!(verify.stderr.contains("not asked, as these do not run: head worker0"), "{}", verify.stderr);
    assert!(begun.elapsed().as_secs() < 60, "what does not run was waited for");

    // The host's cluster is found even when the local state is lost.
    std::fs::remove_dir_all(env.home().join(".local/state/gpucl/clusters/bare")).unwrap();
    let down = env.run(&["down", "--yes", "-c", "bare"]);
    assert_eq!(down.code, Some(0), "{}{}", down.stdout, down.stderr);
    assert!(!host.home.join(".gpucl").exists());
    assert_eq!(short_folders(&host.home), Vec::<PathBuf>::new());
    host.runtime.block_on(host.hosts.end_all()).unwrap();
}

#[test]
#[ignore = "by hand: just real-gpus"]
fn real_gpus_of_a_host_without_root() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let host = Host::new(&env);
    let workers = "workers: {per: gpu, cpus: 1, memory: 300MiB, object_store_memory: 80MiB}\n";
    env.write("cluster.yaml", &format!("{}{workers}", host.spec_without_workers()));
    let up = env.run(&["up"]).exits(0);
    println!("{}{}", up.stderr, up.stdout);
    assert!(up.stderr.lines().any(|line| line.contains("passed") && line.contains("gpu ") && line.contains("GPU-")));
    checks_pass_beside_a_job_that_holds_all_gpus(&env, "bare");
    env.run(&["down", "--yes"]).exits(0).prints("nothing of bare is left");
    assert_eq!(tagged_processes(&env), []);
    host.runtime.block_on(host.hosts.end_all()).unwrap();
}
