//! Refusals come before anything is created, in plain text.

use crate::support::TestEnv;

#[test]
fn a_wrong_spec_is_refused_with_its_place_and_nothing_is_made() {
    let env = TestEnv::new();
    env.write("bad.yaml", "name: x\nray:\n  workers: {cuont: 2}\n");
    for verb in ["plan", "up", "render"] {
        let outcome = env.run(&[verb, "bad.yaml"]).exits(2);
        let _ = outcome
            .is("")
            .says("bad.yaml:3:13: ray.workers.cuont: unknown key")
            .says("3 |   workers: {cuont: 2}")
            .says("count");
        assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 0, "`{verb}` of a wrong spec made something");
    }
    let error = env.run(&["plan", "bad.yaml", "--output", "json"]).exits(2).json();
    assert_eq!(
        (&error[0]["type"], &error[0]["kind"], &error[0]["exit_code"]),
        (&"error".into(), &"spec".into(), &2.into())
    );
    let _ = env.run(&["plan", "nowhere.yaml"]).exits(2).says("nowhere.yaml");
}

#[test]
fn a_plan_makes_nothing() {
    let env = TestEnv::new();
    env.write("cluster.yaml", "name: x\n");
    let first = env.run(&["plan"]).exits(0).prints("#1 host-0, acquire: there is none yet");
    assert_eq!(env.run(&["plan"]).exits(0).stdout, first.stdout);
    assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 0, "`plan` made something");
    assert_eq!(std::fs::read_dir(env.root().join("run")).unwrap().count(), 0, "`plan` made something to run");
}

#[test]
fn without_a_cluster_every_command_says_so() {
    let env = TestEnv::new();
    for arguments in [
        &["status"][..],
        &["down", "--yes"],
        &["stop"],
        &["verify"],
        &["logs"],
        &["exec", "true"],
        &["dashboard"],
        &["env"],
        &["job", "list"],
        &["job", "submit", "--", "true"],
    ] {
        let _ = env.run(arguments).exits(6).is("").says("there are no clusters").says("hint: gpucl up cluster.yaml");
        let mut named = vec!["-c", "nobody"];
        named.extend(arguments);
        let _ = env.run(&named).exits(6).says("nobody");
        let _ = env.run(&["-c", "No!", arguments[0]]).exits(2);
    }
    let _ = env.run(&["list"]).exits(0).is("");
    let _ = env.run(&["list", "--output", "json"]).exits(0).is("");
    let clusters = env.home().join(".local/state/gpucl");
    assert!(!clusters.join("clusters").exists() && !clusters.join("locks").exists());
}

/// Piped, and for those who ask for it, there is text and nothing else.
#[test]
fn nothing_but_text_goes_into_a_pipe() {
    let mut env = TestEnv::new();
    env.write("cluster.yaml", "name: x\n");
    env.write("bad.yaml", "name: x\nnmae: y\n");
    env.set("TERM", "xterm-256color");
    for colour in ["", "1"] {
        env.set("NO_COLOR", colour);
        for arguments in [
            &["--help"][..],
            &["plan"],
            &["plan", "bad.yaml"],
            &["doctor"],
            &["list"],
            &["status"],
            &["provider", "list"],
            &["frobnicate"],
        ] {
            let outcome = env.run(arguments);
            assert!(!outcome.stdout.is_empty() || !outcome.stderr.is_empty());
            let escape = outcome.stdout.contains('\x1b') || outcome.stderr.contains('\x1b');
            assert!(!escape, "{arguments:?}: {outcome:?}");
        }
    }
}
