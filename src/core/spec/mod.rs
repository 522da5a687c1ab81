//! Reads the user's YAML into a validated spec with all defaults filled in.
//!
//! This module contacts no provider and no host, and reads only the spec file and the files that it sends. Only
//! `yaml.rs` and `compose_text.rs` use the YAML crates.
//!
//! ```text
//! text -> yaml (events: a tree with positions) -> walk (schema, the provider's too) -> validate (meaning) -> yaml again (types)
//! ```

#[cfg(test)]
mod any_provider;
mod asks;
mod beside;
mod compose;
mod compose_text;
mod credentials;
mod data;
mod files;
#[cfg(test)]
mod fuzz;
mod limits;
mod load;
mod loaded;
mod memory;
mod model;
mod mounts;
mod node;
mod outputs;
mod place;
mod provider_keys;
mod ray_node;
mod schema;
mod sensitive;
mod services;
mod setup;
mod validate;
mod validate_data;
mod validate_files;
mod validate_mounts;
mod validate_services;
mod validate_setup;
mod validate_workers;
mod variables;
mod walk;
mod workers;
mod yaml;

pub use asks::{Ask, Class, Home, asks, classified, digest_of, unclassified, with_whole_paths};
pub use credentials::external_credentials;
pub use data::{DataSource, DataSpec, WORK_FOLDER};
pub use files::FileSpec;
pub use limits::{ASK_ABOVE, Amount, Deadline};
pub use load::{Allowed, load, load_alone, parse};
pub use loaded::Loaded;
pub use memory::Memory;
pub use model::{Capacity, DEFAULT_RAY_VERSION, GpuProof, HeadSpec, Partial, ProviderChoice, RaySpec, Spec, Timeouts};
pub use mounts::{MountSource, MountSpec};
pub use outputs::{OutputPath, same_name};
pub use place::Places;
pub use provider_keys::check_settings;
pub use ray_node::{GROUP_LABEL, NodeRole, NodeSpec};
pub use schema::schema;
pub use services::{
    BuildSpec, ExternalStore, Fragment, GrafanaSpec, IMAGE_NAMES, Images, JupyterSpec, ObjectStoreSpec, PrometheusSpec,
    Services, ServicesSpec, StoreKind, Switchable,
};
pub use setup::SetupSpec;
pub use workers::{HostChoice, Per, WorkerGroup, Workers};
