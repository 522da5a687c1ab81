//! No trace: a host that was in use before is unchanged after `down`.

use super::spec::{env, gpucl, spec};
use super::testbed::{TestHost, testbed};
use crate::support::turn;

/// All that must be equal, a line each.
const SNAPSHOT: &str = r#"
cd /
echo '== files'
find etc usr/local opt var/lib/gpucl home -xdev \( -type f -o -type l -o -type d \) 2>/dev/null | sort |
    while read -r path; do
        if [ -L "$path" ]; then echo "$path -> $(readlink "$path")"
        elif [ -f "$path" ]; then echo "$path $(stat -c '%a %U:%G %s' "$path") $(sha256sum <"$path" | cut -c1-16)"
        else echo "$path $(stat -c '%a %U:%G' "$path")"; fi
    done
echo '== rules'; nft list ruleset 2>/dev/null | sed 's/counter packets [0-9]* bytes [0-9]*/counter/'
echo '== listeners'; ss -lntuH | awk '{ print $1, $5 }' | sort
echo '== units'; systemctl list-unit-files --no-legend --no-pager | sort
echo '== containers'; docker ps -a --no-trunc --format '{{.ID}} {{.Names}} {{.Image}} {{.State}}' | sort
docker inspect -f '{{.Name}} {{.State.StartedAt}}' $(docker ps -aq) | sort
echo '== volumes'; docker volume ls -q | sort
echo '== networks'; docker network ls --no-trunc --format '{{.ID}} {{.Name}}' | sort
"#;

/// A host with Docker, drivers, the testbed's registry as its mirror, and somebody's container.
pub(crate) fn host_in_use(name: &str, gpus: &str) -> TestHost {
    let host = TestHost::start(name, &["--gpus", gpus, "--image", "ready"]);
    let registry = testbed()["registry"].as_str().unwrap();
    host.sh(&format!(
        "mkdir -p /etc/docker && echo '{{\"registry-mirrors\":[\"{registry}\"]}}' > /etc/docker/daemon.json && systemctl restart docker && \
         modprobe nvidia && mkdir -p /etc/cdi && nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && \
         docker run -d --name stranger --entrypoint sleep prom/prometheus:v3.15.0 infinity"
    ));
    // Somebody has logged in before: the first login of all leaves a file of Ubuntu's in the home.
    host.login("true");
    host
}

#[test]
#[ignore = "testbed"]
fn a_host_in_use_is_unchanged_after_down() {
    let _turn = turn();
    let host = host_in_use("used", "nvidia:1");
    let env = env();
    let text = spec("used", &[&host], "");
    let text: String =
        text.lines().filter(|line| !line.contains("registry_mirror")).map(|line| format!("{line}\n")).collect();
    env.write("cluster.yaml", &text);
    let before = host.sh(SNAPSHOT);
    let up = gpucl(&env, &["up"]).exits(0).prints("ready:");
    println!("{}", up.stderr);
    assert_ne!(host.sh(SNAPSHOT), before);
    println!("{}", gpucl(&env, &["down", "--yes"]).exits(0).stdout);
    let after = host.sh(SNAPSHOT);
    let differ: Vec<String> = before
        .lines()
        .filter(|line| !after.lines().any(|other| other == *line))
        .map(|line| format!("- {line}"))
        .chain(after.lines().filter(|line| !before.lines().any(|other| other == *line)).map(|line| format!("+ {line}")))
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
    println!("equal before and after: {} lines", before.lines().count());
}
