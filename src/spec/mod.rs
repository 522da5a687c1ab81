//! From the YAML that a person writes to a spec that has been checked and filled in.
//!
//! This module touches no provider, no host and no disk but the file it is given. `yaml.rs` alone knows
//! the YAML crates.

mod load;
mod model;
mod schema;
mod validate;
mod yaml;

pub use load::load;
pub use model::{
    GpuProof, HeadSpec, Memory, Per, ProviderChoice, RaySpec, Runtime, Spec, SpecDuration, Timeouts, WorkersSpec,
};
pub use schema::schema;
