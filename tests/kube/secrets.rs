//! Secrets of jobs: in the job's processes, also in pods that come later, and in nothing else.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use super::testbed::{self, kubectl, nothing_is_left, place, turn};
use crate::support::{TestEnv, until, until_or};

const VALUE: &str = "v3ry 's3cret' \"value\" $HOME";

/// A job whose tasks run on the head and on a pod that is made for it, each in its process.
const DIGESTS: &str = "
import hashlib, os, sys, time, ray
digest = lambda: hashlib.sha256(os.environ.get('TOKEN', '').encode()).hexdigest()[:16]
ray.init()
print('own', digest(), flush=True)
print('task', ray.get(ray.remote(num_cpus=1)(digest).remote()), flush=True)
while os.path.exists('/data/go-on'):
    time.sleep(0.5)
print('again', ray.get(ray.remote(num_cpus=1)(digest).remote()), flush=True)
";

/// Stores a secret of the user.
pub(super) fn keep_secret(env: &TestEnv, name: &str, value: &str) {
    let mut child = env.command(&["secret", "set", name]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{value}").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "by hand: just kube"]
fn secrets_reach_the_job_and_nobody_else() {
    let _turn = turn();
    let env = TestEnv::new();
    let workers = json!([{ "name": "cpu", "min": 0, "max": 1, "cpus": 1 }]);
    let spec = testbed::spec(
        &env,
        "quiet",
        &testbed::settings("ada", &json!({ "idle_timeout": "10s" })),
        &workers,
        &json!({}),
    );
    env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(0);
    keep_secret(&env, "MY_TOKEN", VALUE);
    let keys = || {
        let secret = kubectl(&["-n", "team-a", "get", "secrets", "-l", "gpucl.dev/cluster=quiet", "-o", "json"]);
        let secret: serde_json::Value = serde_json::from_str(&secret).unwrap();
        let data = secret["items"][0]["data"].as_object().unwrap().clone();
        data.keys().cloned().collect::<Vec<_>>()
    };
    let before = keys();
    let on_head = |script: &str| env.run(&["exec", "-c", "quiet", "--host", "head", "--", "sh", "-c", script]).exits(0);
    on_head("touch /data/go-on");
    let _ = env.write("code/digests.py", DIGESTS);
    let job = ["job", "submit", "-c", "quiet", "--working-dir", "code", "--no-wait", "--id", "quiet-1"];
    env.run(&[&job[..], &["--secret", "MY_TOKEN=TOKEN", "--", "python", "digests.py"]].concat()).exits(0);
    let digest = gpucl::util::digest::short(VALUE.as_bytes());
    let logs = || env.run(&["job", "logs", "-c", "quiet", "quiet-1"]).stdout;
    until("the task on a pod that was made for it", 180, || logs().contains(&format!("task {digest}")).then_some(()));
    assert!(logs().contains(&format!("own {digest}")), "{}", logs());
    // While the job has it, it is in one Secret, and `up` leaves it there.
    assert_eq!(keys().len(), before.len() + 1);
    env.run(&["up", "--yes", &spec]).exits(0);
    assert_eq!(keys().len(), before.len() + 1);
    let objects = kubectl(&["-n", "team-a", "get", "pods,rayclusters,configmaps,events", "-o", "yaml"]);
    assert!(!objects.contains("s3cret"));
    let status = env.run(&["job", "list", "-c", "quiet", "--all", "--output", "json"]).exits(0).stdout;
    assert!(!status.contains("s3cret"), "{status}");
    // A job that was not given it does not have it.
    let none = ["job", "submit", "-c", "quiet", "--", "sh", "-c", "echo has ${TOKEN:-none}"];
    env.run(&none).exits(0).prints("has none");
    // From no worker to one, and back to none: the next one has it, too.
    let pods = || kubectl(&["-n", "team-a", "get", "pods", "-l", "ray.io/node-type=worker", "-o", "name"]);
    until_or("the autoscaler removes the idle worker", 120, || pods().is_empty().then_some(()), pods);
    on_head("rm /data/go-on");
    until("the task on the next pod", 180, || logs().contains(&format!("again {digest}")).then_some(()));
    until("the end of the job", 60, || {
        env.run(&["job", "status", "-c", "quiet", "quiet-1"]).stdout.contains("SUCCEEDED").then_some(())
    });
    env.run(&["job", "list", "-c", "quiet"]).exits(0);
    assert_eq!(keys(), before, "it is gone when the job has ended");
    let left = on_head("ls -A /data");
    assert!(!left.stdout.contains("secrets"), "{}", left.stdout);
    // A job that is lost by `stop` takes its secrets with it.
    env.run(&["job", "submit", "-c", "quiet", "--no-wait", "--secret", "MY_TOKEN", "--", "sleep", "600"]).exits(0);
    assert_eq!(keys().len(), before.len() + 1);
    env.run(&["stop", "-c", "quiet"]).exits(0);
    assert_eq!(kubectl(&["-n", "team-a", "get", "secrets", "-l", "gpucl.dev/cluster=quiet", "-o", "name"]), "");
    env.run(&["down", "--yes", "-c", "quiet"]).exits(0).prints("nothing of quiet is left");
    nothing_is_left();
}
