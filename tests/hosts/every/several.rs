//! Several hosts: one dies in the middle, and a firewall that would lock us out. They are namespaces with SSH, without
//! systemd and without Docker: a few lines stand in for the engine, since nothing here is about it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::hosts::spec::env;
use crate::hosts::testbed::{script, testbed};
use crate::hosts::trouble::lab::{NO_SERVICES, Running, playbook};
use crate::support::{TestEnv, until};

/// Cheap hosts; gone with the test.
struct Hosts {
    printed: Vec<Value>,
    env: TestEnv,
    _only: MutexGuard<'static, ()>,
}

impl Hosts {
    fn start(count: usize) -> Self {
        static ONLY: Mutex<()> = Mutex::new(());
        // They carry no Ray, so they wait for no turn; but there is one set of them.
        let _only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = testbed();
        let printed = script("netns", &["up", &count.to_string()]);
        let printed = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { printed, env: env(), _only }
    }

    fn text(&self, index: usize, key: &str) -> &str {
        self.printed[index][key].as_str().unwrap()
    }

    /// The cluster of all hosts: Ray does not matter here, so nothing is verified.
    fn spec(&self, name: &str) -> String {
        let entry = |index: usize| {
            let text = |key: &str| self.text(index, key);
            let (node, user, identity, key) = (text("address"), text("user"), text("identity"), text("host_key"));
            format!("  - {{node: {node}, user: {user}, identity_file: {identity}, host_key: \"{key}\"}}\n")
        };
        let hosts: String = (0..self.printed.len()).map(entry).collect();
        format!(
            "name: {name}\nprovider: ssh\nruntime: docker\nhosts:\n{hosts}ray:\n  head: {{object_store_memory: 100MiB, memory: 500MiB}}\n  \
             workers: {{per: host, gpus: 0, cpus: 1, object_store_memory: 100MiB, memory: 500MiB}}\noversubscribe: true\n{NO_SERVICES}"
        )
    }

    /// What is on a host, by its files.
    fn root(&self, index: usize) -> String {
        format!("/run/gpucl-testbed-netns/{}/root", index + 1)
    }

    fn sh(&self, index: usize, text: &str) -> String {
        let output = std::process::Command::new("ip")
            .args([
                "netns",
                "exec",
                &format!("gpucl-testbed-ns{}", index + 1),
                "chroot",
                &self.root(index),
                "sh",
                "-c",
                text,
            ])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The hosts can install packages: nftables is real.
    fn with_packages(&self) {
        let folder = crate::hosts::testbed::folder();
        for index in 0..self.printed.len() {
            let text = format!(". {}/lib.sh; write_ubuntu_sources {}", folder.display(), self.root(index));
            assert!(std::process::Command::new("bash").args(["-c", &text]).status().unwrap().success());
        }
        let update = "name: base\nsummary: Package lists\nlibraries: [apt]\nsteps:\n  - name: read the package lists\n    run: |\n      . ./lib/apt.sh\n      apt_get update\n";
        playbook(&self.env, "base", update);
    }

    /// A fake engine: everything requested runs and is healthy.
    fn without_docker(&self) {
        let engine = r##"#!/bin/sh
[ "$1" = inspect ] || exit 0
format=$3
shift 3
for name in "$@"; do
    case $format in '{{.State.Status}}') echo running ;; *) echo "/$name running none 0 0" ;; esac
done
"##;
        for index in 0..self.printed.len() {
            let path = format!("{}/usr/local/bin/docker", self.root(index));
            std::fs::write(&path, engine).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        for name in ["docker", "images-begin", "images"] {
            playbook(&self.env, name, &nothing(name));
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::process::Command::new(crate::hosts::testbed::folder().join("netns")).arg("down").output();
    }
}

/// A playbook that does nothing, and takes the variables of the built-in one.
fn nothing(name: &str) -> String {
    format!(
        "name: {name}\nsummary: Nothing\nvariables: {{images: \"\", registry_mirror: \"\", table: \"\", ports: \"\", peers: \"\"}}\nsteps:\n  - name: do nothing of {name}\n    run: 'true'\n"
    )
}

/// Twelve steps of half a second.
fn twelve_steps() -> String {
    let steps: String = (1..=12).map(|step| format!("  - name: step {step}\n    run: sleep 0.5\n")).collect();
    format!("name: base\nsummary: Twelve steps\nsteps:\n{steps}")
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn one_of_eight_hosts_dies_in_the_middle_and_the_rest_go_on() {
    let hosts = Hosts::start(8);
    hosts.without_docker();
    playbook(&hosts.env, "base", &twelve_steps());
    playbook(&hosts.env, "firewall", &nothing("firewall"));
    playbook(&hosts.env, "firewall-confirm", &nothing("firewall-confirm"));
    hosts.env.write("cluster.yaml", &hosts.spec("eight"));
    let begin = std::time::Instant::now();
    let mut up = Running::begin(&hosts.env, &["up"]);
    up.says("host-3: step 3: done", 90);
    // The first process of its process namespace: all of the machine is gone at once.
    let pid = std::fs::read_to_string("/run/gpucl-testbed-netns/4/pid").unwrap();
    assert!(std::process::Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    let (code, said) = up.end(600);
    println!("{said}\n{:.0} s", begin.elapsed().as_secs_f64());
    assert_eq!(code, Some(1), "{said}");
    for index in [0, 1, 2, 4, 5, 6, 7] {
        assert!(said.contains(&format!("host-{index}: prepare done")), "host-{index}\n{said}");
        assert!(said.contains(&format!("host-{index}: step 12: done")), "host-{index}\n{said}");
    }
    assert!(said.contains("host-3: prepare FAILED"), "{said}");
    let end = &said[said.find("error: ").unwrap()..];
    assert!(end.contains("host-3") && end.contains("Connection refused"), "{end}");
    assert!(end.contains("# goes on from here") && end.contains("gpucl down -c eight"), "{end}");
}

/// The rules drop SSH as well: they are taken back before a person has to drive to the machine.
#[test]
#[ignore = "by hand: just testbed-all"]
fn a_firewall_that_would_lock_us_out_is_rolled_back() {
    let hosts = Hosts::start(2);
    hosts.without_docker();
    hosts.with_packages();
    let own = include_str!("../../../playbooks/firewall.yaml");
    let broken = own
        .replace("tcp dport { $ports } drop\n", "tcp dport { $ports } drop\n          tcp dport 22 drop\n")
        .replace("revert_after: \"60\"", "revert_after: \"15\"");
    assert_ne!(broken.matches("dport 22").count(), 0);
    playbook(&hosts.env, "firewall", &broken);
    hosts.env.write("cluster.yaml", &hosts.spec("locked"));
    let up = Running::begin(&hosts.env, &["up"]);
    until("a host is closed, or it ended", 300, || {
        let is_closed = hosts.sh(0, "nft list tables").contains("gpucl");
        (is_closed || up.said().contains("error: ")).then_some(())
    });
    let (code, said) = up.end(600);
    println!("{said}");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the firewall's rules were reverted: nobody confirmed them in time"), "{said}");
    assert!(said.contains("hint: run the same command again"), "{said}");
    for index in 0..2 {
        until("the rules are gone", 60, || (!hosts.sh(index, "nft list tables").contains("gpucl")).then_some(()));
    }
    let data = testbed()["data_dir"].as_str().unwrap();
    let _ = hosts.env.run(&["--data-dir", data, "down", "--yes"]).exits(0).prints("nothing of locked is left");
}
