//! gpucl: from no GPU to a verified Ray cluster, and back to nothing.
//!
//! The library is public for the program and its tests; its API is not stable.
//! `ARCHITECTURE.md` has the overview. In one line:
//!
//! ```text
//! args -> spec -> lock + journal -> observe -> reconcile (pure) -> plan -> executor -> events -> sinks
//! ```

pub mod agent;
pub mod cli;
pub mod cluster;
pub mod engine;
pub mod error;
pub mod event;
#[cfg(test)]
#[path = "../fuzz/mod.rs"]
mod fuzz;
pub mod host;
pub mod money;
pub mod name;
pub mod plan;
pub mod playbook;
pub mod provider;
pub mod providers;
pub mod ray;
pub mod render;
pub mod runtime;
pub mod s3;
#[path = "../sandbox/mod.rs"]
pub mod sandbox;
pub mod secret;
pub mod spec;
pub mod state;
pub mod util;
