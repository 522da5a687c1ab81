//! Host programs for real: real shells, real detachment, real kills.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what tests stand on fails as tests do")]

mod closing;
mod ending;
mod fresh_host;
mod job_secrets;
mod login_machine;
mod looking;
mod neighbours;
mod playbooks;
mod ray_native;
mod restarting;
mod running;
mod support;
