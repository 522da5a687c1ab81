//! Reads the user's YAML into a validated spec with all defaults filled in.
//!
//! This module contacts no provider and no host, and reads only the spec file and the files that it sends. Only
//! `yaml.rs` and `compose_text.rs` use the YAML crates.
//!
//! ```text
//! text -> yaml (events: a tree with positions) -> walk (schema, the provider's too) -> validate (meaning) -> yaml again (types)
//! ```
//!
//! The types are in `model.rs`, `load.rs` takes these steps, and `asks/` says what a spec that was loaded may do.

#[cfg(test)]
mod any_provider;
mod asks;
mod beside;
mod compose;
mod compose_text;
mod credentials;
#[cfg(test)]
mod fuzz;
mod load;
mod loaded;
mod model;
mod node;
mod notify;
mod place;
mod provider_keys;
mod ray_node;
mod schema;
mod sensitive;
mod validate;
mod variables;
mod walk;
mod yaml;

pub use asks::{Ask, Class, Home, asks, classified, digest_of, unclassified, with_whole_paths};
pub use credentials::{external_credentials, tracking_login};
pub use load::{Allowed, load, load_alone, parse};
pub use loaded::Loaded;
pub use model::{
    ASK_ABOVE, Amount, Bucket, BuildSpec, Capacity, DEFAULT_RAY_VERSION, DataSource, DataSpec, Deadline, EndSpec,
    ExternalMlflow, ExternalStore, FileSpec, Fragment, GpuProof, GrafanaSpec, HeadSpec, HostChoice, IMAGE_NAMES,
    IdleSpec, Images, JupyterSpec, MLFLOW_VERSION, Memory, MlflowSpec, MountSource, MountSpec, NotifySpec,
    ObjectStoreSpec, OutputPath, Partial, Per, PrometheusSpec, ProviderChoice, RaySpec, Route, SaveFrom, SaveSpec,
    SaveTo, ServeAnswer, ServeMethod, ServeRequest, ServeSpec, Services, ServicesSpec, SetupSpec, Spec, StoreKind,
    Switchable, Then, Timeouts, WORK_FOLDER, Webhook, WebhookUrl, WorkerGroup, Workers, same_name,
};
pub use place::Places;
pub use provider_keys::check_settings;
pub use ray_node::{GROUP_LABEL, NodeRole, NodeSpec};
pub use schema::schema;
