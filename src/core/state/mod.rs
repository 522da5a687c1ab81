//! The state of clusters on this machine's disk: lock, snapshot, journal, owner, and the folders of all files.
//!
//! Everything here can be read with `cat`. A snapshot names the journal that continues it, so that a crash between
//! the two loses nothing; each record is on disk before the effect that it announces.

mod cluster;
mod consent;
mod cost;
mod item;
mod journal;
mod lock;
mod notes;
mod owner;
mod paths;
mod store;

pub use cluster::{ClusterState, Item, Record};
pub use consent::{accept, accepted};
pub use cost::Spending;
pub use item::{ItemKind, ItemState, Priced};
pub(crate) use lock::way_to_write;
pub use lock::{Lock, LockInfo};
pub use notes::{HostNotes, HostPorts, LeaseNotes, LeaseSource, Notes, Pages, PlatformNotes, ProjectNotes};
pub use owner::{check_here, known_owner, move_owner, new_owner, owner};
pub use paths::Paths;
pub use store::Store;
