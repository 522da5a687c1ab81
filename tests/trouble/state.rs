//! The state on this machine: not writable, of another version, of another spec, missing.

use super::tools::{
    SLEEPER, SLEEPERS, SPEC, contents, down_leaves_nothing, edit_state, node_script, nothing_left, pids, state_folder,
    status, supervisor, tools, until,
};
use crate::support::TestEnv;

/// Permissions do not bind root; a file in the place of the folder binds everybody.
#[test]
fn a_state_folder_that_cannot_be_written() {
    let env = TestEnv::new();
    let _ = env.write("cluster.yaml", SPEC);
    std::fs::create_dir_all(env.home().join(".local")).unwrap();
    std::fs::write(env.home().join(".local/state"), "in the way").unwrap();
    for verb in ["up", "down"] {
        let _ = env
            .run(&[verb, "-c", "t"])
            .exits(1)
            .says("error: failed to write down which machine this is\nCaused by: $TEST/home/.local/state/gpucl cannot be written: ")
            .says("Not a directory")
            .says("hint: make it writable (ls -ld '$TEST/home/.local/state'), or set XDG_STATE_HOME to a folder that can be written\n");
    }
    assert_eq!(std::fs::read(env.home().join(".local/state")).unwrap(), b"in the way");
    assert!(!env.home().join(".local/share").exists() && !env.home().join(".cache").exists());
    nothing_left(&env);
}

#[test]
fn a_state_of_a_newer_version_is_refused_and_nothing_is_changed() {
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SLEEPERS);
    node_script(&env, SLEEPER);
    let _ = env.run(&["up"]).exits(7);
    let (nodes, guard) = (pids(&env), supervisor(&env));
    edit_state(&env, |text| text.replacen("\"version\": 3,", "\"version\": 99,", 1));
    let before = contents(&state_folder(&env));
    for verb in [&["up"][..], &["plan"], &["status"], &["stop"], &["verify"], &["down"]] {
        let _ = env
            .run(verb)
            .exits(1)
            .says("error: failed to read $TEST/home/.local/state/gpucl/clusters/t/snapshot.json\n")
            .says("Caused by: it has version 99, and this gpucl knows version 3: a newer gpucl wrote it\n")
            .says("hint: use that newer gpucl, or install it over this one (type -a gpucl   # shows all that are installed); nothing was changed\n");
    }
    // One that cannot be read does not hide the others.
    let _ = env.run(&["list"]).exits(1).prints(" t        unreadable").says("a newer gpucl wrote it");
    assert_eq!(contents(&state_folder(&env)), before);
    edit_state(&env, |text| text.replacen("\"version\": 99,", "\"version\": 3,", 1));
    assert_eq!((pids(&env), supervisor(&env)), (nodes, guard), "what ran runs on");
    let _ = down_leaves_nothing(&env);
}

/// An `up` that fails before it changes anything leaves a cluster that is as ready as it was.
pub(super) fn an_up_that_fails_before_it_changes_anything(env: &TestEnv) {
    let nodes = pids(env);
    let other = "ray: {version: 2.55.0, workers: {count: 2, cpus: 1}}\nplaybooks: {ray-native: {disk_needed_mib: \"99999999\"}}\n";
    let _ = env.write("cluster.yaml", &format!("name: t\n{other}"));
    env.accept("cluster.yaml");
    let _ = env.run(&["up"]).exits(1).says("MiB are free in");
    assert_eq!(pids(env), nodes, "a node was restarted");
    let _ = env.run(&["verify"]).exits(0).prints("ready: 8 checks passed");
    let _ = env.run(&["status"]).exits(0).prints("t: ready since");
    let _ = env.write("cluster.yaml", SPEC);
    let _ = env.run(&["up"]).exits(0).prints("ready: 8 checks passed");
    assert_eq!(pids(env), nodes, "a node was restarted");
}

/// Another spec of the same name is refused, and taken where that is said: it asks for one worker more.
pub(super) fn another_spec_of_that_name(env: &TestEnv) {
    let nodes = pids(env);
    let _ = env.write("other.yaml", &SPEC.replace("count: 1", "count: 2"));
    let before = contents(&state_folder(env));
    let _ = env
        .run(&["up", "other.yaml"])
        .exits(2)
        .says("error: failed to bring up the cluster t from $TEST/work/other.yaml\n")
        .says("Caused by: a cluster of that name runs from another spec: $TEST/work/cluster.yaml\n")
        .says("hint: give one of them another `name:`, or replace the running one: gpucl up $TEST/work/other.yaml --new-spec\n");
    assert_eq!((contents(&state_folder(env)), pids(env)), (before, nodes.clone()), "something was changed");

    let _ = env.run(&["up", "other.yaml", "--new-spec"]).exits(0).prints("ready: 11 checks passed, 1 operation (");
    assert_eq!((&pids(env)[..2], pids(env).len()), (&nodes[..], 3), "the new spec adds one worker");
    assert!(status(env)["spec_path"].as_str().unwrap().ends_with("/other.yaml"));
}

