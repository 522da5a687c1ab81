//! Ray's HTTP API, with its token: nodes, jobs, logs, packages.

mod client;

pub use client::Client;
