//! Lambda through the program, on the stand-in in this process. Every request and answer is compared with the contract.

mod capacity_wait;
pub(crate) mod host_key;
mod keyring;
mod keys;
mod matrix;
mod money_and_places;
pub(crate) mod site;
mod totals;
mod trouble;
pub(crate) mod whole;
mod wire;