#[test]
fn down_of_nothing() {
    let mut env = TestEnv::new();
    let _ = env.run(&["down"]).exits(6).says("Caused by: there are no clusters\nhint: gpucl up cluster.yaml");
    for verb in ["down", "stop", "status", "verify", "logs"] {
        let _ = env
            .run(&[verb, "-c", "nobody"])
            .exits(6)
            .says("error: failed to find the cluster nobody\nCaused by: no cluster of that name is known\nhint: ");
    }
    // A cluster that is there is named when its name was almost right.
    tools(&mut env, None, None);
    let _ = env.write("cluster.yaml", &SPEC.replace("name: t", "name: train"));
    let _ = env.run(&["up"]).exits(1);
    let _ = env.run(&["down", "-c", "trian"]).exits(6).says("hint: did you mean `train`?\n");
    let _ = env.run(&["down", "-c", "train"]).exits(0);
    let _ = env.run(&["down", "-c", "train"]).exits(6);
    nothing_left(&env);
}

/// What a gpucl before 0.1 has left on this machine: its state, its host's folder, a node under a reaper, an agent with
/// its socket, and a claim of ports, all in the form of then.
fn in_the_old_form(env: &TestEnv, owner: &str) -> Vec<std::process::Child> {
    let run = env.root().join("run/gpucl");
    let tag = |key: &str| format!("gpucl-{owner}-t-{key}");
    let host = env.home().join(".local/share/gpucl/hosts").join(tag("host0"));
    for folder in [&host.join("nodes"), &run.join("ports"), &state_folder(env), &env.home().join(".config/gpucl")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(env.home().join(".config/gpucl/owner"), owner).unwrap();
    let claim = serde_json::json!({
        "version": 1, "tag": tag("host0"), "owner": owner, "cluster": "t", "key": "host0", "id": "local-abcdefgh",
        "created": "2026-11-01T00:00:00Z", "request": "x",
    });
    std::fs::write(host.join("claim.json"), claim.to_string()).unwrap();
    let reaper = host.join("reaper.py");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/ray-native/reaper.py"), &reaper).unwrap();
    let item = |kind: &str, id: &str| serde_json::json!({ "kind": kind, "state": "ready", "id": id, "digest": "x", "since": "2026-11-01T00:00:00Z" });
    let snapshot = serde_json::json!({ "version": 1, "journal": 3, "state": {
        "name": "t", "owner": owner, "created": "2026-11-01T00:00:00Z",
        "spec": { "name": "t", "provider": "local", "hosts": [{}], "ray": { "workers": { "count": 1 } } },
        "items": { "agent": item("agent", "1:1:x"), "head": item("node", "2:2:x") },
    }});
    std::fs::write(state_folder(env).join("snapshot.json"), snapshot.to_string()).unwrap();
    std::fs::write(state_folder(env).join("journal-3.jsonl"), "{\"v\":1,\"at\":\"x\",\"record\":\"node_ended\"}\n")
        .unwrap();
    std::fs::write(run.join("ports/20100"), tag("head")).unwrap();
    std::fs::write(run.join("t.sock"), "").unwrap();
    let start = |key: &str, program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(arguments).env("GPUCL_TAG", tag(key)).stdin(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let folder = host.display().to_string();
    let node = ["-I", "-B", reaper.to_str().unwrap(), "run", folder.as_str(), "head", "sleep", "900"];
    let script = format!("trap 'rm -f {}; exit' TERM; while :; do sleep 0.05; done", run.join("t.sock").display());
    let children = vec![start("head", "python3", &node), start("agent", "sh", &["-c", &script])];
    until("the node ran", 20, || host.join("processes/head").exists().then_some(()));
    children
}

#[test]
fn leftovers_of_an_older_gpucl_are_refused_and_removed_by_down() {
    let env = TestEnv::new();
    let _ = env.write("cluster.yaml", SPEC);
    let mut children = in_the_old_form(&env, "before01");
    for verb in [&["up"][..], &["plan"], &["status"], &["stop"], &["verify"]] {
        let _ = env
            .run(verb)
            .exits(1)
            .says("Caused by: it has version 1, and this gpucl knows version 3: a gpucl before 0.1 wrote it\n")
            .says("hint: gpucl down -c t   # finds what that cluster has by its tag, and removes it\n");
    }
    let collects = std::thread::spawn(move || children.iter_mut().for_each(|child| drop(child.wait())));
    let _ = down_leaves_nothing(&env);
    collects.join().unwrap();
}

/// Nothing is known of it here, and even its host's folder is gone: its processes are found by their tag.
#[test]
fn orphaned_processes_are_found_by_their_tag() {
    let env = TestEnv::new();
    let mut children = in_the_old_form(&env, "before02");
    std::fs::remove_dir_all(env.home().join(".local/share/gpucl/hosts")).unwrap();
    std::fs::remove_dir_all(state_folder(&env)).unwrap();
    let collects = std::thread::spawn(move || children.iter_mut().for_each(|child| drop(child.wait())));
    let _ = env.run(&["down", "-c", "t"]).exits(0).says("the cluster's state is lost");
    nothing_left(&env);
    collects.join().unwrap();
}
