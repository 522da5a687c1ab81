//! What is lost while a cluster runs: a worker, the head, the API server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::json;

use super::testbed::{self, kubectl, nothing_is_left, place, turn};
use crate::scenario::by_hand::check_drill;
use crate::support::{After, TestEnv, dashboard_lists_nodes_in_a_browser, drain_a_worker, until};

/// A task that is lost is run again; the first time it says where it runs, so that its worker can be deleted.
const RESUMES: &str = "import os, socket, time, ray
ray.init()
@ray.remote(num_gpus=1, max_retries=3)
def step():
    print('running on', socket.gethostname(), flush=True)
    time.sleep(25)
    return socket.gethostname()
print('done by', ray.get(step.remote()))
";

/// A program that runs until this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether Ray's dashboard answers at an address.
fn answers(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let request = "GET /api/gcs_healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.contains("200 OK")
}

#[test]
#[ignore = "by hand: just kube"]
fn a_lost_worker_and_a_lost_head_are_survived() {
    let _turn = turn();
    let env = TestEnv::new();
    let workers = json!([{ "name": "gpu", "count": 1, "cpus": 1, "gpus": 1 }]);
    let spec = testbed::spec(&env, "lost", &testbed::settings("ada", &json!({})), &workers, &json!({}));
    env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(0);
    dashboard_lists_nodes_in_a_browser(&env, "lost", 2);

    // A worker that is deleted while its task runs: KubeRay makes another, and Ray runs the task there.
    let job = ["job", "submit", "-c", "lost", "--", "python", "-c", RESUMES];
    let mut command = env.command(&job);
    let mut job = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(job.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let at = lines.find(|line| line.contains("running on lost-")).unwrap();
    let worker = at.rsplit("running on ").next().unwrap().split_whitespace().next().unwrap().to_owned();
    env.run(&["worker", "list", "-c", "lost"]).exits(0).prints("gpu-worker-");
    env.run(&["worker", "kill", "-c", "lost", &worker]).exits(0).prints("was killed");
    env.run(&["worker", "kill", "-c", "lost", "head"]).exits(2).says("the head is not a worker");
    env.run(&["worker", "stop", "-c", "lost", "gpu"]).exits(2).says("the platform decides which workers run");
    let done = lines.find(|line| line.contains("done by lost-")).unwrap();
    assert!(!done.contains(&worker), "{done}");
    assert!(job.0.wait().unwrap().success());
    let again = env.run(&["verify", "-c", "lost"]).exits(0);
    assert!(!again.stdout.contains(&worker), "{}", again.stdout);

    // A head that is deleted: the forwarded port leads to the new one.
    let mut command = env.command(&["port-forward", "-c", "lost", "head:8265"]);
    let mut forward = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let address = BufReader::new(forward.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(answers(&address));
    let head = kubectl(&["-n", "team-a", "get", "pods", "-l", "ray.io/node-type=head", "-o", "name"]);
    kubectl(&["-n", "team-a", "delete", head.trim(), "--grace-period=0", "--force"]);
    let _ = env.run(&["status", "-c", "lost"]);
    until("the same port answers from the new head", 120, || answers(&address).then_some(()));
    env.run(&["up", "--yes", &spec]).exits(0).prints("ready:");
    drop(forward);

    // The API server is restarted in the middle of a change: `up` goes on.
    let more = json!([{ "name": "gpu", "count": 1, "cpus": 2, "gpus": 1 }]);
    let spec = testbed::spec(&env, "lost", &testbed::settings("ada", &json!({})), &more, &json!({}));
    let mut command = env.command(&["up", "--yes", &spec]);
    let up = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    testbed::inside("pkill -9 -x kube-apiserver");
    let up = up.wait_with_output().unwrap();
    assert!(up.status.success(), "`up` ended with the API server: {}", String::from_utf8_lossy(&up.stderr));
    env.run(&["up", "--yes", &spec]).exits(0).prints("nothing was changed");
    env.run(&["down", "--yes", "-c", "lost"]).exits(0);
    nothing_is_left();
}

/// Ray's own command takes a worker out of its cluster, and the pod would go on without it: its container starts anew.
#[test]
#[ignore = "by hand: just kube"]
fn a_worker_that_ray_has_lost_starts_anew() {
    let _turn = turn();
    let env = TestEnv::new();
    let workers = json!([{ "name": "cpu", "count": 1, "cpus": 1 }]);
    let spec = testbed::spec(&env, "drained", &testbed::settings("ada", &json!({})), &workers, &json!({}));
    env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(0);
    let pods = ["-n", "team-a", "get", "pods", "-l", "ray.io/group=cpu", "-o"];
    let count = "jsonpath={.items[0].status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl(&[&pods[..], &[count]].concat()), "0");
    drain_a_worker(&env, "drained");
    until("its container starts anew", 60, || (kubectl(&[&pods[..], &[count]].concat()) == "1").then_some(()));
    let why = "jsonpath={.items[0].status.containerStatuses[0].lastState.terminated.message}";
    let said = kubectl(&[&pods[..], &[why]].concat());
    assert!(said.contains("Ray has lost this node: its raylet ended with exit code 0"), "{said}");
    env.run(&["up", "--yes", &spec]).exits(0).prints("ready:");
    env.run(&["down", "--yes", "-c", "drained"]).exits(0);
    nothing_is_left();
}

/// A drill kills the pod of a training, which goes on in another pod from what the head has kept.
#[test]
#[ignore = "by hand: just kube"]
fn a_drill_measures_how_a_training_goes_on() {
    let _turn = turn();
    let env = TestEnv::new();
    let workers = json!([{ "name": "cpu", "count": 2, "cpus": 1 }]);
    let spec = testbed::spec(&env, "drill", &testbed::settings("ada", &json!({})), &workers, &json!({}));
    env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(0);
    let pods = || kubectl(&["-n", "team-a", "get", "pods", "-l", "ray.io/group=cpu", "-o", "name"]);
    let before = pods();
    let worker = before.lines().last().unwrap().rsplit('/').next().unwrap();
    let drill = ["drill", "kill-worker", "-c", "drill", "--output", "json"];
    env.run(&[&drill[..], &["--worker", "nobody"]].concat()).exits(6);
    let lines = env.run(&[&drill[..], &["--worker", worker]].concat()).exits(0).json();
    let seen = lines.iter().find(|line| line["type"] == "drill").unwrap();
    println!("{seen}");
    check_drill(seen);
    assert!(worker.ends_with(seen["worker"].as_str().unwrap()), "{worker}: {seen}");
    assert!(!pods().contains(worker), "another pod has taken its place");
    assert!(pods().contains(seen["rescheduled_to"].as_str().unwrap()), "{seen}");
    let left = env.run(&["exec", "-c", "drill", "--host", "head", "--", "ls", "-A", "/data"]).exits(0);
    assert!(!left.stdout.contains("drill-"), "{}", left.stdout);
    env.run(&["down", "--yes", "-c", "drill"]).exits(0);
    nothing_is_left();
}

/// A machine that falls silent is named, and its pods are ready again when it is back.
#[test]
#[ignore = "by hand: just kube"]
fn a_machine_that_falls_silent_is_named() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = testbed::spec(&env, "silent", &testbed::settings("ada", &json!({})), &json!({ "count": 0 }), &json!({}));
    env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(0);
    testbed::inside("pkill -STOP -x kubelet");
    let back = After(|| testbed::inside("pkill -CONT -x kubelet"));
    let machine = testbed::testbed()["node"].as_str().unwrap();
    let says = format!("its machine {machine} does not answer");
    until("the machine is named", 120, || env.run(&["status", "-c", "silent"]).stdout.contains(&says).then_some(()));
    drop(back);
    env.run(&["up", "--yes", &spec]).exits(0).prints("ready:");
    env.run(&["down", "--yes", "-c", "silent"]).exits(0);
    nothing_is_left();
}
