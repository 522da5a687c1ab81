//! The `native` runtime: Ray in a shared virtual environment, nodes as processes under a supervisor on their host
//! (`templates/ray-native/host.py`).
//!
//! All files of a node are in its host's folder. Ray's sockets need short paths: a link in the runtime folder leads
//! there. On one machine all of Ray listens on the loopback only (see `templates/ray-native/node.py`), so that nothing
//! is open to the network and nothing outside can be disturbed. Hosts on several machines need a site that opens its
//! network to them (`runtime/spread.rs`).

mod launch;
mod layout;
mod ports;
mod runtime;

pub use launch::{Launch, Network, launch};
pub(crate) use launch::{promise_of, resource_of};
pub use layout::Layout;
pub use ports::NodePorts;
pub use runtime::NativeRuntime;
