//! How Ray runs on hosts: what a node is started with, how it is seen, how it is ended.

pub mod compose;
pub mod native;
pub mod project;
