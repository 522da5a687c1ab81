//! A program on a host while the way to it, gpucl, the engine or the machine goes away.

use super::packages::package;
use crate::hosts::testbed::docker;
use crate::hosts::trouble::lab::{ENDS, Lab, ending};

/// A step that installs a package whose own script takes fifteen seconds, and writes down each time that it ran.
fn slow_install(lab: &Lab) {
    package(lab, "gpucl-slow", "echo begun >>/var/tmp/slow.log; sleep 15; echo ended >>/var/tmp/slow.log");
    lab.host.sh("rm -f /var/tmp/slow.log");
    lab.playbook(
        "docker",
        &ending(
            "  - name: install the slow package\n    unless: dpkg -s gpucl-slow >/dev/null 2>&1\n    run: |\n      \
             . ./lib/apt.sh\n      apt_get install /var/tmp/gpucl-slow.deb\n",
        ),
    );
}

const SLOW_GONE: &str = "dpkg --purge gpucl-slow; rm -f /var/tmp/slow.log";

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_connection_cut_during_an_install_is_reopened_and_the_install_continues() {
    let lab = Lab::open();
    let _undo = lab.while_held("true", SLOW_GONE);
    slow_install(&lab);
    let mut up = lab.begin(&lab.spec("cut"));
    up.says("install the slow package", 60);
    crate::support::until("the package's script runs", 30, || {
        lab.host.try_sh("test -s /var/tmp/slow.log").status.success().then_some(())
    });
    // The host's own process of the connection, not the server.
    lab.host.sh("pkill -f '[s]shd: cc'");
    up.says("the connection to the host broke; connecting again", 30);
    let (code, said) = up.end(60);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("install the slow package: done") && said.contains(ENDS), "{said}");
    assert_eq!(lab.host.sh("cat /var/tmp/slow.log"), "begun\nended\n", "it ran once, and to its end");
    assert_eq!(lab.host.sh("dpkg --audit"), "");
    lab.down("cut");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_gpucl_killed_during_an_install_is_resumed_by_the_next() {
    let lab = Lab::open();
    let _undo = lab.while_held("true", SLOW_GONE);
    slow_install(&lab);
    let mut up = lab.begin(&lab.spec("killed"));
    up.says("install the slow package", 60);
    crate::support::until("the package's script runs", 30, || {
        lab.host.try_sh("test -s /var/tmp/slow.log").status.success().then_some(())
    });
    up.kill();
    lab.gpucl(&["up"])
        .exits(1)
        .says("already runs there; following it")
        .says("install the slow package: done")
        .says(ENDS);
    assert_eq!(lab.host.sh("cat /var/tmp/slow.log"), "begun\nended\n", "it ran once, and to its end");
    assert_eq!(lab.host.sh("dpkg --audit"), "");
    lab.down("killed");
}

/// A machine that stays off when it goes down; on again when this is dropped.
struct Away<'a>(&'a str);

impl<'a> Away<'a> {
    fn keep(container: &'a str) -> Self {
        let _ = docker(&["update", "--restart", "no", container]);
        Self(container)
    }

    fn is_off(&self) -> bool {
        docker(&["inspect", "-f", "{{.State.Running}}", self.0]).trim() == "false"
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let _ = docker(&["update", "--restart", "always", self.0]);
        let _ = docker(&["start", self.0]);
    }
}

