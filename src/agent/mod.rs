//! `gpucl agent`: the one background process that a cluster may have on the user's machine.
//!
//! It starts the cluster's local processes, notices when one ends by itself, starts a worker again, and writes what it saw
//! to the cluster's journal. Nothing depends on its life: each command works without it and starts it again, processes go on
//! when it is killed, and the next agent takes them over by their tags. It ends when its cluster's state is gone.

mod armed;
mod client;
pub mod deadline;
mod protocol;
mod server;
mod supervise;
mod watch;

pub use armed::Armed;
pub use client::{AgentClient, AgentStart};
pub use protocol::{Answer, NodeStatus, Request};
pub use server::{AgentConfig, serve};
pub use watch::watch;
