//! The state on this machine: not writable, of another time, of another file, not there.

use super::tools::{
    SLEEPER, SLEEPERS, SPEC, contents, down_leaves_nothing, edit_state, node_script, nothing_left, pids, state_folder,
    status, supervisor, tools,
};
use crate::support::{TestEnv, turn};

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
    edit_state(&env, |text| text.replacen("\"version\": 2,", "\"version\": 99,", 1));
    let before = contents(&state_folder(&env));
    for verb in [&["up"][..], &["plan"], &["status"], &["stop"], &["verify"], &["down"]] {
        let _ = env
            .run(verb)
            .exits(1)
            .says("error: failed to read $TEST/home/.local/state/gpucl/clusters/t/snapshot.json\n")
            .says("Caused by: it has version 99, and this gpucl knows version 2: a newer gpucl wrote it\n")
            .says("hint: use that newer gpucl, or update this one with `cargo install gpucl`; nothing was changed\n");
    }
    // One that cannot be read does not hide the others.
    let _ = env.run(&["list"]).exits(1).prints(" t        unreadable").says("a newer gpucl wrote it");
    assert_eq!(contents(&state_folder(&env)), before);
    edit_state(&env, |text| text.replacen("\"version\": 99,", "\"version\": 2,", 1));
    assert_eq!((pids(&env), supervisor(&env)), (nodes, guard), "what ran runs on");
    let _ = down_leaves_nothing(&env);
}

#[test]
fn a_cluster_of_that_name_from_another_spec() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SPEC);
    let _ = env.run(&["up"]).exits(0).prints("ready: 8 checks passed");
    let nodes = pids(&env);
    let _ = env.write("other.yaml", &SPEC.replace("count: 1", "count: 2"));
    let before = contents(&state_folder(&env));
    let _ = env
        .run(&["up", "other.yaml"])
        .exits(2)
        .says("error: failed to bring up the cluster t from $TEST/work/other.yaml\n")
        .says("Caused by: a cluster of that name runs from another spec: $TEST/work/cluster.yaml\n")
        .says("hint: give one of them another `name:`, or replace the running one: gpucl up $TEST/work/other.yaml --new-spec\n");
    assert_eq!((contents(&state_folder(&env)), pids(&env)), (before, nodes.clone()), "something was changed");

    let _ = env.run(&["up", "other.yaml", "--new-spec"]).exits(0).prints("ready: 11 checks passed, 1 operation (");
    assert_eq!((&pids(&env)[..2], pids(&env).len()), (&nodes[..], 3), "the new spec adds one worker");
    assert!(status(&env)["spec_path"].as_str().unwrap().ends_with("/other.yaml"));
    let _ = down_leaves_nothing(&env);
}

#[test]
fn down_of_nothing() {
    let mut env = TestEnv::new();
    let _ = env.run(&["down"]).exits(6).says("Caused by: there is none\nhint: gpucl up cluster.yaml");
    for verb in ["down", "stop", "status", "verify", "logs"] {
        let _ = env.run(&[verb, "-c", "nobody"]).exits(6).says(
            "error: failed to find the cluster nobody\nCaused by: nothing is known of a cluster of that name\nhint: ",
        );
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
