//! The verbs on a cluster: up, plan, render, stop, down, verify. Each is the same pipeline with another goal.

mod access;
mod checks;
mod down;
mod ending;
mod errors;
mod forecast;
mod gc;
mod growing;
mod guards;
mod hosts;
mod keep;
pub mod lease;
mod limits;
mod local_files;
mod loss;
mod machines;
mod open;
mod options;
mod outcome;
mod pages;
mod pin;
mod plan;
mod platform;
mod render;
mod report;
pub mod serve;
mod settings;
pub mod sites;
mod status;
mod stop;
mod substrate;
mod up;
mod verify;
mod which_machine;
mod worker;

pub use access::access;
pub use down::down;
pub use ending::{EndReport, IdleReport};
pub(crate) use errors::{not_running, unknown};
pub use gc::{Gc, GcOptions, Standing, TaggedResource};
pub use growing::growing;
pub use guards::{look_at_end, look_at_guards, look_at_jobs, save_on_hosts};
pub use hosts::HostConnector;
pub use keep::{Kept, extend, keep};
pub use limits::{has_limits, secrets_of};
pub use loss::loss;
pub use machines::{
    Bridge, CLIENT_PORT, DASHBOARD_PORT, Forward, Logs, Machine, Machines, NodeLine, PodHost, Pods, RayClient,
    RemotePort, Shell,
};
pub use options::{Approval, Ask, DownOptions, UpOptions};
pub use outcome::{HostAffectedPaths, Planned, Proof, UpOutcome, UpReport, Verified};
pub use plan::plan;
pub use render::{RenderedFile, ray_cluster_yaml, render};
pub use report::{AfterEnd, ContainerReport, Known, LastEnd, LimitsReport, NodeReport, Phase, StatusReport};
pub use settings::Settings;
pub use status::{inspect, list, status};
pub use stop::stop;
pub use up::up;
pub use verify::verify;
pub use which_machine::{other_machine, refuse_other_machine};
pub use worker::{by_hand, named};
