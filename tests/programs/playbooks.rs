//! The playbooks that are shipped are whole: each is read, filled in, and its shell texts are shell.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use gpucl::playbook::{self, Stage};
use gpucl::render::Library;

fn built_in() -> Vec<Stage> {
    let library = Library::default();
    let names = library.list("playbooks/").unwrap();
    let names = names.iter().filter_map(|name| name.strip_prefix("playbooks/")?.strip_suffix(".yaml"));
    let stages = |name: &str| {
        let playbook = playbook::load(&library, name).unwrap();
        let needed = playbook.variables.iter().filter(|(_, variable)| variable.default.is_none());
        let mut given: BTreeMap<_, _> = needed.map(|(key, _)| (key.clone(), "x".to_owned())).collect();
        let mut stages = vec![playbook.stage("prepare", &given, Duration::from_secs(1)).unwrap()];
        // A site's modules and wheels have steps of their own.
        if playbook.variables.contains_key("packages") {
            given.extend(["modules", "packages"].map(|key| (key.to_owned(), "site".to_owned())));
            stages.push(playbook.stage("prepare", &given, Duration::from_secs(1)).unwrap());
        }
        stages
    };
    names.flat_map(stages).collect()
}

#[track_caller]
fn is_shell(name: &str, text: &str) {
    for shell in ["sh", "bash"] {
        let mut child = Command::new(shell).arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_text_of_every_playbook_is_shell() {
    let stages = built_in();
    assert!(stages.len() >= 9, "{}", stages.len());
    for stage in &stages {
        for step in &stage.steps {
            is_shell(&step.name, &step.run);
            is_shell(&step.name, step.unless.as_deref().unwrap_or_default());
        }
        for file in &stage.files {
            is_shell(&file.path, std::str::from_utf8(&file.bytes).unwrap());
        }
    }
    is_shell("undo", &gpucl::runtime::compose::undo_script("gpucl-abcdefgh-demo-host0", true));
}

#[test]
fn a_reboot_step_has_a_condition() {
    for step in built_in().iter().flat_map(|stage| &stage.steps).filter(|step| step.reboot) {
        assert!(step.unless.is_some(), "`{}` would restart the machine in every `up`", step.name);
    }
}

#[test]
fn nothing_is_piped_from_the_network_into_a_shell() {
    for stage in built_in() {
        let files = stage.files.iter().map(|file| String::from_utf8_lossy(&file.bytes).into_owned());
        for text in stage.steps.iter().map(|step| step.run.clone()).chain(files) {
            let found = text.lines().find(|line| {
                ["curl", "wget", "fetch "].iter().any(|tool| line.contains(tool))
                    && ["| sh", "|sh", "| bash", "|bash", "| sudo"].iter().any(|shell| line.contains(shell))
            });
            assert_eq!(found, None);
        }
    }
}
