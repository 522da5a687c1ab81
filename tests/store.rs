//! The object store of a cluster of processes: a real server, real clients, and real Ray.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{TestEnv, turn, until};

/// What boto3 and pyarrow do with the store.
const CLIENTS: &str = include_str!("store/clients.py");
/// What somebody without its keys and certificate tries at each of its ports.
const STRANGER: &str = include_str!("store/stranger.py");
/// A checkpoint of Ray Train at `s3://ray`.
const CHECKPOINT: &str = include_str!("store/checkpoint.py");

struct Store<'a> {
    env: &'a TestEnv,
    /// The folder of the host.
    home: PathBuf,
    port: u16,
}

impl Store<'_> {
    /// Runs one of the programs above with Ray's Python, in an environment that has the keys or not.
    fn python(&self, program: &str, with_keys: bool, more: &[&str]) -> String {
        let prepared = std::fs::read_to_string(self.home.join("prepared/prepare")).unwrap();
        let of = |name: &str| prepared.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let mut command = Command::new(format!("{}/bin/python", of("ray_env ")));
        command.args(["-c", program, &self.port.to_string()]).args(more).current_dir(self.env.work());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.env.home()).env("PYTHONPATH", boto3());
        if with_keys {
            command
                .env("AWS_SHARED_CREDENTIALS_FILE", self.home.join("secrets/aws_credentials"))
                .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port))
                .env("AWS_DEFAULT_REGION", "us-east-1");
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        print!("{said}");
        said
    }

    /// The pid of the store itself, below its reaper.
    fn pid(&self) -> Option<String> {
        let state = std::fs::read_to_string(self.home.join("run/objectstore")).ok()?;
        let reaper = state.split_whitespace().nth(1)?.to_owned();
        let path = format!("/proc/{reaper}/task/{reaper}/children");
        std::fs::read_to_string(path).ok()?.split_whitespace().next().map(str::to_owned)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let port = |name: &str| name.strip_suffix(".sock")?.rsplit('-').next()?.parse::<u16>().ok();
        let all = std::fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.path());
        let is_own = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("seaweedfs-") && port(&name).is_some_and(|port| (self.port..self.port + 8).contains(&port))
        };
        all.filter(is_own).collect()
    }
}

/// The folder with boto3, which is installed once.
fn boto3() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boto3");
    if !folder.join("boto3").is_dir() {
        let mut command = Command::new("python3");
        command
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-conflicts", "--target"])
            .arg(&folder);
        assert!(command.arg("boto3").status().unwrap().success());
    }
    folder
}

#[test]
#[ignore = "testbed"]
fn a_cluster_of_processes_has_a_real_object_store_that_is_closed_to_others() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write(
        "cluster.yaml",
        "name: objects\nprovider: local\ngpu: declared\nservices: {object_store: {buckets: [ray, data]}}\n\
         ray:\n  head: {object_store_memory: 80MiB}\n  \
         workers: {count: 1, cpus: 1, memory: 300MiB, object_store_memory: 80MiB}\n\
         timeouts: {start: 4m, ready: 4m}\n",
    );
    let up = env.run(&["up"]).exits(0);
    for bucket in ["ray", "data"] {
        let seen = format!("bucket           {bucket}");
        assert!(up.stderr.lines().any(|line| line.contains("passed") && line.contains(&seen)), "{}", up.stderr);
    }
    env.run(&["up"]).exits(0).prints("nothing was changed");
    let hosts = env.home().join(".local/share/gpucl/hosts");
    let home =
        std::fs::read_dir(hosts).unwrap().flatten().map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    let nodes: Value = serde_json::from_slice(&std::fs::read(home.join("nodes.json")).unwrap()).unwrap();
    let of = |node: &Value| (node["role"] == "service").then(|| node["answers"][0].as_u64()).flatten();
    let port = nodes["nodes"].as_array().unwrap().iter().find_map(of).unwrap();
    let store = Store { env: &env, home, port: port.try_into().unwrap() };

    store.python(CLIENTS, true, &[]);
    let refused = store.python(STRANGER, false, &[]);
    assert_eq!(refused.lines().filter(|line| line.starts_with("port ")).count(), 8, "{refused}");
    let sockets = store.sockets();
    assert!(!sockets.is_empty());
    for socket in &sockets {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(socket).unwrap().permissions().mode() & 0o077, 0, "{}", socket.display());
    }

    objects_are_copied_both_ways(&env);
    let keys = std::fs::read_to_string(store.home.join("secrets/aws_credentials")).unwrap();
    let secret = keys.lines().find_map(|line| line.strip_prefix("aws_secret_access_key = ")).unwrap();
    let command = std::fs::read(format!("/proc/{}/cmdline", store.pid().unwrap())).unwrap();
    assert!(!String::from_utf8_lossy(&command).contains(secret));
    let log = std::fs::read_to_string(store.home.join("logs/object-store.log")).unwrap();
    assert!(!log.contains(secret));

    env.write("checkpoint.py", CHECKPOINT);
    env.run(&["job", "submit", "--working-dir", ".", "--", "python", "checkpoint.py"]).exits(0).prints("checkpoint 3");

    // It is started again, with its data.
    let before = store.pid().unwrap();
    assert!(Command::new("kill").args(["-9", &before]).status().unwrap().success());
    until("the store is started again", 60, || {
        let pid = store.pid().filter(|pid| *pid != before)?;
        env.run(&["store", "ls", "s3://ray/kept"]).code.filter(|code| *code == 0).map(|_| pid)
    });
    env.run(&["store", "get", "s3://ray/kept", "kept"]).exits(0);
    assert_eq!(std::fs::read_to_string(env.work().join("kept")).unwrap(), "kept");
    // And after `stop`.
    env.run(&["stop"]).exits(0);
    assert!(store.sockets().is_empty());
    env.run(&["up"]).exits(0);
    env.run(&["store", "get", "s3://ray/kept", "kept"]).exits(0);

    env.run(&["down", "--yes"]).exits(0).prints("nothing of objects is left");
    assert!(!store.home.exists());
    assert!(store.sockets().is_empty());
    for port in store.port..store.port + 8 {
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "{port}");
    }
}

