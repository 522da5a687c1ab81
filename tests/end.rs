//! The end of a slot: the guard on hosts.

mod here;
