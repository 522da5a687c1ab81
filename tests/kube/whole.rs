//! From a spec to a verified cluster and back to nothing, as a user of one namespace.

use serde_json::json;

use super::testbed::{self, kubectl, nothing_is_left, place, testbed, turn};
use crate::support::TestEnv;

#[test]
#[ignore = "testbed"]
fn a_cluster_is_brought_up_changed_stopped_and_removed() {
    let _turn = turn();
    let env = TestEnv::new();
    let gpu = json!({ "name": "gpu", "count": 1, "cpus": 1, "gpus": 1 });
    let cpu = json!({ "name": "cpu", "min": 0, "max": 2, "cpus": 1, "resources": { "fast": 2 } });
    let settings = testbed::settings("ada", &json!({}));
    let spec = testbed::spec(&env, "demo", &settings, &json!([gpu, cpu]), &json!({}));
    // A file does not choose the place of a first cluster.
    env.run(&["up", "--yes", &spec]).exits(2).says("--at");
    let up = env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(0).prints("ready:");
    println!("{}", up.stderr);
    assert!(up.stdout.contains("CUDA: 1 MiB written and read back"), "{}", up.stdout);
    assert!(up.stderr.contains("token enforced"), "{}", up.stderr);
    env.run(&["up", "--yes", &spec]).exits(0).prints("nothing was changed");
    env.run(&["status", "-c", "demo"]).exits(0).prints("ready");
    env.run(&["verify", "-c", "demo"]).exits(0);

    // Jobs: one on the GPU, and one for which Ray's autoscaler makes a worker.
    let program =
        "import ray; ray.init(); print('on', ray.get(ray.remote(num_gpus=1)(lambda: ray.get_gpu_ids()).remote()))";
    env.run(&["job", "submit", "-c", "demo", "--", "python", "-c", program]).exits(0).prints("on [");
    let program =
        "import ray; ray.init(); print('fast', ray.get(ray.remote(resources={'fast': 1})(lambda: 7).remote()))";
    env.run(&["job", "submit", "-c", "demo", "--", "python", "-c", program]).exits(0).prints("fast 7");
    let there = env.run(&["exec", "-c", "demo", "--host", "head", "--", "sh", "-c", "id -u; exit 3"]);
    assert_eq!((there.code, there.stdout.trim()), (Some(3), "1000"), "{}", there.stderr);
    env.run(&["cp", "-c", "demo", "head:x", "."]).exits(1).says("not supported there yet");

    // What differs is changed, and nothing else.
    let pods = || kubectl(&["-n", "team-a", "get", "pods", "-l", "ray.io/node-type=head", "-o", "name"]);
    let head = pods();
    let more = json!({ "groups": { "gpu": { "labels": { "changed": "yes" } } } });
    let gpu = json!({ "name": "gpu", "count": 1, "cpus": 1, "gpus": 1 });
    let cpu = json!({ "name": "cpu", "min": 0, "max": 2, "cpus": 1, "resources": { "fast": 2 } });
    let spec = testbed::spec(&env, "demo", &testbed::settings("ada", &more), &json!([gpu, cpu]), &json!({}));
    env.run(&["plan", &spec]).exits(0).prints("1 worker of the group gpu");
    env.run(&["up", "--yes", &spec]).exits(0).prints("1 operation");
    assert_eq!(pods(), head, "the head stays");

    env.run(&["stop", "-c", "demo"]).exits(0);
    assert_eq!(kubectl(&["-n", "team-a", "get", "pods", "-o", "name"]), "");
    env.run(&["status", "-c", "demo"]).prints("stopped");
    env.run(&["up", "--yes", &spec]).exits(0).prints("ready:");
    let down = env.run(&["down", "--yes", "-c", "demo"]).exits(0).prints("nothing of demo is left");
    println!("{}{}", down.stdout, down.stderr);
    nothing_is_left();
    assert_eq!(testbed()["gpus"], 2);
}
