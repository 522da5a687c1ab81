//! Fetches the outputs of a job from the cluster's data folder into a folder of their own.
//!
//! A spec chooses their names, so they do not come into the current folder, and nothing that is there is replaced unasked.
//! What cannot get its name in the end, after all that work, is kept beside it.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::target::Target;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::spec::OutputPath;
use crate::util::folder::{Existing, Goal};

/// The folder that outputs are fetched into by default, with one for each cluster in it.
const OUTPUTS: &str = "outputs";

/// Where outputs go on this machine.
pub(super) struct Destination {
    goal: Goal,
    existing: Existing,
}

impl Destination {
    /// The folder that the user named, or the default one of this cluster.
    pub(super) fn new(name: &ClusterName, named: Option<&Path>, existing: Existing) -> Self {
        let of_cluster = || Goal::chosen(Path::new(""), &Path::new(OUTPUTS).join(name.as_str()));
        Self { goal: named.map_or_else(of_cluster, Goal::named), existing }
    }

    /// Checks that these outputs can be put there, while nothing has been done for them.
    ///
    /// # Errors
    /// When something is in the way of one of them.
    pub(super) fn check(&self, wanted: &[OutputPath]) -> Result<()> {
        let names = wanted.iter().map(|path| Path::new(path.name()));
        self.goal.check(names, self.existing).map_err(|error| {
            let refused = usage(format!("make room for the outputs in {}", self.goal.path().display()), error)
                .because("nothing was started");
            let refused = match self.existing {
                Existing::Refused => refused.hint("--replace-outputs   # replaces what an earlier run left there"),
                _ => refused,
            };
            refused.hint("--outputs-to DIR    # puts them into another folder")
        })
    }
}

/// What became of the outputs.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    /// Those that are in their folder now.
    pub(super) fetched: Vec<OutputPath>,
    /// That folder, once one of them is there.
    pub(super) to: Option<PathBuf>,
    /// Those that the job has not made.
    pub(super) missing: Vec<OutputPath>,
    /// For each that was fetched and could not get its name: an error that says where it is.
    pub(super) aside: Vec<Error>,
}

/// Copies outputs to their destination, each under its own name, and notes in `outputs` what became of each.
///
/// # Errors
/// The first failure, after all were tried; an output that does not exist is none.
pub(super) async fn fetch(
    app: &App,
    target: &Target,
    wanted: &[OutputPath],
    destination: &Destination,
    outputs: &mut Outputs,
) -> Result<()> {
    let Destination { goal, existing } = destination;
    let doing = || format!("put the outputs into {}", goal.path().display());
    let folder = match goal.open([], *existing) {
        Ok(folder) => folder,
        Err(error) => {
            // Something came into its way meanwhile.
            let other =
                tempfile::Builder::new().prefix("outputs-").tempdir_in(&app.here).doing(ErrorKind::State, doing)?;
            let other = other.keep();
            let error = Error::new(ErrorKind::State, doing()).because(error);
            outputs.aside.push(error.because(format!("they are in {}", other.display())));
            Goal::named(&other).open([], *existing).doing(ErrorKind::State, doing)?
        }
    };
    // An output comes here first, and is moved to its name by one rename.
    let mut incoming =
        tempfile::Builder::new().prefix("incoming-").tempdir_in(folder.path()).doing(ErrorKind::State, doing)?;
    let opened = fs_err::File::open(incoming.path()).doing(ErrorKind::State, doing)?;
    let machines = target.machines(app).await?;
    let head = machines.named("head").await?;
    let mut failure = None;
    for path in wanted {
        match head.get(path.as_str(), incoming.path(), false).await {
            Ok(_) => match folder.adopt(opened.as_fd(), OsStr::new(path.name()), *existing) {
                Ok(()) => {
                    app.ui.status(format_args!("fetched {path} to {}", folder.path().join(path.name()).display()));
                    outputs.fetched.push(path.clone());
                    outputs.to = Some(folder.path().to_owned());
                }
                Err(error) => {
                    incoming.disable_cleanup(true);
                    let kept = incoming.path().join(path.name());
                    let error = Error::new(ErrorKind::State, format!("put the output {path} in its place"))
                        .because(error)
                        .because(format!("it is in {}", kept.display()));
                    outputs.aside.push(error);
                }
            },
            Err(error) if error.kind() == ErrorKind::NotFound => outputs.missing.push(path.clone()),
            Err(error) => failure = failure.or(Some(error.while_doing(format!("fetch the output {path}")))),
        }
    }
    failure.map_or(Ok(()), Err)
}
