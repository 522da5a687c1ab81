//! Closed by default: open ports, and places of secrets.

use super::spec::gpucl;
use super::testbed::{TestHost, docker, testbed};
use crate::support::{TestEnv, until};

/// The port of a stranger's server on the host.
const FOREIGN: u16 = 5599;

/// From another machine on the hosts' network, each port that the host listens on is tried: only SSH's answers, and a
/// stranger's.
pub(crate) fn nothing_of_ours_answers(host: &TestHost) {
    host.sh(&format!(
        "mkdir -p /var/empty; (setsid python3 -m http.server {FOREIGN} --directory /var/empty >/dev/null 2>&1 </dev/null &)"
    ));
    let listens = || host.sh("ss -lntH | awk '{ print $4 }' | sed 's/.*://' | sort -nu");
    let is_foreign = |port: &str| port == FOREIGN.to_string();
    let listening =
        until("the stranger's server", 30, || Some(listens()).filter(|ports| ports.lines().any(is_foreign)));
    let ports: Vec<&str> = listening.split_whitespace().collect();
    assert!(ports.len() > 5 && ports.contains(&"22"), "{ports:?}");
    let probe = format!(
        "import socket\nfor port in {ports:?}:\n    s = socket.socket(); s.settimeout(2)\n    \
         print(port, s.connect_ex(('{}', int(port))))\n    s.close()\n",
        host.address()
    );
    let network = testbed()["network"].as_str().unwrap();
    let image = docker(&["inspect", "-f", "{{.Config.Image}}", "gpucl-testbed-apt"]);
    let answers = docker(&["run", "--rm", "--network", network, "--entrypoint", "python3", image.trim(), "-c", &probe]);
    let open: Vec<&str> = answers.lines().filter_map(|line| line.strip_suffix(" 0")).collect();
    println!("tried {} ports from outside, open: {open:?}", ports.len());
    assert_eq!(open, ["22", &FOREIGN.to_string()], "of {ports:?}");
}

/// A machine on the same layer 2 sends what no router would: packets to 127.0.0.1, and to the addresses of our
/// containers, straight to the host. Engines before 28 let both in, so what newer ones do about it is taken away here.
pub(crate) fn a_neighbour_reaches_nothing(env: &TestEnv, host: &TestHost) {
    host.sh("iptables -t raw -F PREROUTING 2>/dev/null || true");
    let inspect = "docker inspect -f '{{range $port, $on := .NetworkSettings.Ports}}{{range $on}}{{$port}} {{.HostPort}}{{println}}{{end}}{{end}}' \
                   $(docker ps -q --filter label=gpucl.tag)";
    let published = host.sh(inspect);
    let addresses = host.sh(
        "docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{println}}{{end}}' $(docker ps -q --filter label=gpucl.tag)",
    );
    let mut targets: Vec<(String, String)> = Vec::new();
    for line in published.lines().filter(|line| !line.trim().is_empty()) {
        let (inside, outside) = line.split_once(' ').unwrap();
        targets.push(("127.0.0.1".to_owned(), outside.trim().to_owned()));
        let inside = inside.trim_end_matches("/tcp");
        targets.extend(addresses.split_whitespace().map(|address| (address.to_owned(), inside.to_owned())));
    }
    assert!(targets.len() > 10, "{targets:?}");
    let script = format!(
        "import socket, subprocess\nfrom concurrent.futures import ThreadPoolExecutor\nsubprocess.run('ip addr del 127.0.0.1/8 dev lo', shell=True, check=True)\n\
         targets = {targets:?}\nfor address in sorted(set(address for address, _ in targets)):\n    \
         subprocess.run(f'ip route replace {{address}}/32 via {} dev eth0', shell=True, check=True)\n\
         def is_open(target):\n    s = socket.socket(); s.settimeout(3)\n    \
         code = s.connect_ex((target[0], int(target[1]))); s.close()\n    return code == 0\n\
         with ThreadPoolExecutor(len(targets)) as pool:\n    for target, found in zip(targets, pool.map(is_open, targets)):\n        \
         if found: print('open', *target)\nprint('tried')\n",
        host.address()
    );
    let network = testbed()["network"].as_str().unwrap();
    let image = docker(&["inspect", "-f", "{{.Config.Image}}", host.container()]);
    let neighbour = |script: &str| {
        let local = ["--sysctl", "net.ipv4.conf.all.route_localnet=1", "--sysctl", "net.ipv4.conf.all.rp_filter=0"];
        let run = ["run", "--rm", "--cap-add", "NET_ADMIN", "--network", network, "--entrypoint", "python3"];
        docker(&[&run[..], &local[..], &[image.trim(), "-c", script]].concat())
    };
    let said = neighbour(&script);
    println!("a neighbour tried {} ports and addresses: {said}", targets.len());
    assert_eq!(said.trim(), "tried", "a neighbour reaches what is on the loopback or within the containers' network");
    // It is our rules that keep it out: without them it comes in, and the cluster is not ready. What sets them at boot
    // sets them again.
    let table = host.sh("nft list tables | sed -n 's/^table inet \\(gpucl_.*_closed\\)$/\\1/p'");
    host.sh(&format!("nft delete table inet {table}"));
    let said = neighbour(&script);
    assert!(said.contains("open 127.0.0.1"), "{said}");
    gpucl(env, &["verify"]).exits(3).says("are gone or changed");
    host.sh(&format!("systemctl restart {}", table.trim().replace('_', "-")));
    assert_eq!(neighbour(&script).trim(), "tried");
}

