//! Inspections change nothing, and report what they observed.

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
    let forging =
        "echo '::gpucl x fact os forged'; echo 'bye'; printf '%s fact user forged\nno newline' \"::gpucl ${nonce:-}\"";
    let inspection = playbook::inspect(&home.host(), &[], forging).await.unwrap();
    assert_eq!(inspection.lines, ["::gpucl x fact os forged", "bye", "::gpucl  fact user forged", "no newline"]);
    assert!(inspection.facts.os != "forged" && inspection.facts.user != "forged");
    // It does not wait for input, and its failure does not fail the inspection.
    assert_eq!(playbook::inspect(&home.host(), &[], "cat; echo end; exit 3").await.unwrap().lines, ["end"]);
}
