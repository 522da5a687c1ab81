//! Failures of a ready cluster: one host with two GPUs, brought up once for all tests that run at the same time.

use std::sync::{Arc, Mutex, Weak};

use crate::hosts::spec::{env, gpucl, spec};
use crate::hosts::testbed::TestHost;
use crate::hosts::trouble::lab::NO_SERVICES;
use crate::support::{Outcome, TestEnv, Turn, turn, until};

struct Shared {
    host: TestHost,
    env: TestEnv,
}

/// A ready cluster, with exclusive use of it.
struct Ready {
    shared: Arc<Shared>,
    _turn: Turn,
}

impl Ready {
    fn open() -> Self {
        static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
        let shared = {
            let mut held = SHARED.lock().unwrap();
            held.upgrade().unwrap_or_else(|| {
                let host = TestHost::start("troubled", &["--gpus", "nvidia:2", "--image", "ready"]);
                let shared = Arc::new(Shared { host, env: env() });
                *held = Arc::downgrade(&shared);
                shared
            })
        };
        let ready = Self { shared, _turn: turn() };
        ready.env().write("cluster.yaml", &ready.spec());
        let _ = ready.gpucl(&["up"]).exits(0).prints("ready:");
        ready
    }

    fn host(&self) -> &TestHost {
        &self.shared.host
    }

    fn env(&self) -> &TestEnv {
        &self.shared.env
    }

    fn spec(&self) -> String {
        spec("troubled", &[self.host()], NO_SERVICES)
    }

    fn gpucl(&self, arguments: &[&str]) -> Outcome {
        gpucl(self.env(), arguments)
    }

    /// The name of the container of this key, which is ours.
    fn container(&self, key: &str) -> String {
        let owner = std::fs::read_to_string(self.env().home().join(".config/gpucl/owner")).unwrap();
        format!("gpucl-{}-troubled-{key}", owner.lines().next().unwrap_or_default())
    }

    /// The whole spec with a fragment of compose.
    fn with_fragment(&self, text: &str) -> Outcome {
        self.env().write("more.yaml", text);
        self.env().write("cluster.yaml", &(self.spec() + "compose: [more.yaml]\n"));
        self.env().accept("cluster.yaml");
        self.gpucl(&["up"])
    }

    /// The cluster comes back to what it was.
    #[track_caller]
    fn is_put_right(&self) {
        self.env().write("cluster.yaml", &self.spec());
        let _ = self.gpucl(&["up"]).exits(0).prints("ready:");
    }
}

