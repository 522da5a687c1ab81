//! A client of Ray's HTTP API, with token authentication: nodes, jobs, logs, packages.

mod access;
mod client;
mod entrypoint;
mod jobs;
mod logs;
mod nodes;
mod package;
mod runtime_env;
mod usage;

pub use access::{Access, Setting, Shell};
pub use client::{Client, TokenChoice, Version};
pub use entrypoint::shell_line;
pub use jobs::{Job, JobStatus, SubmitRequest, check_id, exit_code};
pub use logs::{Follow, FollowOptions, Followed, LogTail};
pub use nodes::Node;
pub use package::{OnProgress, Package, SIZE_LIMIT, UploadOutcome};
pub use runtime_env::{RuntimeEnv, WorkingDir};
pub use usage::{GpuUsage, Usage};
