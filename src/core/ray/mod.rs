//! A client of Ray's HTTP API, with token authentication: nodes, jobs, logs, packages.

mod access;
mod cancel;
mod client;
mod entrypoint;
mod fit;
mod holding;
mod jobs;
mod logs;
mod nodes;
mod package;
mod reason;
mod requirements;
mod runtime_env;
mod serve;
mod serve_file;
mod serve_metrics;
mod situation;
mod startup;
mod usage;

pub use access::{Access, Setting, Shell};
pub use client::{Client, TokenChoice, Version};
pub use entrypoint::shell_line;
pub use holding::Holding;
pub use jobs::{Job, JobStatus, SubmitRequest, check_id, exit_code};
pub use logs::{Follow, FollowOptions, Followed, LogTail};
pub use nodes::{NAME_LABEL, Node};
pub use package::{ListedFile, OnProgress, Package, SIZE_LIMIT, UploadOutcome, files_of};
pub use reason::{Unmet, reason, unmet};
pub use requirements::{is_editable, is_path, requirements_of};
pub use runtime_env::{Module, ModuleSource, RuntimeEnv, WorkingDir};
pub use serve::{Application, ApplicationStatus, Deployment, HttpOptions, Replica, Serving, serve_key};
pub use serve_file::{DEFAULT_APPLICATION, ServeApplication, ServeFile, is_import_path};
pub use serve_metrics::{Requests, requests};
pub use situation::{Amounts, Demand, Growing, Situation, Wanting};
pub use startup::StartupFailure;
pub use usage::{GpuUsage, Usage};