/// The machine is rebooted, and stays away: gpucl says what it waits for, Ctrl-C ends the wait, and once the machine is
/// back the same command continues.
#[test]
#[ignore = "by hand: just testbed-all"]
fn an_endless_reboot_is_waited_for_until_ctrl_c() {
    let lab = Lab::open();
    lab.playbook(
        "docker",
        &ending(
            "  - name: start anew\n    reboot: true\n    unless: test -e /var/tmp/anew\n    run: touch /var/tmp/anew\n",
        ),
    );
    let away = Away::keep(lab.host.container());
    let mut up = lab.begin(&lab.spec("away"));
    up.says("waiting for host-0 to reboot", 60);
    crate::support::until("the machine is off", 60, || away.is_off().then_some(()));
    up.says("waiting for host-0 to answer by SSH", 60);
    up.interrupt();
    // Two signals at once are one.
    std::thread::sleep(std::time::Duration::from_millis(500));
    up.interrupt();
    let (code, said) = up.end(30);
    drop(away);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("it was stopped while the machine reboots"), "{said}");
    let again = lab.gpucl(&["up"]).exits(1).says(ENDS);
    assert!(!again.stderr.contains("start anew: done"), "{}", again.stderr);
    lab.host.sh("rm -f /var/tmp/anew");
    lab.down("away");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn an_engine_that_does_not_start_is_reported_with_its_journal() {
    let lab = Lab::open();
    let undo = lab.while_held(
        "mkdir -p /etc/docker && echo '{ broken' >/etc/docker/daemon.json && systemctl stop docker.service docker.socket",
        "rm -f /etc/docker/daemon.json; systemctl reset-failed docker.service docker.socket; systemctl restart docker.service",
    );
    lab.run(&lab.spec("broken"), &["up"])
        .exits(1)
        .says("step `install the engine`")
        .says("the engine does not start")
        .says("hint: journalctl -u docker on the host")
        .says("daemon.json");
    drop(undo);
    lab.down("broken");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn an_old_engine_that_runs_somebodys_containers_is_not_replaced() {
    let lab = Lab::open();
    let _undo = lab.while_held(
        "for i in $(seq 60); do docker info >/dev/null 2>&1 && break; sleep 1; done; cd / && tar -ch bin/sleep lib/x86_64-linux-gnu/libc.so.6 lib64/ld-linux-x86-64.so.2 | docker import - stranger:1 && \
         docker run -d --name stranger stranger:1 /bin/sleep infinity && \
         printf '#!/bin/sh\\n[ \"$1 $2\" != \"version --format\" ] || { echo 20.10.7; exit 0; }\\nexec /usr/bin/docker \"$@\"\\n' >/usr/local/bin/docker && \
         chmod 755 /usr/local/bin/docker",
        "rm -f /usr/local/bin/docker; docker rm -f stranger; docker rmi stranger:1",
    );
    let started = lab.host.sh("docker inspect -f '{{.State.StartedAt}}' stranger");
    lab.run(&lab.spec("old"), &["up"])
        .exits(1)
        .says("Docker 20.10.7 is too old, and it cannot be replaced while these containers run: stranger")
        .says("hint: stop these containers, or set `restart: \"yes\"` under `playbooks: docker:`");
    assert_eq!(lab.host.sh("docker inspect -f '{{.State.StartedAt}}' stranger"), started);
    lab.down("old");
}

/// What nvidia-smi says when packages were upgraded under a driver that runs.
#[test]
#[ignore = "by hand: just testbed-all"]
fn a_driver_library_version_mismatch_is_reported() {
    let lab = Lab::open();
    let _undo = lab.while_held(
        "mv /usr/bin/nvidia-smi /usr/bin/nvidia-smi.away && \
         printf '#!/bin/sh\\necho \"Failed to initialize NVML: Driver/library version mismatch\"; exit 18\\n' >/usr/bin/nvidia-smi && \
         chmod 755 /usr/bin/nvidia-smi",
        "mv -f /usr/bin/nvidia-smi.away /usr/bin/nvidia-smi",
    );
    lab.playbook("images-begin", super::NO_IMAGES_BEGIN);
    let spec = lab.spec("versions").replace("nvidia: {", "nvidia: {reboot: \"no\", ");
    lab.run(&spec, &["up"])
        .exits(1)
        .says("step `reboot for the NVIDIA driver`")
        .says("hint: set `reboot: \"yes\"` under `playbooks: nvidia:`, or: sudo reboot");
    let outcome = lab.gpucl(&["up"]).exits(1);
    let cause = outcome.stderr.split("Caused by").nth(1).unwrap_or_default().to_owned();
    assert!(cause.contains("Driver/library version mismatch"), "{}", outcome.stderr);
    lab.down("versions");
}
