//! Fetches the outputs of a job from the cluster's data folder into the current folder.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::cli::app::App;
use crate::cli::commands::cp::connect;
use crate::cli::target::Target;
use crate::cluster;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{Account, SshHost};
use crate::name::Key;
use crate::provider::HostPlace;
use crate::spec::OutputPath;

/// The folder for data in a host's folder.
const DATA: &str = "data";

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
    let source = Source::of(app, target).await?;
    let mut failure = None;
    for path in wanted {
        match source.copy(path, &app.here).await {
            Ok(()) => {
                app.ui.status(format_args!("fetched {path}"));
                outputs.fetched.push(path.clone());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => outputs.missing.push(path.clone()),
            Err(error) => failure = failure.or(Some(error.while_doing(format!("fetch the output {path}")))),
        }
    }
    if let Source::Ssh { host, .. } = source {
        host.close().await;
    }
    failure.map_or(Ok(()), Err)
}

/// The data folder of the head's host.
enum Source {
    /// On this machine.
    Here(PathBuf),
    /// Over SSH: the folder by its path from the home folder, or absolute; read as root or not.
    Ssh { host: SshHost, folder: String, is_root: bool },
}

impl Source {
    async fn of(app: &App, target: &Target) -> Result<Self> {
        let state = &target.known.state;
        if let Some(HostPlace::Local { folder, .. }) = state.host(&Key::host(0)).and_then(|host| host.place.as_ref()) {
            return Ok(Self::Here(folder.join(DATA)));
        }
        let remote = cluster::connections(&app.paths, state, app.provider_context(app.plain_events()))
            .await?
            .ok_or_else(|| cluster::not_running(state))?;
        let head = remote.host("head")?;
        // A session starts in the home folder.
        let home = head.home();
        let folder = format!("{}/{DATA}", home.strip_prefix("~/").unwrap_or(&home));
        let is_root = head.runtime.account() == Account::Root;
        Ok(Self::Ssh { host: connect(&remote, "head").await?, folder, is_root })
    }

    /// Copies one output into a folder; of kind `NotFound` if it does not exist.
    async fn copy(&self, path: &OutputPath, into: &Path) -> Result<()> {
        match self {
            Self::Here(data) => copy_here(&data.join(path.as_str()), into).await,
            Self::Ssh { host, folder, is_root } => {
                let copied = host.download(&format!("{folder}/{path}"), into, *is_root, &mut |_| {}).await;
                copied.map(|_| ()).map_err(|error| match error.causes() {
                    [cause] if cause.ends_with("does not exist there") => {
                        Error::new(ErrorKind::NotFound, error.doing())
                    }
                    _ => error,
                })
            }
        }
    }
}

/// Copies a file or folder of this machine into a folder; links are copied as links.
async fn copy_here(source: &Path, into: &Path) -> Result<()> {
    let doing = || format!("copy {}", source.display());
    if let Err(error) = fs_err::symlink_metadata(source) {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let kind = if is_missing { ErrorKind::NotFound } else { ErrorKind::Host };
        return Err(Error::new(kind, doing()).caused_by(&error));
    }
    let mut copy = Command::new("cp");
    copy.args(["-R", "--"]).arg(source).arg(into).stdin(Stdio::null()).kill_on_drop(true);
    let copied = copy.output().await.doing(ErrorKind::Host, doing)?;
    match copied.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&copied.stderr);
            Err(Error::new(ErrorKind::Host, doing()).because(said.lines().last().unwrap_or("`cp` failed")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_output_of_this_machine_is_copied_under_its_name_and_a_missing_one_is_not_found() {
        let (data, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs_err::create_dir_all(data.path().join("out/deep")).unwrap();
        fs_err::write(data.path().join("out/deep/model.pt"), "weights").unwrap();
        let source = Source::Here(data.path().to_owned());
        let path = |text: &str| text.parse::<OutputPath>().unwrap();
        for (output, arrives) in [("out", "out/deep/model.pt"), ("out/deep/model.pt", "model.pt")] {
            source.copy(&path(output), here.path()).await.unwrap();
            assert_eq!(fs_err::read_to_string(here.path().join(arrives)).unwrap(), "weights");
        }
        assert_eq!(source.copy(&path("none"), here.path()).await.unwrap_err().kind(), ErrorKind::NotFound);
        // A folder in the way is an error, and no output is taken for a missing one.
        fs_err::create_dir_all(here.path().join("two/out")).unwrap();
        fs_err::write(data.path().join("two"), "2").unwrap();
        assert_eq!(source.copy(&path("two"), here.path()).await.unwrap_err().kind(), ErrorKind::Host);
    }
}
