//! Counts of the comparisons with the contract in this test binary, written to a file since a test binary has no final
//! step.

use std::sync::{Mutex, PoisonError};

use gpucl::sandbox::lambda::totals;

/// Where `just lambda-contract` reads it.
const FILE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/lambda-contract.txt");

/// Writes down what was compared so far.
pub(super) fn record() {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    std::fs::write(FILE, format!("{}\n", totals())).unwrap();
}

#[test]
fn counts_of_the_contract_are_recorded() {
    let site = super::site::Site::prompt();
    site.run(&["offers", "--gpu", "a10"]).exits(0);
    drop(site);
    let said = std::fs::read_to_string(FILE).unwrap();
    let (requests, rest) = said.split_once(" requests and ").unwrap();
    let answers = rest.split(' ').next().unwrap();
    println!("{said}");
    assert!(requests.parse::<u64>().unwrap() > 0 && answers.parse::<u64>().unwrap() > 0, "{said}");
}
