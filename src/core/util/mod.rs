//! General helpers that do not depend on clusters.

pub mod child;
pub mod digest;
pub mod duration;
pub mod fence;
pub mod folder;
pub mod fs;
#[cfg(test)]
mod fuzz;
pub mod http;
pub mod human;
pub mod installer;
pub mod lines;
pub mod near;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod random;
pub mod runtime_dir;
pub mod text;
pub mod variable;
pub mod when;
