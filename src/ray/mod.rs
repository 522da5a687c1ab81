//! A client of Ray's HTTP API, with token authentication: nodes, jobs, logs, packages.

mod access;
mod client;
mod entrypoint;
mod fit;
mod jobs;
mod logs;
mod nodes;
mod package;
mod reason;
mod requirements;
mod runtime_env;
mod situation;
mod usage;

pub use access::{Access, Setting, Shell};
pub use client::{Client, TokenChoice, Version};
pub use entrypoint::shell_line;
pub use jobs::{Job, JobStatus, SubmitRequest, check_id, exit_code};
pub use logs::{Follow, FollowOptions, Followed, LogTail};
pub use nodes::Node;
pub use package::{OnProgress, Package, SIZE_LIMIT, UploadOutcome};
pub use reason::reason;
pub use runtime_env::{Module, ModuleSource, RuntimeEnv, WorkingDir};
pub use situation::{Amounts, Demand, Situation, Wanting};
pub use usage::{GpuUsage, Usage};
