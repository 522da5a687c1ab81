//! Brings applications to a configuration, back to the one before, and away.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{History, Served, named, port};
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{Application, ApplicationStatus, Serving};
use crate::util::human;

/// How often Serve is asked how a change goes.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Where applications come from that were deployed by a configuration.
const DECLARATIVE: &str = "declarative";

/// What was done to bring applications to their configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// Those that were deployed; the others served theirs already.
    pub deployed: Vec<String>,
    /// How long it took until they served.
    pub took: Duration,
}

/// An application that does not serve.
struct Failed {
    name: String,
    why: String,
}

impl Served<'_> {
    /// Brings applications, by their names, to these configurations, and waits until they serve. One that serves its
    /// own already stays untouched, as do all others.
    ///
    /// # Errors
    /// [`ErrorKind::NotReady`] if one does not serve: with its own error.
    pub async fn bring(&self, wanted: &BTreeMap<String, Value>, limit: Duration) -> Result<Brought> {
        let (brought, failed) = self.deploy(wanted, limit).await?;
        let mut history = History::read(self.folder)?;
        for name in brought.deployed.iter().filter(|name| failed.iter().all(|one| one.name != **name)) {
            if let Some(configuration) = wanted.get(name) {
                history.add(name, configuration)?;
            }
        }
        self.refuse_failed(&failed, &history, wanted)?;
        Ok(brought)
    }

    /// Brings an application back to the last configuration that served and is not the present one.
    ///
    /// # Errors
    /// If there is none, or it does not serve now.
    pub async fn roll_back(&self, name: &str, limit: Duration) -> Result<Brought> {
        let serving = self.client.serving().await?;
        let current = serving.applications.get(name).and_then(|it| it.deployed_app_config.as_ref());
        let mut history = History::read(self.folder)?;
        let before = history.before(name, current).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("go back with {name}"))
                .because("nothing else of it served before, as far as this machine knows")
        })?;
        let wanted = BTreeMap::from([(name.to_owned(), before.clone())]);
        let (brought, failed) = self.deploy(&wanted, limit).await?;
        self.refuse_failed(&failed, &history, &wanted)?;
        history.go_back_to(name, &before)?;
        Ok(brought)
    }

    /// Deploys those that do not serve their configuration, and waits for each; those that failed, with the reason.
    async fn deploy(&self, wanted: &BTreeMap<String, Value>, limit: Duration) -> Result<(Brought, Vec<Failed>)> {
        let (port, begun) = (port(self.state)?, Instant::now());
        let before = self.client.serving().await?;
        let is_other = |(name, configuration): &(&String, &Value)| !serves(&before, name, configuration);
        let deployed: Vec<String> = wanted.iter().filter(is_other).map(|(name, _)| name.clone()).collect();
        let mut failed = Vec::new();
        if !deployed.is_empty() {
            self.refuse_another_port(&before, port)?;
            let mut all = declared(&before);
            all.extend(wanted.clone());
            self.client.serve(&all.into_values().collect::<Vec<_>>(), port).await?;
            for name in &deployed {
                let application = self.until_over(name, limit.saturating_sub(begun.elapsed())).await?;
                if application.status != ApplicationStatus::Running {
                    let why = application.why().unwrap_or_else(|| "Serve does not say why".to_owned());
                    failed.push(Failed { name: name.clone(), why });
                }
            }
            if failed.len() < deployed.len() {
                self.check_closed().await?;
            }
        }
        Ok((Brought { deployed, took: begun.elapsed() }, failed))
    }

    /// Fails if any has failed, and says how to go on.
    fn refuse_failed(&self, failed: &[Failed], history: &History, wanted: &BTreeMap<String, Value>) -> Result<()> {
        if failed.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = failed.iter().map(|one| one.name.as_str()).collect();
        let mut error = Error::new(ErrorKind::NotReady, format!("deploy {}", names.join(", ")));
        for Failed { name, why } in failed {
            error = error.because(if failed.len() > 1 { format!("{name}: {why}") } else { why.clone() });
        }
        for name in names {
            error = error.hint(self.command(&format!("serve logs {name}")));
            if history.before(name, wanted.get(name)).is_some() {
                let back = self.command(&format!("serve rollback {name}"));
                error = error.hint(format!("{back}   # to what served before"));
            }
        }
        Err(error)
    }

    /// Deletes applications, and waits until nothing of them is left.
    ///
    /// # Errors
    /// If there is none of such a name, a job deployed it, or it still ends after this time.
    pub async fn delete(&self, names: &[String], limit: Duration) -> Result<()> {
        let serving = self.client.serving().await?;
        let mut all = declared(&serving);
        for name in names {
            if named(&serving, name)?.source != DECLARATIVE {
                return Err(Error::new(ErrorKind::Unsupported, format!("delete {name}"))
                    .because("a job deployed it with serve.run; a job can delete it: serve.delete"));
            }
            all.remove(name);
        }
        self.client.serve(&all.into_values().collect::<Vec<_>>(), port(self.state)?).await?;
        let begun = Instant::now();
        loop {
            let serving = self.client.serving().await?;
            let Some(name) = names.iter().find(|name| serving.applications.contains_key(*name)) else { return Ok(()) };
            if begun.elapsed() > limit {
                return Err(Error::new(ErrorKind::LeftBehind, format!("delete {name}"))
                    .because(format!("it still ends after {}", human::short_duration(limit))));
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Checks that the applications are closed to others, and ends Serve if they are not: open to everybody is worse
    /// than not there.
    async fn check_closed(&self) -> Result<()> {
        let way = self.way().await?;
        let closed = way.check(&self.key()).await;
        way.close().await;
        if let Err(error) = closed {
            self.client.end_serving().await?;
            return Err(error.because("Serve was ended"));
        }
        Ok(())
    }

    /// Waits until an application serves or has failed.
    async fn until_over(&self, name: &str, limit: Duration) -> Result<Application> {
        let (begun, mut said) = (Instant::now(), String::new());
        loop {
            let serving = self.client.serving().await?;
            let application = serving.applications.get(name);
            if let Some(application) = application.filter(|it| it.is_over()) {
                return Ok(application.clone());
            }
            let why = application.and_then(Application::why).unwrap_or_default();
            if !why.is_empty() && why != said {
                self.events.note(format!("{name}: {why}"));
                said.clone_from(&why);
            }
            if begun.elapsed() > limit {
                let error = Error::new(ErrorKind::NotReady, format!("deploy {name}"))
                    .because(format!("it does not serve after {}", human::short_duration(limit)))
                    .hint(self.command("serve status"));
                return Err(if why.is_empty() { error } else { error.because(why) });
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Serve listens where its first configuration said, and takes another port without a word.
    fn refuse_another_port(&self, serving: &Serving, port: u16) -> Result<()> {
        let Some(options) = serving.http_options.as_ref().filter(|_| !serving.applications.is_empty()) else {
            return Ok(());
        };
        if options.port == port && options.host == "127.0.0.1" {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "deploy")
            .because(format!("Serve was started by a job, and listens at {}:{}", options.host, options.port))
            .hint(format!("{}   # ends it and its applications; then deploy again", self.command("serve delete"))))
    }
}

/// Whether an application serves this configuration.
fn serves(serving: &Serving, name: &str, configuration: &Value) -> bool {
    serving.applications.get(name).is_some_and(|it| {
        it.status == ApplicationStatus::Running && it.deployed_app_config.as_ref() == Some(configuration)
    })
}

/// The configurations of all applications that were deployed by one: those that are not sent again are deleted.
fn declared(serving: &Serving) -> BTreeMap<String, Value> {
    let declared = serving.applications.iter();
    let declared = declared.filter(|(_, it)| it.source == DECLARATIVE && it.status != ApplicationStatus::Deleting);
    declared.filter_map(|(name, it)| Some((name.clone(), it.deployed_app_config.clone()?))).collect()
}
