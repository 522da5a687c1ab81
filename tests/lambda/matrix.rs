//! Every request that changes something, in every trouble: what is gone on from it is there once, and nothing is left after `down` or `gc`.
//!
//! Provider, engine, plan, journal and their files are the real ones; each step is a new process that knows what is on the disk. Each
//! row has a stand-in of its own, with things of others in it. What is there is asked past the program, and so is how many things were
//! ever made.

mod bugs;
mod home;
mod row;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucl::name::Owner;
use gpucl::sandbox::lambda::{Config, Sandbox, User};
use serde_json::json;

use bugs::Bug;
use row::{CALLS, Call, Row, THENS, TROUBLES, Then, Trouble, figures};

/// How many rows go on at the same time: they wait more than they work.
const AT_ONCE: usize = 20;
/// How long a row may take.
const LIMIT: Duration = Duration::from_secs(180);

/// All troubles of each call; the ways on take turns.
fn each_once(calls: &[Call]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (offset, &call) in calls.iter().enumerate() {
        let thens = THENS.into_iter().cycle().skip(offset);
        rows.extend(TROUBLES.into_iter().zip(thens).map(|(trouble, then)| Row { call, trouble, then }));
    }
    rows
}

fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for call in CALLS {
        for trouble in TROUBLES {
            rows.extend(THENS.map(|then| Row { call, trouble, then }));
        }
    }
    rows
}

async fn run_all(rows: Vec<Row>, bug: Bug) -> Vec<(Row, Result<(), String>)> {
    let mut running = tokio::task::JoinSet::new();
    let (mut rows, mut results) = (rows.into_iter(), Vec::new());
    loop {
        while running.len() < AT_ONCE
            && let Some(row) = rows.next()
        {
            running.spawn(async move {
                let ended = tokio::time::timeout(LIMIT, on_a_stand_in(row, bug)).await;
                let late = || Err(format!("it did not come to its end in {} s", LIMIT.as_secs()));
                (row, ended.unwrap_or_else(|_| late()))
            });
        }
        match running.join_next().await {
            Some(result) => results.push(result.unwrap()),
            None => return results,
        }
    }
}

async fn on_a_stand_in(row: Row, bug: Bug) -> Result<(), String> {
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
    row::run(&sandbox, &owner, row, bug).await?;
    sandbox.check().map_err(|error| format!("CONTRACT: {error}"))
}

/// One request past the program; the status, and nothing when the connection was cut.
async fn post(sandbox: &Sandbox, path: &str, body: &serde_json::Value) -> Option<(u16, serde_json::Value)> {
    let client = gpucl::util::http::client().no_proxy().build().unwrap();
    let request = client.post(format!("{}/api/v1{path}", sandbox.base_url())).bearer_auth(sandbox.key(User::Alice));
    let answer = request.json(body).send().await.ok()?;
    let status = answer.status().as_u16();
    let body = answer.bytes().await.ok()?;
    Some((status, serde_json::from_slice(&body).unwrap_or_default()))
}

fn failures(results: &[(Row, Result<(), String>)]) -> Vec<String> {
    let failed = results.iter().filter_map(|(row, result)| Some((row, result.as_ref().err()?)));
    failed.map(|(row, why)| format!("{row:?}: {why}")).collect()
}

async fn all_leave_nothing(rows: Vec<Row>) {
    let begun = Instant::now();
    let results = run_all(rows, Bug::None).await;
    let failures = failures(&results);
    println!(
        "lambda matrix: {} rows, {} failed, {:.0} s\n{}",
        results.len(),
        failures.len(),
        begun.elapsed().as_secs_f64(),
        figures(&results)
    );
    assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_in_every_trouble_leaves_nothing_and_makes_nothing_twice() {
    all_leave_nothing(each_once(&CALLS)).await;
}

/// The same in all ways on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "by hand: just lambda-matrix"]
async fn the_whole_matrix() {
    all_leave_nothing(all()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deliberate_bug_of_each_class_is_caught() {
    for (bug, call, trouble, caught) in [
        (Bug::SecondOnLostAnswer, Call::Launch, Trouble::AnswerLost, "DOUBLE"),
        (Bug::TakesAnErrorForNothing, Call::Launch, Trouble::FailedAndDone, "DOUBLE"),
        (Bug::TakesAPageForNothing, Call::Launch, Trouble::PageAndDone, "DOUBLE"),
        (Bug::ForgetsIds, Call::Launch, Trouble::NotJournalled, "LEAK"),
        (Bug::TerminatesByPrefix, Call::Terminate, Trouble::NotJournalled, "TOUCHED"),
    ] {
        let results = run_all(vec![Row { call, trouble, then: Then::Down }], bug).await;
        let failures = failures(&results);
        assert!(failures.iter().any(|why| why.contains(caught)), "{bug:?} was not caught: {failures:?}");
        println!("caught: {bug:?}: {}", failures[0].chars().take(160).collect::<String>());
    }
}
