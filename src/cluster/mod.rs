//! The verbs on a cluster: up, plan, render, stop, down, verify. Each is the same pipe with another goal.

mod backend;
mod connections;
mod down;
mod gc;
pub mod lease;
mod limits;
mod open;
mod plan;
mod projects;
mod render;
mod status;
mod stop;
mod up;
mod verify;

pub use connections::{Remote, RemoteHost, connections};
pub use down::{DownOptions, Proof, down};
pub use gc::{Found, Gc, GcOptions, Standing};
pub use limits::{Approval, Ask, secrets_of};
pub use open::Settings;
pub use plan::{Planned, plan};
pub use projects::{HostTouches, Reach};
pub use render::{RenderedFile, ray_cluster_yaml, render};
pub use status::{
    ContainerReport, Known, LimitsReport, NodeReport, StatusReport, is_here, list, local_hosts, look, node_logs, status,
};
pub use stop::stop;
pub(crate) use stop::unknown;
pub use up::{UpOptions, UpOutcome, UpReport, up};
pub(crate) use verify::not_running;
pub use verify::{Verified, access, verify};
