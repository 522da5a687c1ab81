//! Two clusters, whose names begin alike, and a Ray of somebody else on the default ports: none disturbs another.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::scan::{self, Tried};
use crate::support::{Served, TestEnv, alone, get, interrupt, nodes, ray_session, tagged_processes, until};

const SPEC: &str = "services: {mlflow: true}\nray:\n  workers: {count: 1, cpus: 1}\n";

/// A job that tries ports with what a job of its cluster has: the token, the key to applications, the login of MLflow.
const TRIES: &str = "\
import base64, hashlib, json, os, scan
with open(os.environ['RAY_AUTH_TOKEN_PATH']) as file:
    token = file.read().strip()
key = hashlib.sha256(f'key to applications of {token}'.encode()).hexdigest()
login = os.environ['MLFLOW_TRACKING_USERNAME'] + ':' + os.environ['MLFLOW_TRACKING_PASSWORD']
basic = base64.b64encode(login.encode()).decode()
with open('found.json') as file:
    found = json.load(file)
for headers in [('authorization', 'Bearer ' + token)], [('authorization', 'Basic ' + basic), ('x-gpucl-key', key)]:
    scan.HEADERS = headers
    scan.try_all(found)
";

/// A testbed's: it needs Ray's default ports for itself, and three Rays at once; `.ci/run` runs it.
#[test]
#[ignore = "testbed"]
fn two_clusters_and_a_foreign_ray_do_not_disturb_each_other() {
    let _turn = alone();
    let env = TestEnv::with_shared_ray();
    env.write("a.yaml", &format!("name: a\n{SPEC}"));
    env.write("a-b.yaml", &format!("name: a-b\n{SPEC}"));
    // The first of them makes the environment that the foreign Ray uses too.
    env.run(&["up", "a.yaml"]).exits(0).prints("ready: ");
    let foreign = ForeignRay::start(&env);
    env.run(&["up", "a-b.yaml"]).exits(0).prints("ready: ");

    let (a, a_b) = (nodes(&env, "a"), nodes(&env, "a-b"));
    // Two nodes, and MLflow.
    assert_eq!((a.len(), a_b.len()), (3, 3));
    env.run(&["verify", "-c", "a"]).exits(0);
    env.run(&["list"]).exits(0).prints("a-b ").prints("a.yaml");
    env.run(&["up", "a.yaml"]).exits(0).prints("nothing was changed");
    foreign.goes_on();

    // Which one is meant must be said.
    for verb in ["down", "status", "stop", "verify", "dashboard"] {
        env.run(&[verb, "--yes"]).exits(2).says("there are several: a (ready), a-b (ready)").says("name one: -c a");
    }
    assert_eq!((nodes(&env, "a"), nodes(&env, "a-b")), (a.clone(), a_b.clone()));

    every_page_is_reached_by_its_own_credential_only(&env);
    let served = a_job_gets_nothing_of_the_other_cluster(&env);

    let session = ray_session(&env, "a-b");
    env.run(&["down", "--yes", "-c", "a"]).exits(0).prints("nothing of a is left");
    assert!(nodes(&env, "a").is_empty());
    assert_eq!(nodes(&env, "a-b"), a_b, "`down -c a` touched a-b");
    env.run(&["verify", "-c", "a-b"]).exits(0).prints("ready: ");
    assert_eq!(served.ask(), (200, "answered".to_owned()));
    drop(served);
    assert_eq!(ray_session(&env, "a-b"), session);
    foreign.goes_on();

    // The only one left needs no name.
    env.run(&["down", "--yes"]).exits(0).prints("nothing of a-b is left");
    assert_eq!(tagged_processes(&env), []);
    foreign.goes_on();
    env.run(&["down", "--yes"]).exits(6).says("there are no clusters");
}

