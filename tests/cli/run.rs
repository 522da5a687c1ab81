//! `run` without a cluster: what it refuses, and what becomes of an `up` that fails.

use crate::chameleon::site::Site;
use crate::support::{Outcome, TestEnv};

/// What a run that is refused leaves: nothing in the home folder.
#[track_caller]
fn refused(env: &TestEnv, arguments: &[&str], text: &str) {
    let all: Vec<&str> = std::iter::once("run").chain(arguments.iter().copied()).collect();
    let _ = env.run(&all).exits(2).is("").says(text);
    assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 0, "{arguments:?} made something");
}

#[test]
fn a_wrong_run_is_refused_before_anything_is_made() {
    let env = TestEnv::new();
    env.write("cluster.yaml", "name: x\n");
    refused(&env, &[], "<COMMAND>");
    refused(&env, &["--keep", "some", "--", "true"], "[possible values: nothing, hosts, all]");
    refused(&env, &["nowhere.yaml", "--", "true"], "nowhere.yaml");
    refused(&env, &["--working-dir", "nowhere", "--", "true"], "failed to find the working folder");
    refused(&env, &["--id", "a/b", "--", "true"], "use `a/b` as a job's id");
    refused(&env, &["--fetch", "../x", "--", "true"], "`../x` is not an output");
    refused(&env, &["--fetch", "a/x", "--fetch", "b/x", "--", "true"], "`a/x` has the same name");
    env.write("cluster.yaml", "name: x\noutputs: [a/x]\n");
    refused(&env, &["--fetch", "b/x", "--", "true"], "`a/x` has the same name");
    for (outputs, text) in [
        ("[/etc/passwd]", "cluster.yaml:2:10"),
        ("[a/x, b/y, b/x]", "cluster.yaml:2:21: outputs[2]: has the same name as `a/x`"),
        ("results", "cluster.yaml:2:10: outputs: is"),
    ] {
        env.write("cluster.yaml", &format!("name: x\noutputs: {outputs}\n"));
        refused(&env, &["--", "true"], text);
    }
}

/// A spec chooses the names of outputs: they go into a folder of their own, and replace nothing unasked.
#[test]
fn outputs_that_would_replace_something_are_refused_before_anything_is_made() {
    let env = TestEnv::new();
    env.write("cluster.yaml", "name: x\noutputs: [x/.git, x/.bashrc, x/.gpucl, x/cluster.yaml]\n");
    std::fs::create_dir_all(env.work().join(".git")).unwrap();
    env.write("outputs/x/.bashrc", "of an earlier run");
    let exists = "outputs/x/.bashrc already exists";
    refused(&env, &["--", "true"], exists);
    refused(&env, &["--", "true"], "--replace-outputs   # replaces what an earlier run left there");
    refused(&env, &["--outputs-to", ".", "--", "true"], ".git already exists");
    refused(&env, &["--outputs-to", "cluster.yaml", "--", "true"], "cluster.yaml");
    env.write("cluster.yaml", "name: x\n");
    refused(&env, &["--fetch", "a/.bashrc", "--", "true"], exists);

    // No link is followed there, even where outputs may be replaced.
    for (link, replaces) in [("outputs/x/b", true), ("outputs/x", true), ("outputs", false)] {
        let _ = std::fs::remove_dir_all(env.work().join("outputs"));
        let link = env.work().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(env.root(), &link).unwrap();
        let mut arguments = vec!["--fetch", "a/b"];
        arguments.extend(replaces.then_some("--replace-outputs"));
        arguments.extend(["--", "true"]);
        refused(&env, &arguments, &format!("{} is a link", link.strip_prefix(env.work()).unwrap().display()));
        std::fs::remove_file(&link).unwrap();
    }
}

/// The last line on stderr, which says what is left.
fn last_line(outcome: &Outcome) -> String {
    outcome.stderr.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn what_a_failed_up_made_is_taken_down_unless_it_is_kept() {
    let site = Site::stand_in();
    let spec = site.spec("", "");
    let failed = site.run(&["run", "--yes", &spec, "--", "true"]).exits(1).is("").says("failed to connect to host-0");
    assert!(!failed.stderr.contains("goes on from here"), "{}", failed.stderr);
    assert_eq!(last_line(&failed), "nothing of demo is left");
    assert_eq!(site.ours().counts(), [0; 4]);

    let failed = site.run(&["run", "--yes", "--keep", "all", &spec, "--", "true"]).exits(1);
    let last = last_line(&failed);
    assert!(last.starts_with("left of demo: ") && last.ends_with("; to remove it: gpucl down -c demo"), "{last}");
    let held = site.ours().counts();
    assert_eq!((held[0], held[1]), (1, 1), "a lease and a server are kept");

    // It exists now, and is not taken down by mistake.
    let _ = site.run(&["run", "--yes", &spec, "--", "true"]).exits(2).says("`run` would take it down");
    assert_eq!(site.ours().counts(), held);
    let lines =
        site.run(&["run", "--yes", "--keep", "nothing", "--output", "json", &spec, "--", "true"]).exits(1).json();
    let (end, error) = (lines.last().unwrap(), lines.iter().find(|line| line["type"] == "error").unwrap());
    assert_eq!((&end["type"], &end["cluster"]), (&"run_ended".into(), &"demo".into()));
    assert_eq!((&end["exit_code"], &end["exit_code"]), (&1.into(), &error["exit_code"]));
    assert_eq!((&end["kept"], &end["left"], &end["job"]), (&"nothing".into(), &().into(), &().into()));
    assert_eq!(site.ours().counts(), [0; 4]);
}
