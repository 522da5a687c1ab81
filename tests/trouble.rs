//! Whatever goes wrong: the exit code, the message with its hint, and what the machine looks like afterwards.

mod install;
mod keyboard;
mod machine;
mod nodes;
mod one_cluster;
mod rounds;
mod state;
mod supervisor;
mod tools;
