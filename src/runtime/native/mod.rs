//! The `native` runtime: Ray in a shared virtual environment, nodes as processes that the cluster's agent supervises; on hosts that
//! are reached by SSH a supervisor there does.
//!
//! Everything of a node lies in its host's folder. Ray's sockets need short paths: a link in the runtime folder leads there.
//! On one machine all of Ray listens on the loopback only (`templates/ray-native/node.py` says how), so that nothing is open
//! to the world and nothing outside can be disturbed.

mod deployed;
mod end;
mod launch;
mod layout;
mod observe;
mod ports;
mod prepare;
mod record;

pub use deployed::Deployed;
pub use end::{Sight, end_processes};
pub(crate) use launch::resource_of;
pub use launch::{HeadAddress, Launch, launch};
pub use layout::Layout;
pub(crate) use observe::pids;
pub use observe::{ClusterProcesses, NODE_SCRIPT, TAG_VARIABLE, observe_all, observe_nodes, tagged};
pub use ports::{NodePorts, allocate, first_choice, refuse_taken, release as release_ports};
pub use prepare::{Prepared, is_prepared, preparation};
pub use record::Record;
