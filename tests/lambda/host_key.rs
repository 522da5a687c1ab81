//! The host key from the user data serves for the first connection alone: `up` is killed at every step of its
//! replacement, on hosts that are a real `sshd` each.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucl::sandbox::hosts::{self, LocalHosts};
use gpucl::sandbox::lambda::{Config, Sandbox, User};

use super::site::PACE;
use crate::crash::real::count;
use crate::support::{TestEnv, turn};

/// Nobody else of the tests has it.
const PORT: u16 = 2295;

const UP: [&str; 2] = ["up", "--yes"];

/// Type and key of a public key.
pub(crate) fn plain(text: &str) -> String {
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// The public half of a private key in a file; empty when it is none.
fn public_of(file: &Path) -> String {
    let output = Command::new("ssh-keygen").args(["-y", "-P", "", "-f"]).arg(file).stdin(Stdio::null()).output();
    plain(&String::from_utf8(output.unwrap().stdout).unwrap())
}

/// The private key in the user data that an instance was launched with, and is served for as long as it exists.
fn private_in(user_data: &str) -> String {
    let lines = user_data.lines().skip_while(|line| !line.contains("ed25519_private")).skip(1);
    lines.take_while(|line| line.starts_with("    ")).map(|line| format!("{}\n", line.trim())).collect()
}

/// The cluster's state folder.
pub(crate) fn state(env: &TestEnv) -> PathBuf {
    env.home().join(".local/state/gpucl/clusters/demo")
}

/// What the cluster has recorded of host keys.
pub(crate) fn record(env: &TestEnv) -> String {
    std::fs::read_to_string(state(env).join("host_keys.json")).unwrap_or_default()
}

/// How many hosts of the cluster are known to use a key of their own.
pub(crate) fn in_use(env: &TestEnv) -> usize {
    record(env).matches("\"is_in_use\": true").count()
}

/// The keys in the cluster's `known_hosts`.
fn known(state: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(state.join("known_hosts")).unwrap();
    text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

/// Runs this `up` and kills it as soon as this is so.
#[track_caller]
pub(crate) fn kill_when(env: &TestEnv, up: &[&str], what: &str, is_so: impl Fn() -> bool) {
    let log = env.root().join("up.log");
    let file = std::fs::File::create(&log).unwrap();
    let mut up = env.command(up);
    let mut up = up.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let begun = Instant::now();
    while !is_so() {
        let ended = up.try_wait().unwrap();
        let is_over = ended.is_some() || begun.elapsed() > Duration::from_secs(120);
        assert!(!is_over, "{what} was not met: {}", std::fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_micros(200));
    }
    up.kill().unwrap();
    up.wait().unwrap();
    println!("killed when {what}, after {:.1} s", begun.elapsed().as_secs_f64());
}

/// Whether the head can be logged in to by somebody who accepts only this key.
fn accepts(env: &TestEnv, state: &Path, key: &str) -> bool {
    let known = std::fs::read_to_string(state.join("known_hosts")).unwrap();
    let file = env.root().join("accepted");
    std::fs::write(&file, format!("{} {key}\n", known.split_whitespace().next().unwrap())).unwrap();
    let mut ssh = Command::new("ssh");
    ssh.arg("-o").arg(format!("UserKnownHostsFile={}", file.display())).args(["-o", "BatchMode=yes", "-F"]);
    let output = ssh.arg(state.join("ssh_config")).args(["head", "true"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() || said.contains("HOST IDENTIFICATION HAS CHANGED"), "{said}");
    output.status.success()
}

/// Of a cluster of one host with this state, only the key that the host made is known; the one in its user data is
/// refused.
#[track_caller]
pub(crate) fn only_its_own_key_is_known(env: &TestEnv, state: &Path) {
    let given = plain(&std::fs::read_to_string(state.join("secrets/ssh_host0.pub")).unwrap());
    let [own] = known(state).try_into().unwrap();
    assert!(own != given && accepts(env, state, &own) && !accepts(env, state, &given), "{own} {given}");
    assert!(!state.join("secrets/ssh_host0").exists());
}

#[test]
#[ignore = "testbed"]
fn up_killed_at_any_step_of_the_replacement_gets_in_again() {
    let _turn = turn();
    let mut env = TestEnv::with_shared_ray();
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache").to_owned();
    let passes = |name: &str| name.starts_with("PIP_") || name.starts_with("UV_") || name == "PATH";
    let environment = std::env::vars().filter(|(name, _)| passes(name));
    let environment = environment.chain([("XDG_CACHE_HOME".to_owned(), cache)]).collect();
    let folder = env.root().join("hosts");
    let hosts = LocalHosts::new(hosts::Config { folder: folder.clone(), port: PORT, environment }).unwrap();
    let hosts = Arc::new(hosts);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = Config { hosts: Some(Arc::clone(&hosts) as _), ..Config::prompt() };
    let sandbox = runtime.block_on(Sandbox::start(config)).unwrap();
    env.set("LAMBDA_API_KEY", &sandbox.key(User::Alice));
    env.set("LAMBDA_API_URL", &sandbox.base_url());
    env.set("GPUCL_LAMBDA_PACE", PACE);
    env.write(
        "cluster.yaml",
        &format!(
            "name: demo\nprovider: {{name: lambda, ssh_port: {PORT}, user: \"\"}}\nruntime: native\ngpu: declared\n\
             hosts: [{{type: gpu_1x_a10}}]\nray:\n  head: {{object_store_memory: 80MiB}}\n  \
             workers: {{count: 1, cpus: 1, gpus: 1, memory: 300MiB, object_store_memory: 80MiB}}\n"
        ),
    );
    let instance = || sandbox.snapshot().ours().alive().next().cloned();
    let host = || instance().map(|one| folder.join(one.id));
    let given = || {
        let file = env.root().join("given");
        std::fs::write(&file, private_in(instance().unwrap().user_data.as_deref().unwrap())).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        public_of(&file)
    };
    let in_file = || host().map(|host| std::fs::read(host.join("host_key")).unwrap_or_default());

    kill_when(&env, &UP, "the host has made a key", || {
        host().is_some_and(|host| host.join("host_key.gpucl.pub").exists())
    });
    let first = given();
    assert_eq!(public_of(&host().unwrap().join("host_key")), first);
    let before = in_file();
    kill_when(&env, &UP, "both keys are known", || !record(&env).is_empty());
    kill_when(&env, &UP, "the host has taken its key", || in_file() != before);
    assert_eq!(in_use(&env), 0);
    let own = public_of(&host().unwrap().join("host_key"));
    assert_eq!(known(&state(&env)), [first.clone(), own.clone()]);
    kill_when(&env, &UP, "its key is known to be in use", || in_use(&env) == 1);

    let noted = || std::fs::metadata(state(&env).join("host_keys.json")).unwrap().modified().unwrap();
    let before = noted();
    kill_when(&env, &UP, "the host is prepared", || count(&state(&env), ("noted", "host0", "ray_env")) > 0);
    assert_eq!(noted(), before, "a key is replaced once");
    only_its_own_key_is_known(&env, &state(&env));
    assert_eq!(known(&state(&env)), [own]);
    assert_eq!(given(), first, "the service of user data has the other one, as before");

    // Another host at the same address has another key in its user data, and is known by that.
    assert!(sandbox.terminate_behind_our_back(&instance().unwrap().id));
    // The stage that prepares the host runs meanwhile: this is not what `up` waits for.
    let made = Cell::new(None);
    kill_when(&env, &UP, "the next host uses its own key", || {
        if made.get().is_none() && host().is_some_and(|host| host.join("host_key.gpucl.pub").exists()) {
            made.set(Some(Instant::now()));
        }
        in_use(&env) == 2
    });
    println!("from a key that was made to one that is in use: {:?}", made.get().map(|at: Instant| at.elapsed()));
    assert_ne!(given(), first);
    env.run(&["down", "--yes", "-c", "demo"]).exits(0);
    assert_eq!(sandbox.snapshot().ours().counts(), [0; 4]);
    drop(sandbox);
    runtime.block_on(hosts.end_all()).unwrap();
}
