//! The client against a site that answers what it is told to.

mod forms;
mod refusals;
mod server;
mod tokens;
mod trouble;
