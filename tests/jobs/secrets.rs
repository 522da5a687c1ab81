//! The secrets of a job on hosts that are reached by SSH: a real `sshd` of this user, and a stand-in of Ray.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use gpucl::name::{ClusterName, Key, Scope};
use gpucl::sandbox::hosts::{Config, LocalHosts, NewHost};
use gpucl::state::{HostNotes, HostPorts, ItemKind, Notes, ProjectNotes, Record, Store};
use serde_json::{Value, json};

use crate::support::TestEnv;

/// Nobody else of the tests has it.
const PORT: u16 = 2297;

/// A stand-in of Ray whose only job ends at once; returns its port.
fn ray() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut jobs = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut bytes = vec![0; 64 * 1024];
            let mut length = 0;
            let is_whole =
                |text: &[u8]| text.ends_with(b"}") || text.starts_with(b"GET ") && text.ends_with(b"\r\n\r\n");
            while !is_whole(&bytes[..length]) {
                match stream.read(&mut bytes[length..]) {
                    Ok(more @ 1..) => length += more,
                    _ => break,
                }
            }
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
            let answer = match head.split(' ').nth(1).unwrap_or_default() {
                _ if head.starts_with("POST ") => {
                    let request: Value = serde_json::from_str(body).unwrap();
                    jobs.push(json!({"type": "SUBMISSION", "submission_id": request["submission_id"], "job_id": null,
                        "status": "SUCCEEDED", "entrypoint": "true", "metadata": {}, "driver_exit_code": 0}));
                    json!({"submission_id": request["submission_id"], "job_id": request["submission_id"]})
                }
                path if path.trim_end_matches('/') == "/api/jobs" => json!(jobs),
                _ => jobs.last().cloned().unwrap_or_default(),
            };
            let answer = answer.to_string();
            let length = answer.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
            );
        }
    });
    port
}

/// Records a cluster that runs on these hosts.
fn record(env: &TestEnv, hosts: &[Value], dashboard: u16) {
    let cluster: ClusterName = "x".parse().unwrap();
    let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: cluster.clone() };
    let mut store = Store::create(&env.paths(), &scope, jiff::Timestamp::now()).unwrap();
    let spec = json!({"name": "x", "provider": "ssh", "runtime": "native"});
    store.write(Record::SpecTaken { spec: serde_json::from_value(spec).unwrap(), path: None }).unwrap();
    for (number, target) in hosts.iter().enumerate() {
        let place = serde_json::from_value(json!({"ssh": {"target": target}})).unwrap();
        let ports = HostPorts { dashboard, ..HostPorts::default() };
        let host = HostNotes { place: Some(place), ports: Some(ports), ..HostNotes::default() };
        let pages = [("dashboard".to_owned(), 8265), ("client".to_owned(), 10001)].into();
        let project = ProjectNotes { pages: (number == 0).then_some(pages), ..ProjectNotes::default() };
        for (key, kind, notes) in [
            (Key::host(number), ItemKind::Resource("host".to_owned()), Notes::Host(Box::new(host))),
            (Key::project(number), ItemKind::Project, Notes::Project(Box::new(project))),
        ] {
            store.write(Record::Requested { key: key.clone(), kind, digest: "1".to_owned() }).unwrap();
            store.write(Record::Exists { key: key.clone(), id: number.to_string() }).unwrap();
            store.write(Record::Noted { key, notes }).unwrap();
        }
    }
    store.compact().unwrap();
    let secrets = env.paths().cluster(&cluster).join("secrets");
    std::fs::create_dir_all(&secrets).unwrap();
    std::fs::set_permissions(&secrets, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(secrets.join("ray_token"), "token").unwrap();
    std::fs::set_permissions(secrets.join("ray_token"), PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
#[ignore = "testbed"]
fn a_job_with_secrets_connects_once_to_each_host() {
    let mut env = TestEnv::new();
    let key = env.root().join("key");
    assert!(
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap().success()
    );
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap().trim().to_owned();
    let folder = env.root().join("hosts");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let hosts = LocalHosts::new(Config { folder, port: PORT, environment: Vec::new() }).unwrap();
    let targets = ["one", "two"].map(|id| {
        let new = NewHost { id: id.to_owned(), public_keys: vec![public.clone()], ..NewHost::default() };
        let address = runtime.block_on(hosts.boot(&new)).unwrap();
        json!({"node": address.ip().to_string(), "port": PORT, "identity_file": key})
    });
    record(&env, &targets, ray());
    // Each connection is a master of its own.
    let bin = env.root().join("bin");
    let log = env.root().join("connections");
    std::fs::create_dir(&bin).unwrap();
    let ssh = format!(
        "#!/bin/sh\ncase \" $* \" in *' -M '*) for last; do :; done; echo \"$last\" >>{} ;; esac\nexec /usr/bin/ssh \"$@\"\n",
        log.display()
    );
    std::fs::write(bin.join("ssh"), ssh).unwrap();
    std::fs::set_permissions(bin.join("ssh"), PermissionsExt::from_mode(0o755)).unwrap();
    env.set("PATH", &format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let _ = env.run(&["exec", "--", "sh", "-c", "mkdir -p \"$GPUCL_DATA\""]).exits(0);
    let mut set = env.command(&["secret", "set", "MY_TOKEN"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    set.stdin.take().unwrap().write_all(b"value\n").unwrap();
    assert!(set.wait().unwrap().success());
    let submit = ["job", "submit", "--secret", "MY_TOKEN", "--no-wait", "--", "true"];
    let _ = env.run(&submit).exits(0);
    std::fs::remove_file(&log).unwrap();
    // It also removes what the first one had.
    let _ = env.run(&submit).exits(0);
    let connections = std::fs::read_to_string(&log).unwrap();
    let mut connections: Vec<&str> = connections.lines().collect();
    connections.sort_unstable();
    assert_eq!(connections, ["host-0", "host-1"]);
    let left = "ls \"$GPUCL_DATA/.gpucl-secrets\" | wc -l";
    let _ = env.run(&["exec", "--", "sh", "-c", left]).exits(0).prints("host-0 | 1\n").prints("host-1 | 1\n");
    runtime.block_on(hosts.end_all()).unwrap();
}
