//! Whatever goes wrong: the exit code, the message with its hint, and what the machine looks like afterwards.

mod agent;
mod install;
mod keyboard;
mod machine;
mod nodes;
mod rounds;
mod state;
mod tools;
