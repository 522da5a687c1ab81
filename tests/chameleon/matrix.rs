//! Every request that changes something, in every trouble: what is gone on from it is there once, and nothing is left after `down` or `gc`.
//!
//! Provider, engine, plan, journal and their files are the real ones; each step is a new process that knows what is on the disk. The
//! services are stand-ins, one for each row, which remove no duplicates; or the real ones of `testbed/openstack`, through a proxy that
//! fails. What is there is asked past the program, and so is how many things were ever made.

mod bugs;
pub(super) mod home;
mod row;
pub(super) mod services;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucl::name::Owner;

pub(super) use bugs::Bug;
use row::{CALLS, Call, Row, THENS, TROUBLES, Then, Trouble, figures};
use services::Services;

/// How many rows go on at the same time: they wait more than they work.
const AT_ONCE: usize = 40;

/// How long a row may take: seconds; on the real services a host boots in it.
const LIMIT: Duration = Duration::from_secs(180);
const REAL_LIMIT: Duration = Duration::from_secs(400);

async fn within(limit: Duration, row: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let late = || Err(format!("it did not come to its end in {} s", limit.as_secs()));
    tokio::time::timeout(limit, row).await.unwrap_or_else(|_| late())
}

fn rows(calls: &[Call], troubles: &[Trouble], thens: &[Then]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &call in calls {
        for &trouble in troubles {
            rows.extend(thens.iter().map(|&then| Row { call, trouble, then }));
        }
    }
    rows
}

/// Goes through rows, each at a stand-in of its own with things of others in it.
async fn on_stand_ins(rows: Vec<Row>, bug: Bug) -> Vec<(Row, Result<(), String>)> {
    let owner: Owner = "abcd1234".parse().unwrap();
    let mut running = tokio::task::JoinSet::new();
    let (mut rows, mut results) = (rows.into_iter(), Vec::new());
    loop {
        while running.len() < AT_ONCE
            && let Some(row) = rows.next()
        {
            let owner = owner.clone();
            running.spawn(async move { (row, within(LIMIT, on_a_stand_in(row, &owner, bug)).await) });
        }
        match running.join_next().await {
            Some(result) => results.push(result.unwrap()),
            None => return results,
        }
    }
}

async fn on_a_stand_in(row: Row, owner: &Owner, bug: Bug) -> Result<(), String> {
    let services = Arc::new(Services::stand_in().await);
    for name in ["gpucl-abcd1234-demo-2-key0", "gpucl-zzzz9999-demo-key0", "mine"] {
        services.add_key(name).await;
    }
    for description in ["gpucl-abcd1234-demo-2-address0", "gpucl-zzzz9999-demo-address0", "mine"] {
        services.add_address(description).await;
    }
    row::run(&services, owner, row, bug).await
}

fn failures(results: &[(Row, Result<(), String>)]) -> Vec<String> {
    let failed = results.iter().filter_map(|(row, result)| Some((row, result.as_ref().err()?)));
    failed.map(|(row, why)| format!("{row:?}: {why}")).collect()
}

async fn all_leave_nothing_on_stand_ins(rows: Vec<Row>) {
    let begun = Instant::now();
    let results = on_stand_ins(rows, Bug::None).await;
    let failures = failures(&results);
    println!(
        "chameleon matrix on stand-ins: {} rows ({} calls x {} troubles), {} failed, {:.1} s\n{}",
        results.len(),
        CALLS.len(),
        TROUBLES.len(),
        failures.len(),
        begun.elapsed().as_secs_f64(),
        figures(&results)
    );
    assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
}

