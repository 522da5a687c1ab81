//! The matrix at Chameleon: at stand-ins, one for each row, which remove no duplicates; or at the real services of
//! `testbed/openstack`, through a proxy that fails.

mod cloud;
pub(super) mod services;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucl::name::Owner;

use crate::support::matrix::{
    Bug, Call, Cloud as _, Ended, Row, THENS, Then, Thing as _, Trouble, all_are_caught, all_left_nothing, crossed,
    each_once, run, side_by_side, within,
};
use cloud::{CALLS, TROUBLES, call};
use services::Services;

/// How many rows go on at the same time: they wait more than they work.
const AT_ONCE: usize = 40;

/// How long a row may take on the real services: a host boots in it.
const REAL_LIMIT: Duration = Duration::from_secs(400);

/// A row at a stand-in of its own with things of others in it.
async fn on_a_stand_in(row: Row, bug: Bug) -> Ended {
    let owner: Owner = "abcd1234".parse().unwrap();
    let services = Arc::new(Services::stand_in().await);
    for name in ["gpucl-abcd1234-demo-2-key0", "gpucl-zzzz9999-demo-key0", "mine"] {
        services.add_key(name).await;
    }
    for description in ["gpucl-abcd1234-demo-2-address0", "gpucl-zzzz9999-demo-address0", "mine"] {
        services.add_address(description).await;
    }
    run(&services, &owner, row, bug).await
}

async fn all_leave_nothing_on_stand_ins(rows: Vec<Row>) {
    let begun = Instant::now();
    let results = side_by_side(rows, AT_ONCE, |row| on_a_stand_in(row, Bug::None)).await;
    all_left_nothing(&results, &CALLS, |rows, failed| {
        let (of, seconds) =
            (format!("{} calls x {} troubles", CALLS.len(), TROUBLES.len()), begun.elapsed().as_secs_f64());
        format!("chameleon matrix on stand-ins: {rows} rows ({of}), {failed} failed, {seconds:.1} s")
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_with_every_fault_leaks_and_duplicates_nothing() {
    all_leave_nothing_on_stand_ins(each_once(&CALLS, &TROUBLES)).await;
}

/// The same in all ways on: some minutes in a debug build.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "by hand: just chameleon-matrix"]
async fn the_whole_matrix_on_stand_ins() {
    all_leave_nothing_on_stand_ins(crossed(&CALLS, &TROUBLES, &THENS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deliberate_bug_of_each_class_is_caught() {
    let bugs = [
        (Bug::SecondOnLostAnswer, call("PostAddress"), Trouble::AnswerLost, "DOUBLE"),
        (Bug::TakesAnErrorForNothing, call("PostAddress"), Trouble::FailedAndDone, "DOUBLE"),
        (Bug::ForgetsIds, call("PostAddress"), Trouble::NotJournalled, "LEAK"),
        (Bug::DeletesByPrefix, call("DeleteAddress"), Trouble::NotJournalled, "TOUCHED"),
    ];
    all_are_caught(&bugs, on_a_stand_in).await;
}

/// The real services: everything of a lane is at one proxy, one row after another.
async fn lane(rows: Vec<Row>, on_a_lease: bool) -> Vec<(Row, Ended)> {
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
        let result = within(REAL_LIMIT, run(&services, &owner, row, Bug::None)).await;
        println!("{row:?}: {} in {:.1} s", if result.is_ok() { "ok" } else { "FAILED" }, begun.elapsed().as_secs_f64());
        if let Err(why) = &result {
            println!("    {why}");
        }
        results.push((row, result));
    }
    services.fail_no_more().await;
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
    let of = |names: &[&str]| -> Vec<Row> {
        let calls: Vec<Call> = names.iter().map(|name| call(name)).collect();
        rows.iter().copied().filter(|row| calls.contains(&row.call)).collect()
    };
    let on_host = async {
        let mut results = lane(of(&["PutAddress", "PostServer", "DeleteServer"]), true).await;
        results.extend(lane(of(&["PostLease", "PutLease", "DeleteLease"]), false).await);
        results
    };
    let (mut results, keys, addresses) = tokio::join!(
        on_host,
        lane(of(&["PostKey", "DeleteKey"]), false),
        lane(of(&["PostAddress", "DeleteAddress"]), false)
    );
    results.extend(keys);
    results.extend(addresses);
    all_left_nothing(&results, &CALLS, |rows, failed| {
        let seconds = begun.elapsed().as_secs_f64();
        format!("chameleon matrix on the real services: {rows} rows, {failed} failed, {seconds:.0} s")
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "testbed"]
async fn a_dozen_rows_on_the_real_services() {
    let some = [
        ("PostLease", Trouble::AnswerLost, Then::Again),
        ("PostLease", Trouble::FailedAndDone, Then::Gc),
        ("PutLease", Trouble::AnswerLost, Then::Again),
        ("DeleteLease", Trouble::CutBefore, Then::Down),
        ("PostKey", Trouble::NotJournalled, Then::Gc),
        ("DeleteKey", Trouble::BadGateway, Then::Down),
        ("PostAddress", Trouble::AnswerLost, Then::Again),
        ("PostAddress", Trouble::NotJournalled, Then::Down),
        ("DeleteAddress", Trouble::Failed, Then::Gc),
        ("PutAddress", Trouble::CutBefore, Then::Again),
        ("PostServer", Trouble::AnswerLost, Then::Again),
        ("DeleteServer", Trouble::Limited, Then::Down),
    ];
    on_the_real_services(some.map(|(name, trouble, then)| Row { call: call(name), trouble, then }).to_vec()).await;
}

/// `just chameleon-matrix`: half an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "by hand: just chameleon-matrix"]
async fn the_whole_matrix_on_the_real_services() {
    // What takes seconds goes on in all ways; what boots a host, in one after the other.
    let quick = ["PostKey", "DeleteKey", "PostAddress", "DeleteAddress"].map(call);
    let mut all = crossed(&quick, &TROUBLES, &THENS);
    let booting: Vec<Call> = CALLS.into_iter().filter(|call| !quick.contains(call)).collect();
    all.extend(each_once(&booting, &TROUBLES));
    on_the_real_services(all).await;
}