/// Everything that another program or person could read, on the host and on this machine, searched for every secret.
pub(crate) fn no_secret_is_anywhere(env: &TestEnv, host: &TestHost, cluster: &str) {
    let folder = env.home().join(format!(".local/state/gpucl/clusters/{cluster}"));
    let mut secrets = Vec::new();
    for entry in std::fs::read_dir(folder.join("secrets")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        secrets.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap().trim().to_owned()));
    }
    assert!(secrets.len() >= 6, "{secrets:?}");
    let planted = "planted-9f31c2a7b6d84e05";
    host.sh(&format!("echo {planted} > /tmp/planted"));

    let environments = host.sh("ps axeww");
    // The processes of jobs have the login of MLflow, and whoever may read their environment is root or their user.
    let of_others: String = environments.lines().filter(|line| !line.contains(" GPUCL_MLFLOW=")).collect();
    let seen_on_host = [
        ("ps", host.sh("ps axww")),
        ("docker inspect", host.sh("docker inspect $(docker ps -aq)")),
        ("images", host.sh("for i in $(docker images -q | sort -u); do docker history --no-trunc $i; docker inspect $i; done")),
        ("logs", host.sh("for c in $(docker ps -aq); do docker logs $c 2>&1; done; journalctl --no-pager -o cat 2>/dev/null | tail -n 20000")),
        (
            "files",
            host.sh("find /var/lib/gpucl /etc /tmp /home /opt -xdev -path '*/secrets/*' -prune -o -type f -size -2M -print0 2>/dev/null | xargs -0 cat 2>/dev/null; true"),
        ),
    ];
    assert!(seen_on_host.iter().any(|(_, text)| text.contains(planted)), "the scan finds what is planted");
    let here = {
        let mut text = String::new();
        read_all(&env.home(), &mut text);
        text
    };
    for (name, secret) in &secrets {
        for (what, text) in &seen_on_host {
            assert!(!text.contains(secret.as_str()), "{name} is in {what} of the host");
        }
        let readable = if name.ends_with("/mlflow_password") { &of_others } else { &environments };
        assert!(!readable.contains(secret.as_str()), "{name} is in an environment on the host");
        assert!(!here.contains(secret.as_str()), "{name} is in a file of this machine other than its own");
    }
    let folders = host.sh("find /var/lib/gpucl -type d -name secrets -printf '%m %p\n'");
    assert!(!folders.is_empty() && folders.lines().all(|line| line.starts_with("700 ")), "{folders}");
}

fn mode(path: &std::path::Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// All files below a folder but those in folders of secrets.
fn read_all(folder: &std::path::Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("secrets") {
            read_all(&path, text);
        } else if path.is_file() {
            text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()));
        }
    }
}
