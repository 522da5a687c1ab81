//! Clusters whose nodes are containers of one compose project per host: the docker runtime.

mod acquire;
mod down;
mod effects;
mod expected;
mod goal;
mod images;
mod look;
mod outside;
mod promise;
mod reach;
mod status;
#[cfg(test)]
mod tests;
mod touch;
mod up;
mod verify;
mod world;

pub(super) use down::{down, leaves_traces, stop};
pub use reach::Reach;
pub(super) use reach::SshReach;
pub(super) use status::{access_of, known as known_status, look as look_status};
pub use touch::HostTouches;
pub(super) use up::{ends_at, plan, up};
pub(super) use verify::verify;
