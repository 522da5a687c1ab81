//! What pods do before their Ray starts: `setup`, `data` and `files` of a spec.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::testbed::{self, kubectl, nothing_is_left, place, turn};
use crate::support::TestEnv;

/// What is in a job's `$GPUCL_DATA`, and what its packages and commands have left.
const LOOK: &str = "import os, ray
ray.init()
@ray.remote
def look():
    data = os.environ['GPUCL_DATA']
    text = lambda *path: open(os.path.join(data, *path)).read().strip()
    import gpucl_probe
    return gpucl_probe.WHERE, text('set', 'x'), text('code', 'main.py'), text('code', 'deep', 'y'), open('/tmp/mark').read().strip()
print('found', *ray.get(look.remote()))
";

/// A package index with one package, for pods: it listens where only they reach it.
struct Index(Child, String);

impl Index {
    fn start(env: &TestEnv) -> Self {
        let folder = env.work().join("index/simple/gpucl-probe");
        std::fs::create_dir_all(&folder).unwrap();
        let wheel = "import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + '/gpucl_probe-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('gpucl_probe.py', 'WHERE = \"indexed\"\\n')
    about = 'gpucl_probe-1.0.dist-info/'
    wheel.writestr(about + 'METADATA', 'Metadata-Version: 2.1\\nName: gpucl-probe\\nVersion: 1.0\\n')
    wheel.writestr(about + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(about + 'RECORD', '')
";
        let made = Command::new("python3").args(["-c", wheel]).arg(&folder).status().unwrap();
        assert!(made.success());
        // On the node: pods do not reach this machine. It ends with its input.
        let server = testbed::testbed()["server"].as_str().unwrap();
        let node = server.trim_start_matches("https://").split(':').next().unwrap();
        let serve = "import functools, http.server, os, sys, threading
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])
server = http.server.ThreadingHTTPServer((sys.argv[1], 0), handler)
print(server.server_port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
server.serve_forever()
";
        let mut child =
            testbed::on_node(&["python3", "-c", serve, node, &env.work().join("index").display().to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
        let mut port = String::new();
        let mut out = child.stdout.take().unwrap();
        let mut byte = [0];
        while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            port.push(byte[0].into());
        }
        Self(child, format!("http://{node}:{port}"))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "by hand: just kube"]
fn pods_have_the_packages_data_and_files_of_the_spec() {
    let _turn = turn();
    let env = TestEnv::new();
    let index = Index::start(&env);
    std::fs::create_dir_all(env.work().join("code/deep")).unwrap();
    env.write("code/main.py", "first");
    env.write("code/deep/y", "deep");
    let workers = json!([{ "name": "cpu", "count": 1, "cpus": 1 }]);
    let spec = |setup: Value| {
        let more = json!({
            "setup": setup,
            "data": [{ "name": "set", "from": { "command": "echo filled >x" }, "check": "test -s x" }],
            "files": [{ "path": "code", "to": "code" }],
        });
        testbed::spec(&env, "prep", &testbed::settings("ada", &json!({})), &workers, &more)
    };
    let host = index.1.trim_start_matches("http://").split(':').next().unwrap().to_owned();
    let with = |commands: &[&str]| {
        spec(json!({
            "index_url": format!("{}/simple", index.1),
            "pip": [format!("--trusted-host {host}"), "gpucl-probe"],
            "commands": commands,
        }))
    };
    // What fails says where, within the wait for its pod.
    let wrong = with(&["true", "echo about to fail; exit 4"]);
    let up = env.run(&["up", "--yes", "--at", &place("ada"), &wrong]);
    let says = "setup: command 2 of 2 failed with exit status 4: echo about to fail; exit 4; it was run by sh, \
                and last printed: about to fail";
    assert!(up.code != Some(0) && up.stderr.contains(says), "{:?} {}", up.code, up.stderr);

    let right = with(&["echo made >/tmp/mark"]);
    let up = env.run(&["up", "--yes", &right]).exits(0).prints("ready:");
    assert!(up.stderr.contains("1 data set, 1 bundle of files: whole"), "{}", up.stderr);
    let job = |says: &str| {
        env.run(&["job", "submit", "-c", "prep", "--", "python", "-c", LOOK]).exits(0).prints(says);
    };
    job("found indexed filled first deep made");
    env.run(&["up", "--yes", &right]).exits(0).prints("nothing was changed");

    // Other files reach pods that run, and none is made again; new pods have them, too.
    let pods = || kubectl(&["-n", "team-a", "get", "pods", "-o", "name"]);
    let before = pods();
    env.write("code/main.py", "second");
    env.run(&["plan", &right]).exits(0).prints("preparation, update");
    env.run(&["up", "--yes", &right]).exits(0).prints("1 operation");
    assert_eq!(pods(), before);
    job("found indexed filled second deep made");
    env.run(&["worker", "kill", "-c", "prep", "cpu"]).exits(0);
    env.run(&["up", "--yes", &right]).exits(0).prints("ready:");
    assert_ne!(pods(), before);
    job("found indexed filled second deep made");
    env.run(&["verify", "-c", "prep"]).exits(0);
    env.run(&["stop", "-c", "prep"]).exits(0);
    env.run(&["up", "--yes", &right]).exits(0);
    env.run(&["down", "--yes", "-c", "prep"]).exits(0);
    nothing_is_left();

    // More than an object holds is refused before anything is made.
    let mut noise = vec![0; 1_500_000];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
    std::fs::write(env.work().join("code/large.bin"), noise).unwrap();
    let up = env.run(&["up", "--yes", "--at", &place("ada"), &right]);
    assert!(up.code == Some(2) && up.stderr.contains("a ConfigMap holds"), "{:?} {}", up.code, up.stderr);
    nothing_is_left();
}
