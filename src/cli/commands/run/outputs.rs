//! Fetches the outputs of a job from the cluster's data folder into the current folder.

use crate::cli::app::App;
use crate::cli::commands::cp::Machines;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::OutputPath;

/// What became of the outputs.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    /// Those that are in the current folder now.
    pub(super) fetched: Vec<OutputPath>,
    /// Those that the job has not made.
    pub(super) missing: Vec<OutputPath>,
}

/// Copies outputs into the current folder, each under its own name, and notes in `outputs` what became of each.
///
/// # Errors
/// The first failure, after all were tried; an output that does not exist is none.
pub(super) async fn fetch(app: &App, target: &Target, wanted: &[OutputPath], outputs: &mut Outputs) -> Result<()> {
    let machines = Machines::of(app, target).await?;
    let head = machines.open("head").await?;
    let mut failure = None;
    for path in wanted {
        match head.get(path.as_str(), &app.here, false).await {
            Ok(_) => {
                app.ui.status(format_args!("fetched {path}"));
                outputs.fetched.push(path.clone());
            }
            Err(error) if is_missing(&error) => outputs.missing.push(path.clone()),
            Err(error) => failure = failure.or(Some(error.while_doing(format!("fetch the output {path}")))),
        }
    }
    head.close().await;
    failure.map_or(Ok(()), Err)
}

/// Whether the error says that the output does not exist, here or on the host.
fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound || matches!(error.causes(), [cause] if cause.ends_with("does not exist there"))
}
