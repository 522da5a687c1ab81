//! The examples are in the program: an installed one needs no clone.

use crate::support::TestEnv;

#[test]
fn an_example_is_copied_and_planned_and_never_overwritten() {
    let env = TestEnv::new();
    let _ = env.run(&["example", "list"]).exits(0).prints("serve").prints("A Ray cluster on this machine");
    let listed = env.run(&["example", "list", "--output", "json"]).exits(0).json();
    let local = listed.iter().find(|example| example["name"] == "local").unwrap();
    assert_eq!((local["type"].as_str(), local["files"].as_u64()), (Some("example"), Some(1)));

    let _ = env.run(&["example", "copy", "local", "."]).exits(0).prints("local.yaml");
    let _ = env.run(&["plan", "local.yaml"]).exits(0);
    let copied = env.run(&["example", "copy", "serve", "--output", "json"]).exits(0).json();
    assert!(copied.iter().any(|file| file["type"] == "file" && file["path"] == "serve/cluster.yaml"), "{copied:?}");

    // A change stays, and nothing else of the example is written beside it.
    std::fs::write(env.work().join("serve/cluster.yaml"), "name: mine\n").unwrap();
    std::fs::remove_file(env.work().join("serve/ask.py")).unwrap();
    let again = env.run(&["example", "copy", "serve"]).exits(1);
    let _ = again.says("already exists").says("nothing was written").says("gpucl example copy NAME DIR");
    assert_eq!(std::fs::read_to_string(env.work().join("serve/cluster.yaml")).unwrap(), "name: mine\n");
    assert!(!env.work().join("serve/ask.py").exists());
    let _ = env.run(&["example", "copy", "serve", "other/place"]).exits(0).prints("other/place/ask.py");

    let _ = env.run(&["example", "copy", "sevre"]).exits(6).says("did you mean `serve`?");
    let _ = env.run(&["example", "copy", "../local"]).exits(6).says("no built-in example has that name");

    // Where a link is, nothing is written through it.
    std::os::unix::fs::symlink("/", env.work().join("hello")).unwrap();
    let _ = env.run(&["example", "copy", "hello"]).exits(1).says("nothing was written");
}