/// Every port of `a-b` is tried by a job of `a`. Returns the way to the application of `a-b`.
fn a_job_gets_nothing_of_the_other_cluster(env: &TestEnv) -> Served {
    let served = ["a", "a-b"].map(|cluster| {
        scan::serve(env, cluster);
        Served::open(env, cluster)
    });
    let [of_a, of_b] = &served;
    assert_ne!(of_a.key, of_b.key);
    for (one, other) in [(of_a, of_b), (of_b, of_a)] {
        assert_eq!((one.ask(), one.answer_to(&other.key).0), ((200, "answered".to_owned()), 401));
    }
    let ports = |cluster: &str| ports(env, cluster);
    let (own, theirs) = (ports("a"), ports("a-b"));
    let of = |ports: &[Value], name: &str| ports.iter().filter(|port| port["of"] == name).count();
    for name in ["MLflow", "proxy of Serve", "worker process", "dashboard agent", "raylet", "GCS"] {
        assert!(of(&theirs, name) > 0, "{name}: {theirs:?}");
    }
    // What shows that the credentials are good: what they open at home.
    let home = own.iter().filter(|port| port["of"] == "MLflow" || port["of"] == "proxy of Serve");
    let all: Vec<&Value> = home.chain(&theirs).collect();
    env.write("tries/found.json", &json!({"ports": all, "sockets": [], "files": []}).to_string());
    env.write("tries/scan.py", scan::SCAN);
    env.write("tries/job.py", TRIES);
    let job = ["job", "submit", "-c", "a", "--working-dir", "tries", "--", "python", "job.py"];
    let printed = env.run(&job).exits(0).stdout;
    // Ray has lines of its own there.
    let printed: Vec<&str> = printed.lines().filter(|line| line.starts_with('{')).collect();
    let tried = scan::results(&printed.join("\n"));
    scan::tell(&tried);

    let is_theirs = |one: &Tried| theirs.iter().any(|port| port["port"] == json!(one.port));
    let untried = all.iter().filter(|port| !tried.iter().any(|one| port["port"] == json!(one.port)));
    assert_eq!(untried.count(), 0);
    for (of, sent) in [
        ("proxy of Serve", "GET /app"),
        ("proxy of Serve", "gRPC /ray.rpc.CoreWorkerService/GetCoreWorkerStats"),
        ("MLflow", "GET /api/2.0/mlflow/experiments/get?experiment_id=0"),
    ] {
        let opened = |one: &&Tried| one.answers && !is_theirs(one) && one.of == of && one.sent == sent;
        assert!(tried.iter().any(|one| opened(&one)), "{sent} is refused at home");
    }
    let listed = scan::listed();
    // MLflow looks for a user and a password in whatever `Authorization` says, and fails over a token.
    let fails = |one: &Tried| one.of == "MLflow" && one.came.starts_with("HTTP/1.1 500 ");
    let is_more = |one: &&Tried| one.answers && is_theirs(one) && !listed.contains(&one.named()) && !fails(one);
    let open: Vec<&Tried> = tried.iter().filter(is_more).collect();
    assert!(open.is_empty(), "these answer a job of the other cluster: {open:#?}");
    let [_, of_b] = served;
    of_b
}

/// The ports of the processes of a cluster.
fn ports(env: &TestEnv, cluster: &str) -> Vec<Value> {
    let hosts = std::fs::read_dir(env.home().join(".local/share/gpucl/hosts")).unwrap().flatten();
    let ends = format!("-{cluster}-host0");
    // The owner has no hyphen.
    let is_its = |name: &str| name.strip_suffix(&ends).is_some_and(|rest| rest.matches('-').count() == 1);
    let folder = hosts.map(|entry| entry.path()).find(|path| is_its(path.file_name().unwrap().to_str().unwrap()));
    let mut found = scan::found(&folder.unwrap(), &[]);
    serde_json::from_value(found["ports"].take()).unwrap()
}

/// The dashboard's portal: each address answers with its key and refuses without, and is another one at the next call.
fn every_page_is_reached_by_its_own_credential_only(env: &TestEnv) {
    let first = Dashboard::open(env, "a");
    let other = Dashboard::open(env, "a-b");
    for dashboard in [&first, &other] {
        let (address, key) = dashboard.url.split_once("/?gpucl_key=").unwrap();
        let random = address.split('.').nth(1).unwrap();
        let cookie = |key: &str| format!("gpucl_{random}_dashboard={key}");
        // The link gives the browser a cookie, and the cookie opens the page.
        assert_eq!(get(&dashboard.url, &[]).unwrap().0, 303);
        let (status, page) = get(address, &[("Cookie", &cookie(key))]).unwrap();
        assert_eq!(status, 200);
        assert!(page.contains("<title>Ray Dashboard</title>"), "{page}");
        let nodes = format!("{address}/nodes?view=summary");
        assert_eq!(get(&nodes, &[("Cookie", &cookie(key))]).unwrap().0, 200);
        // Without it, with a wrong one, and with that of the other cluster: refused.
        assert_eq!(get(&nodes, &[]).unwrap().0, 401);
        assert_eq!(get(&nodes, &[("Cookie", &cookie("0000000000000000"))]).unwrap().0, 401);
        let stranger = if dashboard.url == first.url { &other } else { &first };
        let stranger_key = stranger.url.rsplit('=').next().unwrap();
        assert_eq!(get(&nodes, &[("Cookie", &cookie(stranger_key))]).unwrap().0, 401);
        // Without a name programs are answered, by the cluster's token alone.
        let bare = format!("http://{}/api/version", dashboard.bare());
        let token = std::fs::read_to_string(
            env.home().join(format!(".local/state/gpucl/clusters/{}/secrets/ray_token", dashboard.cluster)),
        );
        let token = format!("Bearer {}", token.unwrap().trim());
        assert_eq!(get(&bare, &[("Authorization", &token)]).unwrap().0, 200);
        assert_eq!(get(&bare, &[("Cookie", &cookie(key))]).unwrap().0, 401);
        let file = format!(".local/state/gpucl/clusters/{}/portal.json", dashboard.cluster);
        assert!(!env.home().join(file).exists(), "the key is kept on the disk");
    }
    let old = first.url.clone();
    assert_ne!(old, other.url);
    let port = first.bare().rsplit(':').next().unwrap().to_owned();
    first.close();
    other.close();
    let again = Dashboard::open_with(env, "a", &["--port", &port]);
    assert_eq!(again.bare(), format!("127.0.0.1:{port}"));
    assert_ne!(again.url, old, "the address is the same at the next call");
    assert_eq!(get(&old, &[]).unwrap().0, 421, "the old address opens the new run");
    again.close();
}

