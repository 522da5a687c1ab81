//! The verbs on a cluster: up, plan, render, stop, down, verify. Each is the same pipeline with another goal.

mod backend;
mod connections;
mod down;
mod errors;
mod gc;
pub mod lease;
mod limits;
mod open;
mod options;
mod outcome;
mod pin;
mod plan;
mod render;
mod report;
mod status;
mod stop;
mod up;
mod verify;
mod worker;

pub use backend::HostConnector;
pub use connections::{Remote, RemoteHost, connections, data_here};
pub use down::down;
pub(crate) use errors::{not_running, unknown};
pub use gc::{Found, Gc, GcOptions, Standing};
pub use limits::secrets_of;
pub use open::Settings;
pub use options::{Approval, Ask, DownOptions, UpOptions};
pub use outcome::{HostAffectedPaths, Planned, Proof, UpOutcome, UpReport, Verified};
pub use plan::plan;
pub use render::{RenderedFile, ray_cluster_yaml, render};
pub use report::{ContainerReport, Known, LimitsReport, NodeReport, StatusReport};
pub use status::{inspect, list, local_hosts, node_logs, status};
pub use stop::stop;
pub use up::up;
pub use verify::{access, verify};
pub use worker::{by_hand, named};
