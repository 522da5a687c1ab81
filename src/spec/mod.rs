//! From the YAML that a person writes to a spec that has been checked and filled in.
//!
//! This module touches no provider, no host and no disk but the file it is given and those that it sends. `yaml.rs` alone knows
//! the YAML crates.
//!
//! ```text
//! text -> yaml (events: a tree with places) -> walk (the schema) -> validate (the meaning) -> yaml again (the types)
//! ```

mod beside;
mod credentials;
#[cfg(test)]
mod fuzz;
mod limits;
mod load;
mod model;
mod node;
mod place;
mod ray_node;
mod schema;
mod services;
mod validate;
mod validate_services;
mod walk;
mod yaml;

pub use credentials::external_credentials;
pub use limits::{ASK_ABOVE, Amount, Deadline};
pub use load::{Loaded, load, load_alone, parse};
pub use model::{
    Capacity, DEFAULT_RAY_VERSION, GpuProof, HeadSpec, Memory, Partial, Per, ProviderChoice, RaySpec, Spec, Timeouts,
    WorkersSpec,
};
pub use place::Places;
pub use ray_node::{NodeRole, NodeSpec};
pub use schema::schema;
pub use services::{
    BuildSpec, ExternalStore, Fragment, GrafanaSpec, IMAGE_NAMES, Images, JupyterSpec, ObjectStoreSpec, PrometheusSpec,
    ServicesSpec, StoreKind, Switchable,
};
pub use validate::Lookup;