/// What `gpucl store` does.
fn objects_are_copied_both_ways(env: &TestEnv) {
    let read = |name: &str| std::fs::read(env.work().join(name)).unwrap();
    env.write("kept", "kept");
    env.run(&["store", "put", "kept", "s3://ray/kept"]).exits(0);
    let odd = "a b'\"\nc%2F+?#&=é.txt";
    env.write(&format!("tree/{odd}"), "odd");
    env.write("tree/sub/y", "1");
    env.write("tree/empty", "");
    let large: Vec<u8> = (0..40_000_000_u32).map(|number| (number ^ (number >> 9)) as u8).collect();
    std::fs::write(env.work().join("large"), &large).unwrap();
    env.run(&["store", "put", "tree", "large", "s3://data/in/"]).exits(0).says("copied: 4 files");
    let listed = env.run(&["store", "ls", "--recursive", "s3://data/in/", "--output", "json"]).exits(0).json();
    let mut keys: Vec<(&str, u64)> =
        listed.iter().map(|line| (line["key"].as_str().unwrap(), line["bytes"].as_u64().unwrap())).collect();
    keys.sort_unstable();
    let odd_key = format!("in/tree/{odd}");
    let mut wanted = [("in/large", 40_000_000), (odd_key.as_str(), 3), ("in/tree/empty", 0), ("in/tree/sub/y", 1)];
    wanted.sort_unstable();
    assert_eq!(keys, wanted);
    env.run(&["store", "ls"]).exits(0).is("s3://data/\ns3://ray/\n");

    // A download that was cut goes on: what it has is not read again.
    let part = {
        let mut get = env.command(&["store", "get", "s3://data/in/large", "back"]);
        let mut running = get.spawn().unwrap();
        let part = until("a part is there", 30, || {
            let parts = std::fs::read_dir(env.work()).unwrap().flatten();
            let part = parts.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(".gpucl-part-"))?;
            (std::fs::metadata(&part).ok()?.len() > 0).then_some(part)
        });
        running.kill().unwrap();
        running.wait().unwrap();
        part
    };
    // As if it had been cut there, with other bytes: they show that they were kept.
    if !part.exists() {
        std::fs::remove_file(env.work().join("back")).unwrap();
    }
    let mut bytes = large[..5_000_000].to_vec();
    bytes[0] ^= 1;
    std::fs::write(&part, &bytes).unwrap();
    env.run(&["store", "get", "s3://data/in/large", "back"]).exits(0).says("went on where an earlier download ended");
    let back = read("back");
    assert!(back[0] == large[0] ^ 1 && back[1..] == large[1..]);
    // A changed object is read from its beginning.
    std::fs::write(&part, &bytes).unwrap();
    env.run(&["store", "put", "kept", "s3://data/in/large"]).exits(0);
    env.run(&["store", "get", "s3://data/in/large", "back"]).exits(0);
    assert_eq!(read("back"), b"kept");
    assert!(!part.exists());

    env.run(&["store", "sync", "tree", "s3://data/in/tree"]).exits(0).says("3 unchanged");
    env.write("tree/sub/y", "12");
    std::fs::remove_file(env.work().join("tree/empty")).unwrap();
    let again = env.run(&["store", "sync", "tree", "s3://data/in/tree", "--delete"]).exits(0);
    assert!(again.stderr.contains("copied: 1 file, 2 B; 1 unchanged; 1 deleted"), "{}", again.stderr);
    env.write("other/stale", "stale");
    env.run(&["store", "sync", "s3://data/in/tree", "other", "--delete"]).exits(0).says("1 deleted");
    assert_eq!(read(&format!("other/{odd}")), b"odd");
    assert_eq!(read("other/sub/y"), b"12");
    assert!(!env.work().join("other/stale").exists());
    env.run(&["store", "sync", "s3://data/in/tree", "other"]).exits(0).says("2 unchanged");

    env.run(&["store", "rm", "s3://data/in/nothing"]).exits(6).says("the object does not exist");
    env.run(&["store", "rm", "--recursive", "s3://data/in"]).exits(0).says("deleted: 3 objects");
    env.run(&["store", "get", "s3://data/in/large", "back"]).exits(6);
    env.run(&["store", "ls", "s3://nowhere/"]).exits(6).says("NoSuchBucket");
}
