//! Inspections change nothing, and report what they observed.

use std::os::unix::fs::PermissionsExt as _;

use gpucl::host::LocalHost;
use gpucl::playbook::{self, Step};

use super::support::{Home, run, stage, step};

#[tokio::test]
async fn an_inspection_creates_no_home_folder() {
    let home = Home::new();
    let inspection =
        playbook::inspect(&home.host(), &[&stage(vec![step("a", ":")])], "echo here; echo there >&2").await.unwrap();
    assert!(!home.path().exists(), "looking changed something");
    assert_eq!(
        (inspection.lines, inspection.stages.len(), inspection.running, inspection.rebooting),
        (vec!["here".to_owned()], 0, None, false)
    );
    assert!(inspection.facts.disk_free > 0 && inspection.facts.lib_free > 0);
}

#[tokio::test]
async fn an_inspection_reports_stages_values_and_whether_they_hold() {
    let home = Home::new();
    let prepare = stage(vec![
        step("tell", "value answer 'forty two'"),
        Step { unless: Some("test -e made".to_owned()), ..step("make", "touch made") },
    ]);
    let mut deploy = stage(vec![step("other", ":")]);
    deploy.name = "deploy".to_owned();
    run(&home.host(), &prepare).await.unwrap();
    run(&home.host(), &deploy).await.unwrap();
    let inspection = playbook::inspect(&home.host(), &[&prepare], "").await.unwrap();
    let state = &inspection.stages["prepare"];
    assert_eq!((state.digest == prepare.digest(), state.holds), (true, Some(true)));
    assert_eq!(state.values["answer"], "forty two");
    // A stage that was not asked about is only named.
    assert_eq!((inspection.stages["deploy"].holds, inspection.stages.len()), (None, 2));
    fs_err::remove_file(home.path().join("made")).unwrap();
    assert_eq!(playbook::inspect(&home.host(), &[&prepare], "").await.unwrap().stages["prepare"].holds, Some(false));
    // Another digest is another stage, whose state is unknown.
    let other = stage(vec![step("tell", "value answer 43")]);
    assert_eq!(playbook::inspect(&home.host(), &[&other], "").await.unwrap().stages["prepare"].holds, None);
    assert!(!home.path().join("made").exists());
}

#[tokio::test]
async fn output_of_a_script_cannot_pass_for_a_fact() {
    let home = Home::new();
    let forging = "echo '::gpucl x fact os forged'; echo 'bye'; printf '%s fact kernel forged\nno newline' \"::gpucl ${nonce:-}\"";
    let inspection = playbook::inspect(&home.host(), &[], forging).await.unwrap();
    assert_eq!(inspection.lines, ["::gpucl x fact os forged", "bye", "::gpucl  fact kernel forged", "no newline"]);
    assert!(inspection.facts.os != "forged" && inspection.facts.kernel != "forged");
    // It does not wait for input, and its own failure does not fail the inspection.
    assert_eq!(playbook::inspect(&home.host(), &[], "cat; echo end; exit 3").await.unwrap().lines, ["end"]);
}

/// What is missing in a part of what is there is not gone.
#[tokio::test]
async fn a_killed_script_fails_the_inspection() {
    let home = Home::new();
    let error =
        playbook::inspect(&home.host(), &[], "echo '::remains a'; kill -9 $$; echo '::remains b'").await.unwrap_err();
    assert!(error.to_string().contains("could not be read to its end"), "{error}");
    let lines = async |script: &str| playbook::inspect(&home.host(), &[], script).await.unwrap().lines;
    assert_eq!(lines("").await, [""; 0]);
    assert_eq!(lines("printf one").await, ["one"]);
    assert_eq!(lines("echo one; a-command-that-this-host-lacks").await, ["one"]);
    assert_eq!(lines("echo one; echo; echo 200; exit 1").await, ["one", "", "200"]);
}

#[tokio::test]
async fn the_facts_name_the_python_that_runs() {
    let home = Home::new();
    let folder = home.folder.path().join("own/shims");
    fs_err::create_dir_all(&folder).unwrap();
    let of = async |python: &str, folder: &std::path::Path| {
        let file = folder.join("python3");
        fs_err::write(&file, format!("#!/bin/sh\n{python}\n")).unwrap();
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let variables = std::env::vars_os().filter(|(name, _)| name != "PATH").chain([("PATH".into(), path.into())]);
        let host = LocalHost::new("here", home.path(), variables).unwrap();
        playbook::facts(&host).await.unwrap().python.map(|python| (python.version, python.path))
    };
    let own = home.folder.path().join("own");
    let named = |version: &str| Some((version.to_owned(), own.join("python3").display().to_string()));
    assert_eq!(of("echo Python 3.12.3", &own).await, named("3.12.3"));
    assert_eq!(of("echo Python 3.13.0rc1", &own).await, named("3.13.0"));
    assert_eq!(of("echo 'Python 3.11.9 :: Anaconda, Inc.'", &own).await, named("3.11.9"));
    // One that does not start is none: there is another, or there is none.
    assert_ne!(of("exit 127", &own).await.map(|(_, path)| path), named("").map(|(_, path)| path));
    // A shim stands for another interpreter.
    let shim = "case $1 in -V) echo Python 3.9.0;; *) echo 3.12.1 /opt/versions/3.12.1/bin/python3;; esac";
    let meant = ("3.12.1".to_owned(), "/opt/versions/3.12.1/bin/python3".to_owned());
    assert_eq!(of(shim, &folder).await, Some(meant));
}
