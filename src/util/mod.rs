//! Leaf helpers that know nothing of clusters.

pub mod digest;
pub mod fs;
pub mod human;
pub mod near;
pub mod random;
