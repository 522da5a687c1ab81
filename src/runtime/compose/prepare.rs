//! The stage that brings a host to where a project can run on it: playbooks chosen by what the host is.

use crate::error::{Error, ErrorKind, Result};
use crate::playbook::{Facts, Stage};
use crate::render::Library;
use crate::spec::Spec;

/// The stage `prepare` of a host: packages, engine, driver, toolkit, firewall, images.
///
/// `peers` are the addresses of the cluster's other hosts; with any, our ports are opened to them and to nobody else.
pub fn preparation(spec: &Spec, facts: &Facts, tag: &str, peers: &[String], library: &Library) -> Result<Stage> {
    let _ = (spec, facts, tag, peers, library);
    Err(Error::new(ErrorKind::Unsupported, "prepare a host for the docker runtime"))
}
