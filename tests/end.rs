//! The guard: the program that sees to the end of a cluster on its hosts, as a process, against a store that checks what
//! it is sent; and on hosts of real clusters.

mod activity;
mod clocks;
mod clouds;
mod containers;
mod here;
mod hostile;
mod killed;
mod phases;
mod ray;
mod rendered;
pub(crate) mod rounds;
mod saving;
pub(crate) mod slot;
mod speed;
mod trouble;
mod troubles;
