//! The verbs on a cluster: up, plan, render, stop, down, verify. Each is the same pipe with another goal.

mod connections;
mod down;
mod gc;
mod hunt;
mod kind;
pub mod lease;
mod limits;
mod open;
mod plan;
mod processes;
mod projects;
mod render;
mod render_projects;
mod status;
mod stop;
mod up;
mod verify;

pub use connections::{Remote, RemoteHost, connections};
pub use down::{DownOptions, Proof, down};
pub use gc::{Found, Gc, GcOptions, Standing};
pub use kind::is_deployed;
pub use limits::{Approval, Ask, secrets_of};
pub use open::{Opened, Settings};
pub use plan::{Planned, plan};
pub use projects::{HostTouches, Reach};
pub use render::{RenderedFile, render};
pub use render_projects::ray_cluster_yaml;
pub use status::{
    ContainerReport, Known, LimitsReport, NodeReport, StatusReport, hosts, list, look, node_logs, status,
};
pub use stop::stop;
pub(crate) use stop::unknown;
pub use up::{UpOptions, UpOutcome, UpReport, up};
pub(crate) use verify::not_running;
pub use verify::{Verified, access, verify};
