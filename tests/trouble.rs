//! Failures: the exit code, the message with its hint, and the state of the machine afterwards.

mod install;
mod keyboard;
mod logins;
mod machine;
mod nodes;
mod one_cluster;
mod rounds;
mod state;
mod supervisor;
mod tools;
