//! `render` writes what `up` would write, and nothing else.

use std::process::Command;

use crate::support::TestEnv;

const SPEC: &str = "name: r\nray:\n  workers: {count: 2, cpus: 0}\n";

#[test]
fn render_writes_its_files_and_nothing_else() {
    let env = TestEnv::new();
    env.write("cluster.yaml", SPEC);
    let printed = env.run(&["render"]).exits(0).stdout;
    let names: Vec<&str> =
        printed.lines().map(|line| line.strip_prefix("rendered/r/").unwrap_or_else(|| panic!("{line}"))).collect();
    assert_eq!(
        names,
        [
            "README.txt",
            "plan.txt",
            "host-0/prepare.sh",
            "host-0/deploy.sh",
            "host-0/checks.sh",
            "host-0/reaper.py",
            "host-0/node.py",
            "host-0/worker.py",
            "host-0/serving.py",
            "host-0/agent.py",
            "host-0/inner.py",
            "host-0/reachable.py",
            "host-0/lifecycle.py",
            "host-0/host.py",
            "host-0/probe.py",
            "host-0/cluster.py",
            "host-0/secrets/ray_token",
            "host-0/nodes.json",
        ]
    );
    let read = |name: &str| std::fs::read_to_string(env.work().join("rendered/r").join(name)).unwrap();
    assert_eq!(read("plan.txt"), env.run(&["plan"]).exits(0).stdout);
    assert!(read("host-0/secrets/ray_token").contains("created by up"), "a secret was rendered");
    let program = env.work().join("rendered/r/host-0/prepare.sh");
    assert!(Command::new("sh").arg("-n").arg(program).status().unwrap().success());
    assert!(read("host-0/prepare.sh").contains("create the Ray environment"));
    let host: serde_json::Value = serde_json::from_str(&read("host-0/nodes.json")).unwrap();
    let launch = |name: &str| host["nodes"].as_array().unwrap().iter().find(|node| node["key"] == name).unwrap();
    let (head, worker) = (launch("head"), launch("worker1"));
    assert!(head["argv"].as_array().unwrap().contains(&"--head".into()));
    // A worker joins the head that is rendered beside it, and no two nodes have the same ports.
    let flag = |launch: &serde_json::Value, name: &str| {
        let words = launch["argv"].as_array().unwrap();
        let at = words.iter().position(|word| word == name).unwrap();
        words[at + 1].as_str().unwrap().to_owned()
    };
    assert_eq!(flag(worker, "--address"), format!("127.0.0.1:{}", flag(head, "--port")));
    let managers: Vec<String> =
        ["head", "worker0", "worker1"].iter().map(|name| flag(launch(name), "--node-manager-port")).collect();
    assert!(managers[0] != managers[1] && managers[1] != managers[2] && managers[0] != managers[2], "{managers:?}");
    assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 0, "`render` made something in HOME");
    assert_eq!(std::fs::read_dir(env.root().join("run")).unwrap().count(), 0, "`render` made something to run");
}

#[test]
fn a_named_group_is_a_label_of_its_workers() {
    let env = TestEnv::new();
    env.write(
        "cluster.yaml",
        "name: r\nray:\n  workers:\n    - {name: big, cpus: 1}\n    - {name: small, cpus: 0, labels: {zone: a}}\n",
    );
    env.run(&["render"]).exits(0);
    let text = std::fs::read_to_string(env.work().join("rendered/r/host-0/nodes.json")).unwrap();
    let host: serde_json::Value = serde_json::from_str(&text).unwrap();
    let labels = |name: &str| {
        let node = host["nodes"].as_array().unwrap().iter().find(|node| node["key"] == name).unwrap();
        let words = node["argv"].as_array().unwrap();
        let at = words.iter().position(|word| word == "--labels").unwrap();
        words[at + 1].as_str().unwrap().to_owned()
    };
    assert_eq!(labels("head"), "gpucl.dev/node=head");
    assert_eq!(labels("worker0"), "gpucl.dev/group=big,gpucl.dev/node=worker-0");
    assert_eq!(labels("worker1"), "gpucl.dev/group=small,gpucl.dev/node=worker-1,zone=a");
}

#[test]
fn a_rendering_replaces_the_previous_one() {
    let env = TestEnv::new();
    env.write("cluster.yaml", SPEC);
    let printed = env.run(&["render", "--to", "here"]).exits(0).stdout;
    assert!(printed.lines().all(|line| line.starts_with("here/")), "{printed}");
    std::fs::write(env.work().join("here/notes.txt"), "mine").unwrap();
    env.write("cluster.yaml", &SPEC.replace("count: 2", "count: 1"));
    let files = env.run(&["render", "--to", "here", "--output", "json"]).exits(0).json();
    assert!(files.iter().all(|file| file["type"] == "file"));
    let nodes = std::fs::read_to_string(env.work().join("here/host-0/nodes.json")).unwrap();
    assert!(nodes.contains("worker0") && !nodes.contains("worker1"), "a node that is no more is still rendered");
    assert!(env.work().join("here/notes.txt").exists(), "a file that is not ours was removed");
    let _ = env.run(&["render", "--to", "cluster.yaml"]).exits(1).says("cluster.yaml");
}
