//! How Ray runs on hosts: how nodes are started, observed and ended.

pub mod compose;
pub mod data;
pub mod native;
pub mod project;