/// A running `gpucl dashboard`.
struct Dashboard {
    child: Child,
    cluster: String,
    url: String,
}

impl Dashboard {
    fn open(env: &TestEnv, cluster: &str) -> Self {
        Self::open_with(env, cluster, &[])
    }

    fn open_with(env: &TestEnv, cluster: &str, more: &[&str]) -> Self {
        let mut command = env.command(&[&["dashboard", "--no-open", "-c", cluster], more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().last().unwrap_or_default().to_owned();
        assert!(line.starts_with("dashboard ") && url.starts_with("http://dashboard."), "{line}");
        Self { child, cluster: cluster.to_owned(), url }
    }

    /// Where it listens.
    fn bare(&self) -> String {
        format!("127.0.0.1:{}", self.url.split(':').nth(2).unwrap().split('/').next().unwrap())
    }

    /// Ctrl-C; then nobody listens.
    fn close(mut self) {
        interrupt(&self.child);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("no listener is left"), "{said}");
        let port: u16 = self.bare().rsplit(':').next().unwrap().parse().unwrap();
        for loopback in ["127.0.0.1", "::1"] {
            assert!(TcpStream::connect((loopback, port)).is_err(), "port {port} of {loopback} still answers");
        }
    }
}

/// What a user may have running beside us: a Ray on its default ports, without a token.
struct ForeignRay {
    child: Child,
    version: String,
}

impl ForeignRay {
    const VERSION: &str = "http://127.0.0.1:8265/api/version";

    fn start(env: &TestEnv) -> Self {
        for port in [6379, 8265, 10001] {
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "this test needs port {port}, which is in use");
        }
        let found = env.run(&["exec", "-c", "a", "--", "sh", "-c", "command -v ray"]).exits(0).stdout;
        let folder = env.root().join("f");
        let child = Command::new(found.trim())
            .args(["start", "--head", "--block", "--port", "6379", "--num-cpus", "1", "--disable-usage-stats"])
            .args(["--object-store-memory", "100000000", "--temp-dir"])
            .arg(&folder)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", env.root())
            // On the loopback only: a test opens nothing to the network.
            .env("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            .arg("--node-ip-address=127.0.0.1")
            // All of it in one group, so that it can be ended as one.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut this = Self { child, version: String::new() };
        this.version = until("the foreign Ray answers", 60, || {
            assert_eq!(this.child.try_wait().unwrap(), None, "the foreign Ray ended");
            get(Self::VERSION, &[]).ok().filter(|(status, _)| *status == 200).map(|(_, body)| body)
        });
        assert!(this.version.contains("session_name"), "{}", this.version);
        this
    }

    /// The same Ray still answers, and has no node but its own.
    #[track_caller]
    fn goes_on(&self) {
        assert_eq!(get(Self::VERSION, &[]).unwrap(), (200, self.version.clone()));
        let (status, body) = get("http://127.0.0.1:8265/nodes?view=summary", &[]).unwrap();
        assert_eq!((status, body.matches("\"raylet\":").count()), (200, 1), "{body}");
    }
}

impl Drop for ForeignRay {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        let _ = rustix::process::kill_process(group, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}
