//! What a job can do to the host, to the cloud and to the other services: an attack by a job that was submitted as any
//! other.

use super::spec::gpucl;
use super::testbed::TestHost;
use crate::support::{TestEnv, until};

/// The attack. Each line that it prints is one attempt and what came of it.
const ATTACK: &str = r#"
import glob, os, signal, socket, subprocess, time, urllib.request

def tell(what, got):
    print(f"attack {what}: {got}", flush=True)

def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    return done.stdout.strip() if done.returncode == 0 else "refused"

raw = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); print('open')"
tell("sudo", run("sudo", "-n", "id", "-u"))
tell("raw", run("python3", "-c", raw))
tell("raw by sudo", run("sudo", "-n", "/usr/bin/python3", "-c", raw))
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
tell("status", f"NoNewPrivs {status['NoNewPrivs']} CapBnd {status['CapBnd']} CapEff {status['CapEff']}")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    tell("metadata", opener.open("http://169.254.169.254/user-data", timeout=5).read().decode().strip())
except OSError as error:
    tell("metadata", f"refused ({error})")
tell("files", " ".join(sorted(os.listdir("/run/gpucl/secrets"))))

# A probe of the cluster inside this container is stopped, and what it was given is read instead.
tell("watching", "now")
end, caught = time.monotonic() + 90, 0
while time.monotonic() < end and not caught:
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            line = open(f"{folder}/cmdline", "rb").read().split(b"\0")
            if b"/opt/gpucl/probe.py" not in line:
                continue
            pid = int(folder[6:])
            os.kill(pid, signal.SIGSTOP)
            try:
                pipe = os.open(f"{folder}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
                time.sleep(0.3)
                got = os.read(pipe, 65536).decode(errors="replace").split() if b"cluster" in line else []
                got += open(f"{folder}/environ").read().split("\0")
            finally:
                os.kill(pid, signal.SIGCONT)
            if b"cluster" in line:
                caught += 1
                tell("probe", " ".join(got))
        except (OSError, ValueError):
            pass
tell("caught", caught)
"#;

/// A job that tries what a hostile one would, while the cluster is verified: it gets what the cluster gives to every
/// job and no more.
pub(crate) fn a_job_gets_nothing_but_its_own(env: &TestEnv, host: &TestHost, cluster: &str) {
    let image = host.sh("docker ps --format '{{.Names}}' | grep -- '-head$'");
    assert!(
        host.sh(&format!("docker exec {} sh -c 'test -u /usr/bin/sudo && echo there'", image.trim())).contains("there"),
        "the image has sudo, or the attack is none"
    );
    // What a cloud has there, on this host itself.
    host.sh(
        "ip addr replace 169.254.169.254/32 dev lo && mkdir -p /tmp/metadata && echo host-key-of-the-user-data >/tmp/metadata/user-data && \
         (setsid python3 -m http.server 80 --bind 169.254.169.254 --directory /tmp/metadata >/dev/null 2>&1 </dev/null &)",
    );
    let fetch = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://169.254.169.254/user-data\", timeout=5).read().decode())'";
    until("the metadata service", 30, || host.try_sh(fetch).status.success().then_some(()));
    std::fs::create_dir_all(env.work().join("attack")).unwrap();
    env.write("attack/attack.py", ATTACK);
    let submit =
        ["job", "submit", "--no-wait", "--id", "attack", "--working-dir", "attack", "--", "python", "attack.py"];
    gpucl(env, &submit).exits(0);
    let logs = || gpucl(env, &["job", "logs", "attack"]).stdout;
    until("the attack to watch", 60, || logs().contains("attack watching").then_some(()));
    gpucl(env, &["verify"]).exits(0);
    let said = until("the attack to end", 120, || Some(logs()).filter(|said| said.contains("attack caught")));
    println!("{said}");
    let line = |what: &str| {
        let prefix = format!("attack {what}: ");
        let found = said.lines().find_map(|line| line.split_once(&prefix).map(|(_, rest)| rest.to_owned()));
        found.unwrap_or_else(|| panic!("no line of `{what}`: {said}"))
    };
    assert_eq!(line("caught"), "1", "the probe of the cluster was caught, or nothing is shown");
    assert_eq!(line("sudo"), "refused");
    assert_eq!(line("raw"), "refused");
    assert_eq!(line("raw by sudo"), "refused");
    assert_eq!(line("status"), "NoNewPrivs 1 CapBnd 0000000000000000 CapEff 0000000000000000");
    assert!(line("metadata").starts_with("refused"), "{said}");
    assert!(host.sh(fetch).contains("host-key-of-the-user-data"), "the host itself still reaches it");
    assert_eq!(line("files"), "aws_credentials mlflow.json prometheus_headers ray_token");
    for name in ["grafana_password", "jupyter_token"] {
        let path = env.home().join(format!(".local/state/gpucl/clusters/{cluster}/secrets/{name}"));
        let secret = std::fs::read_to_string(path).unwrap();
        assert!(!said.contains(secret.trim()), "the job read {name}: {said}");
    }
    host.sh("pkill -f '[h]ttp.server 80 --bind 169.254' ; ip addr del 169.254.169.254/32 dev lo; rm -rf /tmp/metadata");
}
