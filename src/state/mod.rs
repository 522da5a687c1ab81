//! What gpucl knows of a cluster, on the disk of this machine.

mod paths;

pub use paths::Paths;
