//! A home folder that several machines share: a cluster of `local` is on one of them.

use serde_json::json;

use super::children::record;
use crate::support::TestEnv;

#[test]
fn on_another_machine_with_this_home_a_cluster_is_named_and_left_alone() {
    let env = TestEnv::new();
    let host = env.root().join("host");
    std::fs::create_dir_all(host.join("data")).unwrap();
    let spec = env.write("cluster.yaml", "name: x\n");
    let place = json!({"local": {"folder": host}});
    record(&env, &place, &json!("local"), Some(std::fs::canonicalize(spec).unwrap().display().to_string()));
    let folder = env.paths().cluster(&"x".parse().unwrap());
    let machine = folder.join("machine.json");
    // One that an earlier gpucl made, and one of this machine, are used as ever.
    let _ = env.run(&["status"]).exits(0).prints("x: ");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(&machine, json!({"version": 1, "name": "renamed", "boot": boot.trim()}).to_string()).unwrap();
    assert!(!env.run(&["status"]).exits(0).stdout.contains("renamed"));

    std::fs::write(&machine, json!({"version": 1, "name": "node7", "boot": "another"}).to_string()).unwrap();
    let read = || std::fs::read(folder.join("snapshot.json")).unwrap();
    let before = read();
    let _ = env
        .run(&["status"])
        .exits(0)
        .is("x: on node7, another machine that shares this home folder\nit is used from there: ssh node7\n");
    let _ = env.run(&["list"]).exits(0).prints("on node7");
    let status = env.run(&["status", "--output", "json"]).exits(0).json();
    assert_eq!((&status[0]["phase"], &status[0]["machine"]), (&json!("away"), &json!("node7")));
    for arguments in [
        &["up"][..],
        &["plan"],
        &["down", "--yes"],
        &["down", "--yes", "--purge"],
        &["stop", "--yes"],
        &["verify"],
        &["worker", "kill", "worker-0"],
        &["job", "list"],
        &["exec", "--", "touch", "x"],
        &["logs"],
    ] {
        let refused = env.run(arguments);
        assert_ne!(refused.code, Some(0), "{arguments:?}");
        let _ = refused
            .says("it is on node7, another machine that shares this home folder; nothing was changed")
            .says("hint: run the same command on node7")
            .says("if node7 is gone, or is this machine under another name: rm $TEST/home/");
    }
    assert_eq!(read(), before);
    assert!(host.join("data").is_dir());
    // As the hint says.
    std::fs::remove_file(&machine).unwrap();
    let _ = env.run(&["down", "--yes"]).exits(0);
    assert!(!folder.exists());
}

#[test]
fn up_records_the_machine() {
    let env = TestEnv::new();
    let never = "playbooks: {ray-native: {disk_needed_mib: \"999999999\"}}";
    env.write("cluster.yaml", &format!("name: x\n{never}\n"));
    env.accept("cluster.yaml");
    let _ = env.run(&["up"]).exits(1).says("MiB are free in");
    let folder = env.paths().cluster(&"x".parse().unwrap());
    let text = std::fs::read_to_string(folder.join("machine.json")).unwrap();
    let recorded: serde_json::Value = serde_json::from_str(&text).unwrap();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(recorded["name"], json!(name));
    assert_eq!(recorded["boot"], json!(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim()));
    let _ = env.run(&["down", "--yes"]).exits(0);
    assert!(!folder.exists());
}
