//! `setup` with containers: an image of its own, replaced when the content changes, and gone with the cluster.

use super::spec::{env, gpucl, spec};
use super::testbed::TestHost;
use crate::support::turn;

/// No GPUs and no services but Jupyter.
const MORE: &str = "services: {object_store: false, prometheus: false}\n";
/// Makes a package index with one package, and serves it on the host.
const INDEX: &str = r#"mkdir -p /srv/index/simple/gpucl-probe && cd /srv/index/simple/gpucl-probe && python3 - <<'EOF'
import zipfile
with zipfile.ZipFile("gpucl_probe-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("gpucl_probe.py", "WHERE = 'from the index'\n")
    about = "gpucl_probe-1.0.dist-info/"
    wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: gpucl-probe\nVersion: 1.0\n")
    wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(about + "RECORD", "")
EOF
(setsid python3 -m http.server 5599 --directory /srv/index >/dev/null 2>&1 </dev/null &) ; sleep 1"#;

#[test]
#[ignore = "by hand: just more-hosts"]
fn containers_run_the_image_of_their_setup() {
    let _turn = turn();
    let host = TestHost::start("setup", &["--gpus", "nvidia:1"]);
    let env = env();
    let up = |setup: &str| {
        env.write("cluster.yaml", &spec("setup", &[&host], &format!("{MORE}setup: {setup}\n")));
        gpucl(&env, &["up"])
    };
    let running = || host.sh("docker ps --no-trunc --format '{{.ID}} {{.Image}}' | sort");
    let job = |program: &str| gpucl(&env, &["job", "submit", "--", "python3", "-c", program]).exits(0);

    up("{commands: ['echo first >$HOME/mark']}").exits(0);
    let first = running();
    assert_eq!(first.matches(" gpucl/ray-setup:").count(), 2, "head and worker: {first}");
    assert_eq!(first.lines().filter(|line| line.contains(" gpucl/jupyter")).count(), 1, "{first}");
    let _ = job("import os; print(open(os.path.expanduser('~/mark')).read())").prints("first");
    up("{commands: ['echo first >$HOME/mark']}").exits(0).prints("nothing was changed");

    // What fails says where, and touches no container.
    up("{commands: ['true', 'echo about to fail; exit 4']}")
        .exits(1)
        .says("setup: command 2 of 2 failed with exit status 4: echo about to fail; exit 4; it last printed: about to fail")
        .says("Each command is run by `sh`: one that needs bash");
    host.sh(INDEX);
    let gateway = host.sh("docker network inspect bridge -f '{{(index .IPAM.Config 0).Gateway}}'").trim().to_owned();
    let index = format!("index_url: 'http://{gateway}:5599/simple', pip: ['--trusted-host {gateway}'");
    up(&format!("{{{index}, gpucl-has-no-such-package]}}")).exits(1).says("gpucl-has-no-such-package");
    assert_eq!(running(), first);

    // Another content is another image, for all of them.
    up(&format!("{{{index}, gpucl-probe]}}")).exits(0);
    let second = running();
    assert!(first.lines().all(|line| !second.contains(line)), "{first}{second}");
    let _ = job("import gpucl_probe; print(gpucl_probe.WHERE)").prints("from the index");
    let jupyter =
        host.sh("docker exec $(docker ps -q --filter name=jupyter) python3 -c 'import gpucl_probe; print(1)'");
    assert_eq!(jupyter, "1\n");

    gpucl(&env, &["down", "--yes"]).exits(0).prints("nothing of setup is left");
    assert_eq!(host.sh("docker image ls --format '{{.Repository}}' | grep -c ^gpucl/ || :").trim(), "0");
}