fn failed(outcome: &Outcome, check: &str, target: &str, saw: &str) {
    let is_it = |line: &str| ["FAILED", check, target, saw].iter().all(|word| line.contains(word));
    assert!(outcome.stderr.lines().any(is_it), "{check} {target} {saw}\n{}", outcome.stderr);
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_worker_with_another_token_is_named_and_ends_the_wait() {
    let ready = Ready::open();
    let begin = std::time::Instant::now();
    ready
        .with_fragment("services:\n  worker1:\n    environment: {RAY_AUTH_TOKEN_PATH: /etc/hostname}\n")
        .exits(1)
        .says("a worker's token differs from the head's")
        .says("hint: give all nodes the cluster's token: gpucl stop, then gpucl up");
    assert!(begin.elapsed().as_secs() < 120, "it was not waited out");
    ready.is_put_right();
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn two_workers_on_one_gpu_are_not_ready() {
    let ready = Ready::open();
    let first = ready.host().uuids()[0].clone();
    let up = ready
        .with_fragment(&format!("services:\n  worker1:\n    devices: !override [\"nvidia.com/gpu={first}\"]\n"))
        .exits(3);
    failed(&up, "gpu distinct", "worker-0 and worker-1", &format!("both see {first}"));
    failed(&up, "gpu", "worker-1", "and the worker was given");
    ready.is_put_right();
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn cuda_error_802_later_is_found_by_verify() {
    let ready = Ready::open();
    ready.host().sh("touch /etc/standin/cuda-802");
    let verify = ready.gpucl(&["verify"]);
    ready.host().sh("rm /etc/standin/cuda-802");
    let verify = verify.exits(3);
    failed(&verify, "gpu", "worker-0", "802");
    failed(&verify, "gpu", "worker-1", "802");
    let _ = ready.gpucl(&["verify"]).exits(0);
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn an_engine_that_is_restarted_takes_the_cluster_along() {
    let ready = Ready::open();
    ready.host().sh("systemctl restart docker");
    ready.is_put_right();
    let _ = ready.gpucl(&["verify"]).exits(0);
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_restarted_host_is_reported_by_status_and_repaired_by_up() {
    let ready = Ready::open();
    let boot = ready.host().sh("cat /proc/sys/kernel/random/boot_id");
    let _ = ready.host().try_sh("systemctl reboot");
    until("it is another boot, with SSH", 90, || {
        let now = ready.host().try_sh("cat /proc/sys/kernel/random/boot_id; systemctl is-active --quiet ssh || exit 1");
        (now.status.success() && String::from_utf8_lossy(&now.stdout) != boot).then_some(())
    });
    let _ =
        ready.gpucl(&["status"]).exits(0).prints("host-0 has been restarted: `gpucl up` repairs what is not running");
    ready.is_put_right();
    let status = ready.gpucl(&["status"]).exits(0).prints("troubled: ready");
    assert!(!status.stdout.contains("was restarted since"), "{}", status.stdout);
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn clusters_of_two_owners_run_side_by_side() {
    let ready = Ready::open();
    let started =
        |key: &str| ready.host().sh(&format!("docker inspect -f '{{{{.State.StartedAt}}}}' {}", ready.container(key)));
    let before = (started("head"), started("worker0"), started("worker1"));
    let other = env();
    // The same name: only the owner distinguishes them.
    other.write("cluster.yaml", &ready.spec());
    let _ = gpucl(&other, &["up"]).exits(0).prints("ready:");
    let listens = ready.host().sh("ss -lntH | awk '{ print $4 }'");
    assert!(listens.contains("127.0.0.1:8265") && listens.contains("127.0.0.1:20000"), "{listens}");
    let _ = ready.gpucl(&["verify"]).exits(0);
    let _ = gpucl(&other, &["down", "--yes"]).exits(0).prints("nothing of troubled is left");
    assert_eq!((started("head"), started("worker0"), started("worker1")), before, "the first one was not touched");
    let _ = ready.gpucl(&["verify"]).exits(0);
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_foreign_service_on_an_open_port_is_listed_and_left_alone() {
    let ready = Ready::open();
    ready.host().sh("mkdir -p /var/empty && (setsid python3 -m http.server 5599 --directory /var/empty >/dev/null 2>&1 </dev/null &) ; sleep 1");
    let _ = ready.gpucl(&["verify"]).exits(0).says("ports of other programs do, and are left alone: 5599");
    let _ = ready.gpucl(&["up"]).exits(0).prints("nothing was changed");
    ready.host().sh("ss -lntH | grep -q ':5599 ' && kill $(pgrep -f '[h]ttp.server 5599')");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_port_taken_while_stopped_is_left_to_its_new_user() {
    let ready = Ready::open();
    let _ = ready.gpucl(&["stop"]).exits(0);
    ready.host().sh("mkdir -p /var/empty && (setsid python3 -m http.server 8265 --bind 127.0.0.1 --directory /var/empty >/dev/null 2>&1 </dev/null &) ; sleep 1");
    let _ = ready.gpucl(&["up"]).exits(0).prints("ready:");
    let listens = ready.host().sh("ss -lntpH");
    assert!(listens.lines().any(|line| line.contains(":8265 ") && line.contains("python3")), "{listens}");
    assert!(listens.contains("127.0.0.1:20000 "), "{listens}");
    ready.host().sh("kill $(pgrep -f '[h]ttp.server 8265')");
}
