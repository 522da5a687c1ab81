//! How Ray runs on hosts: what a node is started with, how it is seen, how it is ended, and the checks of a cluster.

mod host_world;
pub mod native;
pub mod verify;

pub(crate) use host_world::is_running;
pub use host_world::{HostWorld, HostWorldConfig};
