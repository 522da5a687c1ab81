//! The lab for failures: one host for all tests that run at the same time, and playbooks that end where a test ends.

use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, Weak};

use super::super::spec::{env, gpucl, spec};
use super::super::testbed::{TestHost, testbed};
use crate::support::{Outcome, TestEnv, Turn, turn, until};

/// Nothing beside Ray.
pub(crate) const NO_SERVICES: &str =
    "services: {object_store: false, prometheus: false, grafana: false, jupyter: false}\n";
/// What the playbook `ending` says last.
pub(crate) const ENDS: &str = "the test ends here";

/// A host with Docker, drivers and one GPU, and the right to use it; gone with the last test that holds it.
pub(crate) struct Lab {
    pub(crate) host: Arc<TestHost>,
    pub(crate) env: TestEnv,
    _turn: Turn,
}

impl Lab {
    /// Takes the host, or starts it.
    pub(crate) fn open() -> Self {
        static HOST: Mutex<Weak<TestHost>> = Mutex::new(Weak::new());
        let host = {
            let mut held = HOST.lock().unwrap();
            held.upgrade().unwrap_or_else(|| {
                let host = Arc::new(TestHost::start("trouble", &["--gpus", "nvidia:1", "--image", "docker"]));
                *held = Arc::downgrade(&host);
                host
            })
        };
        Self { host, env: env(), _turn: turn() }
    }

    /// The spec of a cluster without services on that host.
    pub(crate) fn spec(&self, name: &str) -> String {
        spec(name, &[&self.host], NO_SERVICES)
    }

    /// Writes the spec and runs a command.
    pub(crate) fn run(&self, spec: &str, arguments: &[&str]) -> Outcome {
        self.env.write("cluster.yaml", spec);
        self.gpucl(arguments)
    }

    pub(crate) fn gpucl(&self, arguments: &[&str]) -> Outcome {
        gpucl(&self.env, arguments)
    }

    /// Puts a playbook in the place of the built-in one.
    pub(crate) fn playbook(&self, name: &str, text: &str) {
        playbook(&self.env, name, text);
    }

    /// Ends the stage where Docker would be installed; everything before is real.
    pub(crate) fn ends_before_docker(&self) {
        self.playbook("docker", &ending(""));
    }

    /// Runs a text on the host now, and another when what is returned is dropped, however the test ends.
    #[must_use]
    pub(crate) fn while_held(&self, now: &str, then: &'static str) -> Undo {
        let undo = Undo { host: Arc::clone(&self.host), then };
        self.host.sh(now);
        undo
    }

    /// Nothing of any cluster is on the host.
    #[track_caller]
    pub(crate) fn host_is_untouched(&self) {
        assert!(!self.host.try_sh("test -e /var/lib/gpucl").status.success(), "there is a folder of gpucl");
        assert_eq!(self.host.sh("docker ps -aq --filter label=gpucl.tag 2>/dev/null || true").trim(), "");
    }

    /// No cluster is known: there was nothing to be forgotten later.
    #[track_caller]
    pub(crate) fn nothing_is_known(&self) {
        let _ = self.gpucl(&["list"]).exits(0).says("no cluster");
    }

    /// `down` removes what there is, and the host is as it was.
    #[track_caller]
    pub(crate) fn down(&self, name: &str) {
        let _ = self.gpucl(&["down", "--yes", "-c", name]).exits(0).prints(&format!("nothing of {name} is left"));
        self.host_is_untouched();
    }

    /// Begins `up`, which goes on while the test does something to it.
    pub(crate) fn begin(&self, spec: &str) -> Running {
        self.env.write("cluster.yaml", spec);
        Running::begin(&self.env, &["up"])
    }
}

impl Drop for Lab {
    /// The next test does not suffer from one that failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.host.try_sh("docker rm -f $(docker ps -aq --filter label=gpucl.tag); rm -rf /var/lib/gpucl");
        }
    }
}

pub(crate) fn playbook(env: &TestEnv, name: &str, text: &str) {
    env.own(&format!("playbooks/{name}.yaml"), text);
}

/// A playbook `docker` with these steps, and one that ends the stage.
pub(crate) fn ending(steps: &str) -> String {
    format!(
        "name: docker\nsummary: Where this test ends\nlibraries: [apt, engine]\nvariables: {{registry_mirror: \"\"}}\nsteps:\n{steps}  \
         - name: end the test\n    run: |\n      echo \"{ENDS}\"\n      exit 1\n"
    )
}

/// Adds a playbook's variables to a spec.
pub(crate) fn with_variables(spec: &str, line: &str) -> String {
    spec.replacen("playbooks:\n", &format!("playbooks:\n  {line}\n"), 1)
}

/// A text that is run on the host in the end.
pub(crate) struct Undo {
    host: Arc<TestHost>,
    then: &'static str,
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = self.host.try_sh(self.then);
    }
}

/// A command that runs; what it says is in a file.
pub(crate) struct Running {
    child: Child,
    said: std::path::PathBuf,
}

impl Running {
    pub(crate) fn begin(env: &TestEnv, arguments: &[&str]) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let data = testbed()["data_dir"].as_str().unwrap();
        let said = env.root().join(format!("said-{number}"));
        let file = std::fs::File::create(&said).unwrap();
        let child = env
            .command(&[&["--data-dir", data], arguments].concat())
            .stderr(file.try_clone().unwrap())
            .stdout(Stdio::from(file))
            .spawn()
            .unwrap();
        Self { child, said }
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until it says this.
    #[track_caller]
    pub(crate) fn says(&mut self, text: &str, seconds: u64) {
        until(&format!("it says `{text}`"), seconds, || {
            let said = self.said();
            let ended = self.child.try_wait().unwrap().is_some();
            assert!(!ended || said.contains(text), "it ended, and did not say `{text}`:\n{said}");
            said.contains(text).then_some(())
        });
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        crate::support::interrupt(&self.child);
    }

    /// Nothing can be said any more.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; returns the exit code and all output.
    #[track_caller]
    pub(crate) fn end(mut self, seconds: u64) -> (Option<i32>, String) {
        let status = until("it ends", seconds, || self.child.try_wait().unwrap());
        (status.code(), self.said())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
