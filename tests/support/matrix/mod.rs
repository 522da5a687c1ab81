//! Every changing request with every fault: after the retry its resource exists once, and nothing is left after `down`
//! or `gc`.
//!
//! Provider, engine, plan, journal and their files are the real ones; each step is a new process that knows what is on
//! the disk. What is there is asked past the program, and so is how many things were ever made. A provider brings its
//! calls, and its services as a [`Cloud`].

mod bug;
mod cloud;
mod home;
mod row;
mod table;
mod trouble;

pub(crate) use bug::Bug;
pub(crate) use cloud::{Cloud, Thing, Victim};
pub(crate) use home::{Death, Home};
pub(crate) use row::{Call, Row, run};
pub(crate) use table::{Ended, all_are_caught, all_left_nothing, crossed, each_once, side_by_side, within};
pub(crate) use trouble::{THENS, Then, Trouble};
