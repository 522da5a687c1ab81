//! The content of an MLflow server as a folder: experiments, runs, artifacts and registered models, written from one
//! server and read into another, through MLflow's REST API (3.17.2).
//!
//! Ids are the server's own, so that an import makes new ones and changes what refers to them; the tags `gpucl.origin.*`
//! say which item each is a copy of.

mod client;
mod copying;
mod export;
mod import;
mod query;
mod record;
mod registry;
mod source;

pub use client::{Login, Server};
pub use export::export;
pub use import::import;
pub use query::count_runs;
pub use record::Counts;
pub use registry::ImportOptions;

/// Shows how an export or an import goes on.
pub trait Watch: Sync {
    /// What is done now.
    fn doing(&self, what: &str);
    /// So many bytes of artifacts are to come.
    fn expects(&self, bytes: u64);
    /// This many bytes of artifacts came or went.
    fn moved(&self, bytes: u64);
    /// Something is not as in the origin.
    fn warn(&self, what: &str);
}

/// The version of the folder's layout.
const LAYOUT: u32 = 1;
/// The manifest of an export, which is written last.
const MANIFEST: &str = "gpucl-mlflow.json";
/// The tag with the id of the run that a run is a copy of.
const ORIGIN_RUN: &str = "gpucl.origin.run";
/// The tag with the id of the logged model that one is a copy of.
const ORIGIN_MODEL: &str = "gpucl.origin.model";
/// The tag with the number and the time of the version that a version is a copy of.
const ORIGIN_VERSION: &str = "gpucl.origin.version";
/// The tag of a copied run that is not whole: [`BEGUN`], or [`WAS_RUNNING`].
const IMPORT: &str = "gpucl.import";
/// The import of the run has not ended.
const BEGUN: &str = "begun";
/// The run had not ended when it was exported.
const WAS_RUNNING: &str = "was running";
