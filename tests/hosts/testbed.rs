//! The testbed, started once; hosts on it, each gone when its test is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{Outcome, TestEnv};

/// The output of `testbed/hosts/up`.
pub(crate) fn testbed() -> &'static Value {
    static UP: OnceLock<Value> = OnceLock::new();
    UP.get_or_init(|| last_line(&script("up", &[])))
}

/// A host of the testbed.
pub(crate) struct TestHost {
    name: String,
    printed: Value,
}

impl TestHost {
    /// Starts one; `options` as `testbed/hosts/host` takes them.
    pub(crate) fn start(name: &str, options: &[&str]) -> Self {
        let _ = testbed();
        let _ = Command::new(folder().join("rm")).arg(name).output();
        let printed = last_line(&script("host", &[&[name], options].concat()));
        Self { name: name.to_owned(), printed }
    }

    pub(crate) fn address(&self) -> &str {
        self.printed["address"].as_str().unwrap()
    }

    pub(crate) fn user(&self) -> &str {
        self.printed["user"].as_str().unwrap()
    }

    pub(crate) fn identity(&self) -> PathBuf {
        PathBuf::from(self.printed["identity"].as_str().unwrap())
    }

    pub(crate) fn host_key(&self) -> &str {
        self.printed["host_key"].as_str().unwrap()
    }

    pub(crate) fn uuids(&self) -> Vec<String> {
        self.printed["uuids"].as_array().unwrap().iter().map(|uuid| uuid.as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn container(&self) -> &str {
        self.printed["container"].as_str().unwrap()
    }

    /// Runs a shell text on the host as root, not by SSH; returns what it printed.
    #[track_caller]
    pub(crate) fn sh(&self, text: &str) -> String {
        let output = self.try_sh(text);
        assert!(output.status.success(), "`{text}` on {}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same, however it ends.
    pub(crate) fn try_sh(&self, text: &str) -> Output {
        Command::new("docker").args(["exec", self.container(), "sh", "-c", text]).output().unwrap()
    }

    /// Logs in as the user and runs a command, as a person would.
    #[track_caller]
    pub(crate) fn login(&self, command: &str) {
        let to = format!("{}@{}", self.user(), self.address());
        let options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"];
        let mut ssh = Command::new("ssh");
        let output = ssh.args(options).arg("-i").arg(self.identity()).args([&to, command]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// How many SSH sessions the host's server has begun since it was started.
    pub(crate) fn sessions(&self) -> usize {
        let log = self.sh("journalctl -u ssh -u ssh.service --no-pager -o cat 2>/dev/null || cat /var/log/auth.log");
        log.lines().filter(|line| line.contains("Starting session:")).count()
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if std::env::var_os("GPUCL_KEEP_HOSTS").is_none() {
            let _ = Command::new(folder().join("rm")).arg(&self.name).output();
        }
    }
}

/// Settings for the testbed's package and image mirrors, and for nodes small enough for this machine.
pub(crate) fn mirrors() -> String {
    let printed = testbed();
    let text = |key: &str| printed[key].as_str().unwrap();
    format!(
        "oversubscribe: true\nplaybooks:\n  docker: {{registry_mirror: \"{}\"}}\n  nvidia: {{toolkit_repository: \"{}\", \
         toolkit_key_url: \"{}\", toolkit_key_fingerprint: \"{}\"}}\ntimeouts: {{ready: 8m, start: 6m}}\n",
        text("registry"),
        text("toolkit_repository"),
        text("toolkit_key_url"),
        text("toolkit_fingerprint"),
    )
}

/// An example of ours as people have it, on the testbed's mirrors.
pub(crate) fn example(env: &TestEnv, name: &str) {
    let path = format!("{}/examples/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    env.write("cluster.yaml", &format!("{}\n{}", std::fs::read_to_string(path).unwrap(), mirrors()));
}

/// Puts the testbed's images where the program looks for templates by itself, for commands without options of ours.
pub(crate) fn use_images(env: &TestEnv) {
    let file = "templates/ray-compose/images.yaml";
    let images = std::fs::read_to_string(Path::new(testbed()["data_dir"].as_str().unwrap()).join(file)).unwrap();
    env.own(file, &images);
}

/// With the testbed's images.
pub(crate) fn with_data(arguments: &[&str]) -> Vec<String> {
    let data = testbed()["data_dir"].as_str().unwrap().to_owned();
    ["--data-dir".to_owned(), data].into_iter().chain(arguments.iter().map(|one| (*one).to_owned())).collect()
}

/// Runs the program with the testbed's images.
pub(crate) fn gpucl(env: &TestEnv, arguments: &[&str]) -> Outcome {
    let arguments = with_data(arguments);
    env.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A container on the hosts' network that is no host of the cluster.
#[track_caller]
pub(crate) fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/hosts"))
}

#[track_caller]
pub(crate) fn script(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(folder().join(name)).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let end: Vec<&str> = stderr.lines().rev().take(30).collect();
    assert!(output.status.success(), "testbed/hosts/{name} {arguments:?}: {:#?}", end);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A script of `testbed/openstack`; what it printed.
#[track_caller]
pub(crate) fn openstack_script(name: &str, arguments: &[&str]) -> String {
    script(&format!("../openstack/{name}"), arguments)
}

pub(crate) fn last_line(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|error| panic!("{error}: {text}"))
}
