//! The matrix at Lambda: each row has a stand-in of its own, with things of others in it.

mod cloud;

use std::sync::Arc;
use std::time::Instant;

use gpucl::name::Owner;
use gpucl::sandbox::lambda::{Config, Sandbox};
use serde_json::json;

use crate::support::matrix::{
    Bug, Call, Ended, Row, THENS, Trouble, all_are_caught, all_left_nothing, crossed, each_once, run, side_by_side,
};
use cloud::{CALLS, TROUBLES, post};

/// How many rows go on at the same time: they wait more than they work.
const AT_ONCE: usize = 20;

async fn on_a_stand_in(row: Row, bug: Bug) -> Ended {
    let owner: Owner = "abcd1234".parse().unwrap();
    let sandbox = Arc::new(Sandbox::start(Config::prompt()).await.unwrap());
    sandbox.add_foreign(5);
    for (index, name) in ["gpucl-abcd1234-demo-2", "gpucl-zzzz9999-demo", "mine"].into_iter().enumerate() {
        sandbox.add_ssh_key(&format!("{name}-key0"), &format!("ssh-ed25519 AAAA{index}"));
        sandbox.add_file_system(&format!("{name}-fsdata"), "us-east-1");
        let tag = format!("{name}-host0");
        sandbox.add_machine(&tag, &[("gpucl", &tag)]);
        let rules = json!({"name": format!("{name}-rules0"), "region": "us-east-1", "rules": []});
        post(&sandbox, "/firewall-rulesets", &rules).await;
    }
    sandbox.forget_log();
    run(&sandbox, &owner, row, bug).await?;
    sandbox.check().map_err(|error| format!("CONTRACT: {error}"))
}

async fn all_leave_nothing(rows: Vec<Row>) {
    let begun = Instant::now();
    let results = side_by_side(rows, AT_ONCE, |row| on_a_stand_in(row, Bug::None)).await;
    all_left_nothing(&results, &CALLS, |rows, failed| {
        format!("lambda matrix: {rows} rows, {failed} failed, {:.0} s", begun.elapsed().as_secs_f64())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_with_every_fault_leaks_and_duplicates_nothing() {
    all_leave_nothing(each_once(&CALLS, &TROUBLES)).await;
}

/// The same in all ways on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "by hand: just lambda-matrix"]
async fn the_whole_matrix() {
    all_leave_nothing(crossed(&CALLS, &TROUBLES, &THENS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deliberate_bug_of_each_class_is_caught() {
    let call = |name| Call::named(name, &CALLS);
    let bugs = [
        (Bug::SecondOnLostAnswer, call("Launch"), Trouble::AnswerLost, "DOUBLE"),
        (Bug::TakesAnErrorForNothing, call("Launch"), Trouble::FailedAndDone, "DOUBLE"),
        (Bug::TakesAPageForNothing, call("Launch"), Trouble::PageAndDone, "DOUBLE"),
        (Bug::ForgetsIds, call("Launch"), Trouble::NotJournalled, "LEAK"),
        (Bug::TerminatesByPrefix, call("Terminate"), Trouble::NotJournalled, "TOUCHED"),
    ];
    all_are_caught(&bugs, on_a_stand_in).await;
}
