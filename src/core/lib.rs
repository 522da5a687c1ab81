//! The core of gpucl: what a cluster is, and everything that is done to one, without knowing a provider or a command.
//!
//! The library is public for the other crates of gpucl and for its tests; its API is not stable.

pub mod engine;
pub mod error;
pub mod event;
pub mod host;
pub mod mlflow;
pub mod money;
pub mod name;
pub mod plan;
pub mod playbook;
pub mod provider;
pub mod ray;
pub mod render;
pub mod runtime;
pub mod s3;
pub mod secret;
pub mod spec;
pub mod state;
pub mod util;
