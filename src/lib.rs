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
#[path = "core/engine/mod.rs"]
pub mod engine;
#[path = "core/error.rs"]
pub mod error;
#[path = "core/event/mod.rs"]
pub mod event;
#[cfg(test)]
#[path = "../fuzz/mod.rs"]
mod fuzz;
#[path = "core/host/mod.rs"]
pub mod host;
#[path = "core/money.rs"]
pub mod money;
#[path = "core/name.rs"]
pub mod name;
#[path = "core/plan/mod.rs"]
pub mod plan;
#[path = "core/playbook/mod.rs"]
pub mod playbook;
#[path = "core/provider/mod.rs"]
pub mod provider;
pub mod providers;
#[path = "core/ray/mod.rs"]
pub mod ray;
#[path = "core/render/mod.rs"]
pub mod render;
#[path = "core/runtime/mod.rs"]
pub mod runtime;
#[path = "core/s3/mod.rs"]
pub mod s3;
#[path = "../sandbox/mod.rs"]
pub mod sandbox;
#[path = "core/secret/mod.rs"]
pub mod secret;
#[path = "core/spec/mod.rs"]
pub mod spec;
#[path = "core/state/mod.rs"]
pub mod state;
#[path = "core/util/mod.rs"]
pub mod util;
