//! Tests of the client against a scripted site.

mod forms;
mod refusals;
mod server;
mod tokens;
mod trouble;
