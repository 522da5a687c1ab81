//! Failures at Chameleon: each has the right exit code and a hint, and leaves the right resources at the services.
//!
//! Where the real services can be made to do it, the same test runs there too: the modules `stand_in` and `real` of a
//! file. Those of `every` take more minutes than `.ci/run` has, and `just testbed-all` runs them.

mod hosts;
mod leases;
mod people;
mod servers;
mod wire;

use gpucl::sandbox::chameleon::{Config, Rule, User};

use super::site::{NO_SSH, Site, spec_into, ssh_says};

/// Tests that run at the stand-in and, where there is one, at the testbed; there the former in `.ci/run` as well.
macro_rules! on_both {
    (ci: [$($ci:ident)*] every: [$($every:ident)*]) => {
        mod stand_in {
            $(#[test] fn $ci() { super::$ci(super::super::Site::stand_in()); })*
            $(#[test] fn $every() { super::$every(super::super::Site::stand_in()); })*
        }
        mod real {
            $(#[test] #[ignore = "testbed"] fn $ci() { super::$ci(super::super::Site::real()); })*
            pub(super) mod every {
                $(#[test] #[ignore = "by hand: just testbed-all"] fn $every() { super::super::$every(super::super::super::Site::real()); })*
            }
        }
    };
}
use on_both;
