//! The way to a cluster's MLflow, with the login of its jobs.

use std::time::Duration;

use secrecy::SecretString;

use crate::cli::app::App;
use crate::cli::target::Target;
use crate::cluster::{self, Forward};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::mlflow::{Login, Server, count_runs};
use crate::name::{ClusterName, Key};
use crate::runtime;
use crate::runtime::project::Page;
use crate::spec::tracking_login;
use crate::util::fs;

/// The page of MLflow, whose port has its API as well.
const PAGE: &str = "mlflow";

/// A server, reached for as long as this lives.
pub(super) struct Way {
    pub(super) server: Server,
    forward: Option<Forward>,
}

impl Way {
    /// Opens it.
    ///
    /// # Errors
    /// If the cluster has no MLflow, or does not run.
    pub(super) async fn open(app: &App, target: &Target) -> Result<Self> {
        let state = &target.known.state;
        let spec = state.spec.as_ref().ok_or_else(|| cluster::not_running(state))?;
        if let Some(external) = spec.external_mlflow() {
            let login = external.credentials_file.map_or(Ok(Login::Open), |file| tracking_login(&file))?;
            return Ok(Self { server: Server::new(&external.uri, login)?, forward: None });
        }
        if !spec.own_mlflow() {
            return Err(without_mlflow(&target.name, state.platform().map(|_| spec.provider.name())));
        }
        target.access()?;
        let pages = runtime::of(spec.runtime).pages(spec, &Key::host(0), &target.head_ports()?);
        let page = pages.into_iter().find(|page| page.name == PAGE && page.port != 0).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "use MLflow")
                .because("it was not started yet")
                .hint(format!("gpucl up -c {}", target.name))
        })?;
        let login = login(target, &page)?;
        if !target.is_remote() {
            return Ok(Self { server: Server::new(&format!("http://127.0.0.1:{}", page.port), login)?, forward: None });
        }
        let forward = target.machines(app).await?.forward("head", page.port, None).await?;
        let server = Server::new(&format!("http://{}", forward.local()), login)?;
        Ok(Self { server, forward: Some(forward) })
    }

    /// Closes it, and waits until nothing listens.
    pub(super) async fn close(self) {
        if let Some(forward) = self.forward {
            forward.close().await;
        }
    }
}

/// How many runs a cluster's own MLflow has; `None` if it does not say so in this time.
pub(crate) async fn runs_soon(app: &App, target: &Target, limit: Duration) -> Option<usize> {
    let count = async {
        let way = Way::open(app, target).await.ok()?;
        let count = count_runs(&way.server).await.ok();
        way.close().await;
        count
    };
    tokio::time::timeout(limit, count).await.ok().flatten()
}

/// The error of a cluster without MLflow: with the provider of a platform there is none.
fn without_mlflow(cluster: &ClusterName, platform: Option<&str>) -> Error {
    let error = Error::new(ErrorKind::NotFound, "use MLflow").because(format!("the cluster {cluster} has no MLflow"));
    match platform {
        Some(provider) => error.because(format!("there is none with the provider `{provider}`")),
        None => error.hint("add to its spec, then run `gpucl up`: services: {mlflow: true}"),
    }
}

fn login(target: &Target, page: &Page) -> Result<Login> {
    let path = target.folder().join("secrets").join(&page.secret);
    let text = fs::read_text_within(&path, fs::RECORD_LIMIT);
    let text = text.doing(ErrorKind::State, || format!("read the login of MLflow in {}", path.display()))?;
    let password = SecretString::from(text.trim().to_owned());
    Ok(Login::Password { user: page.user.clone().unwrap_or_default(), password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_without_mlflow_is_offered_one_where_there_can_be_one() {
        let cluster: ClusterName = "demo".parse().unwrap();
        let here = without_mlflow(&cluster, None);
        assert_eq!(here.causes(), ["the cluster demo has no MLflow"]);
        assert_eq!(here.hints().len(), 1);
        let there = without_mlflow(&cluster, Some("kubernetes"));
        assert_eq!(there.causes()[1], "there is none with the provider `kubernetes`");
        assert!(there.hints().is_empty());
    }
}
