//! The basis of the tests: a hermetic environment for the program.

pub(crate) mod blocks;
mod browser;
mod cluster;
mod drain;
mod env;
mod far;
mod gpus;
mod hidden;
mod holders;
mod http;
mod leftovers;
pub(crate) mod matrix;
mod nodes;
mod pages;
pub(crate) mod scan;
mod serving;
mod times;
mod wait;

pub(crate) use browser::Browser;
pub(crate) use cluster::{Turn, alone, tagged_processes, turn};
pub(crate) use drain::drain_a_worker;
pub(crate) use env::{Outcome, TestEnv};
pub(crate) use far::too_long_a_way;
pub(crate) use gpus::checks_pass_beside_a_job_that_holds_all_gpus;
pub(crate) use hidden::Hidden;
pub(crate) use holders::holders;
pub(crate) use http::{ask, get};
pub(crate) use leftovers::{SharedFolders, short_folders};
pub(crate) use nodes::{nodes, port_blocks, ray_session};
pub(crate) use pages::{a_run_is_seen_in_a_browser, dashboard_lists_nodes_in_a_browser, dashboard_wants_its_token};
pub(crate) use serving::{Served, an_application_answers, application_of_spec, write_application_of_spec};
pub(crate) use times::skipped;
pub(crate) use wait::{interrupt, until, until_or};

/// Undoes something when the test ends, passed or not.
pub(crate) struct After<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for After<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
