//! The view of another user of the same machine while all of gpucl runs: every port, every socket and every file of
//! ours is tried as that user. It takes root, since it becomes somebody else; the owner is root here and has no more
//! than an owner has.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpucl::sandbox::CONTROL_HEADER;
use serde_json::{Value, json};

use crate::support::scan::{self, Tried};
use crate::support::{TestEnv, alone, ask, interrupt, until};

/// `nobody`, who has no file and no process here.
const STRANGER: &str = "65534";
/// The ports of the two tests' hosts: nobody else of the tests has them.
const SSH_PORTS: [&str; 2] = ["2296", "2297"];
/// A command of another user, without our open files and our environment.
fn as_a_stranger(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups", "--no-new-privs", program]);
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/").stdin(Stdio::null());
    command
}

/// Something of gpucl that runs until it is ended.
struct Running(Child);

impl Running {
    /// Started by somebody whose umask keeps nothing from others; the first line that it prints comes with it.
    fn start(env: &TestEnv, arguments: &[&str]) -> (Self, Value) {
        let mut command = env.unmasked(&[arguments, &["--output", "json"]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let printed = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {line}"));
        (Self(child), printed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        interrupt(&self.0);
        let _ = self.0.wait();
    }
}

fn secret_of(printed: &Value) -> String {
    let header = std::fs::read_to_string(printed["control_file"].as_str().unwrap()).unwrap();
    header.trim().strip_prefix(&format!("{CONTROL_HEADER}: ")).unwrap().to_owned()
}

/// A stand-in of Lambda and its user.
struct Cloud {
    url: String,
    key: String,
    control: String,
    secret: String,
    folder: PathBuf,
    ssh_port: &'static str,
    running: Running,
}

impl Cloud {
    fn start(env: &TestEnv, ssh_port: &'static str) -> Self {
        let (running, printed) = Running::start(env, &["sandbox", "lambda", "--ssh-port", ssh_port]);
        let exports = std::fs::read_to_string(printed["env_file"].as_str().unwrap()).unwrap();
        let key = exports.split("LAMBDA_API_KEY='").nth(1).unwrap().split('\'').next().unwrap().to_owned();
        let url = printed["variables"]["LAMBDA_API_URL"].as_str().unwrap().to_owned();
        let control = printed["control"].as_str().unwrap().to_owned();
        let folder = env.root().join("keys");
        std::fs::create_dir(&folder).unwrap();
        Self { url, key, control, secret: secret_of(&printed), folder, ssh_port, running }
    }

    /// A pair of keys of this user; returns its private file and its public key.
    fn pair(&self, name: &str) -> (PathBuf, String) {
        let file = self.folder.join(name);
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file).status();
        assert!(made.unwrap().success());
        let public = std::fs::read_to_string(file.with_extension("pub")).unwrap().trim().to_owned();
        (file, public)
    }

    /// Asked as its user, as slowly as Lambda wants it.
    fn post(&self, path: &str, body: &Value) -> Value {
        std::thread::sleep(Duration::from_millis(1100));
        let authorization = format!("Bearer {}", self.key);
        let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
        let (status, reply) = ask("POST", &format!("{}/api/v1{path}", self.url), &headers, &body.to_string()).unwrap();
        assert_eq!(status, 200, "{path}: {reply}");
        serde_json::from_str(&reply).unwrap()
    }

    /// An instance that takes this key; returns where it is once it is there.
    fn instance(&self, public: &str) -> String {
        self.post("/ssh-keys", &json!({"name": "ours", "public_key": public}));
        let launch = json!({"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["ours"]});
        self.post("/instance-operations/launch", &launch);
        until("the instance is there", 60, || {
            let url = format!("{}/instances", self.control);
            let (_, reply) = ask("GET", &url, &[(CONTROL_HEADER, &self.secret)], "").unwrap();
            let reply: Value = serde_json::from_str(&reply).unwrap();
            reply[0]["is_wired"].as_bool().unwrap_or(false).then_some(())
        });
        // The first address that was free: it is looked for, as another user would look.
        let address = (2..=254)
            .map(|last| format!("127.0.0.{last}"))
            .find(|address| std::net::TcpStream::connect((address.as_str(), self.ssh_port.parse().unwrap())).is_ok());
        address.unwrap()
    }
}

const SSH: [&str; 10] = [
    "-F",
    "none",
    "-o",
    "BatchMode=yes",
    "-o",
    "StrictHostKeyChecking=no",
    "-o",
    "UserKnownHostsFile=/dev/null",
    "-o",
    "IdentitiesOnly=yes",
];

/// A user of the machine without a key of the stand-in gets no shell: neither by registering a key nor by obtaining
/// one.
#[test]
#[ignore = "testbed"]
fn a_stand_in_host_admits_only_holders_of_its_keys() {
    let env = TestEnv::new();
    open_to_all(&env);
    let cloud = Cloud::start(&env, SSH_PORTS[0]);
    let (file, public) = cloud.pair("ours");
    let address = cloud.instance(&public);
    let shell = |command: &mut Command, file: &Path, user: &str| {
        let done = command
            .args(SSH)
            .args(["-p", cloud.ssh_port, "-i"])
            .arg(file)
            .arg(format!("{user}@{address}"))
            .arg("id -u")
            .output()
            .unwrap();
        (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
    };
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let (inside, said) = shell(&mut Command::new("ssh"), &file, &user);
    assert!(inside, "who launched it gets in, or this shows nothing: {said}");

    // The stranger's own key, in a folder of the stranger's.
    let theirs = tempfile::Builder::new().prefix("gt-").tempdir().unwrap();
    let (made, their_public) = cloud.pair("theirs");
    let their_file = theirs.path().join("key");
    std::fs::copy(made, &their_file).unwrap();
    for path in [theirs.path(), &their_file] {
        let id = STRANGER.parse().unwrap();
        std::os::unix::fs::chown(path, Some(id), Some(id)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(if path.is_dir() { 0o700 } else { 0o600 }))
            .unwrap();
    }
    let sent = |headers: &[(&str, &str)], path: &str, body: &Value| {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        let (status, reply) = ask("POST", &format!("{}{path}", cloud.url), &headers, &body.to_string()).unwrap();
        println!("POST {path} {headers:?} -> {status} {}", reply.trim());
        assert!((400..500).contains(&status), "{path}: {status} {reply}");
        assert!(!reply.contains("secret_"), "{reply}");
    };
    let register = json!({"name": "theirs", "public_key": their_public});
    let launch = json!({"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["ours"],
        "user_data": format!("#cloud-config\nssh_authorized_keys: [{their_public}]\n")});
    for headers in [&[][..], &[("authorization", "Bearer secret_alice_0.0")], &[("host", "evil.example")]] {
        sent(headers, "/api/v1/ssh-keys", &register);
        sent(headers, "/api/v1/instance-operations/launch", &launch);
        sent(headers, "/control/keys", &json!({}));
        sent(headers, "/control/instances/one", &json!({"ip": "127.0.0.1"}));
    }
    for name in ["root", "nobody", &user] {
        let (inside, said) = shell(as_a_stranger("ssh").env("HOME", theirs.path()), &their_file, name);
        println!("ssh {name}@{address} as user {STRANGER} -> {}", said.trim().replace('\n', " | "));
        assert!(!inside, "{name}: {said}");
        // It was asked and refused; what fails before shows nothing.
        assert!(said.contains("Permission denied (publickey)"), "{name}: {said}");
        let (inside, said) = shell(as_a_stranger("ssh").env("HOME", theirs.path()), &file, name);
        assert!(!inside, "the owner's key can be used by another user: {said}");
    }
}

#[test]
fn the_list_of_answering_services_can_be_parsed() {
    let listed = scan::listed();
    assert!(listed.len() > 5, "{listed:?}");
    assert!(listed.iter().all(|(of, _)| !of.is_empty()), "{listed:?}");
}

/// Folders as they are on a machine whose users may look at each other's homes: what is kept from others, gpucl keeps.
fn open_to_all(env: &TestEnv) {
    for folder in [env.root().to_owned(), env.home(), env.work(), env.root().join("run")] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// What is there of ours, as the owner finds it.
fn found(env: &TestEnv, begun: &[&Running]) -> Value {
    scan::found(env.root(), &begun.iter().map(|running| running.0.id()).collect::<Vec<_>>())
}

/// All of it, tried as another user.
fn tried(found: &Value) -> Vec<Tried> {
    let mut scan = as_a_stranger(scan::PYTHON);
    scan.args(["-c", scan::SCAN, "try"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut scan = scan.spawn().unwrap();
    scan.stdin.take().unwrap().write_all(found.to_string().as_bytes()).unwrap();
    let output = scan.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    scan::results(&String::from_utf8(output.stdout).unwrap())
}

/// With all of gpucl running, another user of the machine tries everything.
#[test]
#[ignore = "testbed"]
fn another_user_of_the_machine_is_refused_by_every_service() {
    let _turn = alone();
    let env = TestEnv::with_shared_ray();
    open_to_all(&env);
    let cloud = Cloud::start(&env, SSH_PORTS[1]);
    let (_, public) = cloud.pair("ours");
    let _ = cloud.instance(&public);
    let (site, _) = Running::start(&env, &["sandbox", "chameleon"]);
    env.write("cluster.yaml", "name: t\nservices: {object_store: true, mlflow: true}\nray: {workers: {count: 1}}\n");
    let up = env.unmasked(&["up", "--yes"]).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let job = "import ray, time; ray.init(); ray.get(ray.remote(lambda: time.sleep(600)).remote())";
    env.run(&["job", "submit", "--no-wait", "--", "python", "-c", job]).exits(0);
    scan::serve(&env, "t");
    let (portal, _) = Running::start(&env, &["dashboard", "--no-open"]);
    let begun = [&site, &portal, &cloud.running];
    let found = until("the job's processes have their ports", 60, || {
        let found = found(&env, &begun);
        let of = |name: &str| found["ports"].as_array().unwrap().iter().filter(|port| port["of"] == name).count();
        (of("worker process") > 0 && of("job") > 0).then_some(found)
    });
    let processes = found["processes"].to_string();
    for name in [
        "gpucl sandbox lambda",
        "gpucl sandbox chameleon",
        "supervisor",
        "gpucl dashboard",
        "host of a stand-in",
        "GCS",
        "raylet",
        "object store",
        "MLflow",
        "proxy of Serve",
    ] {
        assert!(processes.contains(name), "{name} does not run: {processes}");
    }
    let mut found = found;
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache/gpucl");
    let environments = [json!(cache), json!(format!("{cache}/environments"))];
    found["files"].as_array_mut().unwrap().extend(environments);
    assert!(found["files"].to_string().contains("/gpucl-hosts-"), "the files of the instance are among them");
    assert!(found["files"].as_array().unwrap().len() > 100, "{}", found["files"]);
    let ports = found["ports"].as_array().unwrap();
    assert!(ports.len() > 12, "{ports:?}");
    assert!(found["sockets"].to_string().contains("plasma_store"), "{}", found["sockets"]);

    let tried = tried(&found);
    scan::tell(&tried);
    assert!(tried.iter().any(|one| one.what == "who" && one.came.starts_with(STRANGER)));
    let untried = ports.iter().filter(|port| !tried.iter().any(|one| one.port.map(u64::from) == port["port"].as_u64()));
    assert_eq!(untried.count(), 0);
    let (listed, own) = (scan::listed(), own_folders(&env));
    let open: Vec<&Tried> = tried
        .iter()
        .filter(|one| one.answers && !listed.contains(&one.named()) && !own.contains(&PathBuf::from(&one.sent)))
        .collect();
    assert!(open.is_empty(), "these answer, and the threat model does not list them: {open:#?}");
    let answered: BTreeSet<(String, String)> = tried.iter().filter(|one| one.answers).map(Tried::named).collect();
    let stale: Vec<_> = listed.difference(&answered).collect();
    assert!(stale.is_empty(), "the threat model lists what does not answer: {stale:?}");
}

/// What this test has made itself, as a user would have: it is open, so that what is in it has to keep itself.
fn own_folders(env: &TestEnv) -> BTreeSet<PathBuf> {
    let root = env.root();
    let own = ["", "home", "work", "run", "keys", "keys/ours.pub", "work/cluster.yaml", "work/app", "work/app/app.py"];
    own.iter().map(|path| root.join(path).components().collect()).collect()
}
