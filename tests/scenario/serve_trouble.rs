//! What goes wrong while an application serves: a rollback under kept connections, a replica that dies, and the head.

use std::process::{Command, Stdio};

use crate::support::{Served, TestEnv, tagged_processes, turn, until};

const SPEC: &str =
    "name: hurt\nprovider: local\noversubscribe: true\nray: {head: {cpus: 0}, workers: {count: 2, cpus: 1}}\n";

const APP: &str = "
import os
from ray import serve

@serve.deployment(num_replicas=2, max_replicas_per_node=1, ray_actor_options={'num_cpus': 0.1})
class Food:
    async def __call__(self, request):
        return 'version ' + os.environ['VERSION']

food = Food.bind()
";

/// The processes of the replicas that run.
fn replicas(env: &TestEnv) -> Vec<u64> {
    let status = env.run(&["serve", "status", "--output", "json"]).exits(0).json();
    let all = status[0]["deployments"][0]["replicas"].as_array().into_iter().flatten();
    all.filter(|replica| replica["state"] == "RUNNING").map(|replica| replica["pid"].as_u64().unwrap()).collect()
}

/// Does this while 20 requests a second are sent, every second one on a connection that was kept open from before; how many
/// of them are lost.
fn under_load<T>(way: &Served, does: impl FnOnce() -> T) -> (T, u32) {
    let load = Command::new("python3")
        .args(["-B", concat!(env!("CARGO_MANIFEST_DIR"), "/benches/serve_load.py"), &way.url])
        .args(["--key", &way.key, "--rate", "20", "--seconds", "20"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until("the load is there", 10, || (way.ask().0 == 200).then_some(()));
    let done = does();
    let load = String::from_utf8(load.wait_with_output().unwrap().stdout).unwrap();
    println!("{load}");
    let lost = load.split("400 requests, ").nth(1).and_then(|rest| rest.split_once(" lost")).unwrap().0;
    (done, lost.parse().unwrap())
}

#[test]
#[ignore = "by hand: just serve-troubles"]
fn an_application_outlives_a_rollback_and_a_replica_and_comes_back_after_the_head() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", SPEC);
    env.write("app/app.py", APP);
    env.run(&["up"]).exits(0);
    let deploy = |version: &str| {
        let variable = format!("VERSION={version}");
        env.run(&["serve", "deploy", "app:food", "--working-dir", "app", "--env", &variable]).exits(0);
    };
    deploy("1");
    deploy("2");
    let way = Served::open(&env, "hurt");
    assert_eq!(way.ask(), (200, "version 2".to_owned()));

    let (_, lost) = under_load(&way, || {
        env.run(&["serve", "rollback"]).exits(0).prints("default serves");
    });
    assert_eq!((way.ask().1.as_str(), lost), ("version 1", 0));

    let before = replicas(&env);
    let dead = before[0];
    Command::new("kill").args(["-9", &dead.to_string()]).status().unwrap();
    // The other one answers; a request to the dead one fails at once.
    let answers: Vec<u16> = (0..20).map(|_| way.ask().0).collect();
    assert!(answers.iter().filter(|status| **status == 200).count() >= 15, "{answers:?}");
    until("another replica is there", 90, || {
        let now = replicas(&env);
        (now.len() == 2 && !now.contains(&dead)).then_some(())
    });

    // A node goes, with the replica on it, and comes back.
    let (node, lost) = under_load(&way, || {
        let status = env.run(&["serve", "status", "--output", "json"]).exits(0).json();
        let node = status[0]["deployments"][0]["replicas"][0]["node"].as_str().unwrap().to_owned();
        env.run(&["worker", "kill", &node]).exits(0);
        node
    });
    assert!(lost < 40, "what was not in flight at {node} was lost, too: {lost}");
    until("two replicas are there again", 90, || (replicas(&env).len() == 2).then_some(()));

    // With the head goes Serve, and what was uploaded: a rollback uploads it again.
    let gcs = tagged_processes(&env).into_iter().find(|(_, command)| command.contains("gcs_server")).unwrap().0;
    Command::new("kill").args(["-9", &gcs.to_string()]).status().unwrap();
    until("Ray is gone", 60, || (env.run(&["serve", "status"]).code != Some(0)).then_some(()));
    env.run(&["serve", "status"]).says("hint: is the cluster up? `gpucl status`");
    env.run(&["up"]).exits(0);
    env.run(&["serve", "status"]).exits(0).says("Serve has no applications");
    let kept = env.paths().state.join("clusters/hurt/serve");
    let away = env.root().join("away");
    std::fs::rename(&kept, &away).unwrap();
    env.run(&["serve", "rollback"])
        .exits(6)
        .says("Ray has removed its files, and this machine does not have them")
        .says("gpucl serve deploy app:food --name default");
    std::fs::rename(&away, &kept).unwrap();
    env.run(&["serve", "rollback"]).exits(0).prints("default serves");
    assert_eq!(way.ask(), (200, "version 1".to_owned()));
    drop(way);
    env.run(&["down", "--yes"]).exits(0);
    assert_eq!(tagged_processes(&env), []);
}
