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
pub use gpucl_core::{
    engine, error, event, host, mlflow, money, name, plan, playbook, provider, ray, render, runtime, s3, secret, spec,
    state, util,
};
pub use {gpucl_providers as providers, gpucl_sandbox as sandbox};
