//! Clusters whose nodes are processes on this machine, looked after by the cluster's agent: the native runtime.

pub(super) mod checks;
mod goal;
mod up;
mod world;

pub(super) use goal::{desired_of, layout};
pub(super) use up::up;
pub(super) use world::{HostWorld, HostWorldConfig};