/// Each call in each trouble, gone on from in one way after the other.
fn each_once(calls: &[Call]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (offset, &call) in calls.iter().enumerate() {
        let thens = THENS.into_iter().cycle().skip(offset);
        rows.extend(TROUBLES.into_iter().zip(thens).map(|(trouble, then)| Row { call, trouble, then }));
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_in_every_trouble_leaves_nothing_and_makes_nothing_twice() {
    all_leave_nothing_on_stand_ins(each_once(&CALLS)).await;
}

/// The same in all ways on: some minutes in a debug build.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "by hand: just chameleon-matrix"]
async fn the_whole_matrix_on_stand_ins() {
    all_leave_nothing_on_stand_ins(rows(&CALLS, &TROUBLES, &THENS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deliberate_bug_of_each_class_is_caught() {
    for (bug, call, trouble, caught) in [
        (Bug::SecondOnLostAnswer, Call::PostAddress, Trouble::AnswerLost, "DOUBLE"),
        (Bug::TakesAnErrorForNothing, Call::PostAddress, Trouble::FailedAndDone, "DOUBLE"),
        (Bug::ForgetsIds, Call::PostAddress, Trouble::NotJournalled, "LEAK"),
        (Bug::DeletesByPrefix, Call::DeleteAddress, Trouble::NotJournalled, "TOUCHED"),
    ] {
        let results = on_stand_ins(rows(&[call], &[trouble], &[Then::Down]), bug).await;
        let failures = failures(&results);
        assert!(failures.iter().any(|why| why.contains(caught)), "{bug:?} was not caught: {failures:?}");
        println!("caught: {bug:?}: {}", failures[0].chars().take(160).collect::<String>());
    }
}

/// The real services: everything of a lane is at one proxy, one row after another.
async fn lane(rows: Vec<Row>, on_a_lease: bool) -> Vec<(Row, Result<(), String>)> {
    if rows.is_empty() {
        return Vec::new();
    }
    let services = Arc::new(Services::real());
    let letters = gpucl::util::random::letters(16).unwrap();
    let (owner, stranger): (Owner, Owner) = (letters[..8].parse().unwrap(), letters[8..].parse().unwrap());
    services.add_key(&format!("gpucl-{owner}-demo-2-key0")).await;
    services.add_key(&format!("gpucl-{stranger}-demo-key0")).await;
    if on_a_lease {
        // Hosts of one lease, which a person made: it is adopted, and kept by `down`.
        services.add_lease(&format!("matrix-{stranger}"), 100).await;
    }
    let mut results = Vec::new();
    for row in rows {
        let begun = Instant::now();
        let result = within(REAL_LIMIT, row::run(&services, &owner, row, Bug::None)).await;
        println!("{row:?}: {} in {:.1} s", if result.is_ok() { "ok" } else { "FAILED" }, begun.elapsed().as_secs_f64());
        if let Err(why) = &result {
            println!("    {why}");
        }
        results.push((row, result));
    }
    services.rules(&[]).await;
    services.remove_kept().await;
    for thing in services.held().await {
        if thing.tag().is_some_and(|tag| tag.owner == owner) {
            services.remove(&thing).await;
        }
    }
    results
}

/// `GPUCL_MATRIX=PostKey,DeleteKey` narrows it to these calls.
fn is_asked(row: &Row) -> bool {
    let calls = std::env::var("GPUCL_MATRIX").unwrap_or_default();
    calls.is_empty() || calls.split(',').any(|call| call == format!("{:?}", row.call))
}

async fn on_the_real_services(mut rows: Vec<Row>) {
    rows.retain(is_asked);
    let _turn = services::turn();
    let begun = Instant::now();
    let of = |calls: &[Call]| -> Vec<Row> { rows.iter().copied().filter(|row| calls.contains(&row.call)).collect() };
    let on_host = async {
        let mut results = lane(of(&[Call::PutAddress, Call::PostServer, Call::DeleteServer]), true).await;
        results.extend(lane(of(&[Call::PostLease, Call::PutLease, Call::DeleteLease]), false).await);
        results
    };
    let (mut results, keys, addresses) = tokio::join!(
        on_host,
        lane(of(&[Call::PostKey, Call::DeleteKey]), false),
        lane(of(&[Call::PostAddress, Call::DeleteAddress]), false)
    );
    results.extend(keys);
    results.extend(addresses);
    let failures = failures(&results);
    println!(
        "chameleon matrix on the real services: {} rows, {} failed, {:.0} s\n{}",
        results.len(),
        failures.len(),
        begun.elapsed().as_secs_f64(),
        figures(&results)
    );
    assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "testbed"]
async fn a_dozen_rows_on_the_real_services() {
    use Call::*;
    let some = [
        (PostLease, Trouble::AnswerLost, Then::Again),
        (PostLease, Trouble::FailedAndDone, Then::Gc),
        (PutLease, Trouble::AnswerLost, Then::Again),
        (DeleteLease, Trouble::CutBefore, Then::Down),
        (PostKey, Trouble::NotJournalled, Then::Gc),
        (DeleteKey, Trouble::BadGateway, Then::Down),
        (PostAddress, Trouble::AnswerLost, Then::Again),
        (PostAddress, Trouble::NotJournalled, Then::Down),
        (DeleteAddress, Trouble::Failed, Then::Gc),
        (PutAddress, Trouble::CutBefore, Then::Again),
        (PostServer, Trouble::AnswerLost, Then::Again),
        (DeleteServer, Trouble::Limited, Then::Down),
    ];
    on_the_real_services(some.map(|(call, trouble, then)| Row { call, trouble, then }).to_vec()).await;
}

/// `just chameleon-matrix`: half an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "by hand: just chameleon-matrix"]
async fn the_whole_matrix_on_the_real_services() {
    // What takes seconds goes on in all ways; what boots a host, in one after the other.
    let quick = [Call::PostKey, Call::DeleteKey, Call::PostAddress, Call::DeleteAddress];
    let mut all = rows(&quick, &TROUBLES, &THENS);
    let booting: Vec<Call> = CALLS.into_iter().filter(|call| !quick.contains(call)).collect();
    all.extend(each_once(&booting));
    on_the_real_services(all).await;
}
