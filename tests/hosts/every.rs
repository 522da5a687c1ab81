//! Failures of which each takes minutes: `just testbed-all`.

mod amd;
mod cluster;
mod crash;
mod packages;
mod programs;
mod several;
mod two_hosts;
mod way;

/// Images are not begun: the test ends before they are needed.
pub(crate) use super::trouble::NO_IMAGES_BEGIN;
