//! Brings applications to a configuration, back to the one before, and away.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::secrets::{SecretNames, SecretValues};
use super::way::listens;
use super::{History, Served, named};
use crate::cluster::growing::growing;
use crate::error::{Error, ErrorKind, Result};
use crate::host::SECRETS;
use crate::ray::{Application, ApplicationStatus, HttpOptions, Serving, Situation, Unmet, unmet};
use crate::util::human;

/// How often Serve is asked how a change goes.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often in a row no node has what a replica asks for before that is believed: nodes come and go.
const IN_VAIN: u32 = 6;

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
    /// It is not over: Serve goes on with it.
    goes_on: bool,
}

/// An application that is waited for.
struct Waiting<'a> {
    name: &'a str,
    /// Why it waits, as said last.
    said: String,
    /// How often in a row no node had what it asks for.
    in_vain: u32,
}

/// How an application that is waited for is.
enum Now {
    UnderWay,
    Serves,
    Failed(Failed),
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
        self.sweep_packages(&history);
        self.sweep_secrets().await;
        Ok(brought)
    }

    /// The names of the secrets that an application needs to go back.
    ///
    /// # Errors
    /// If nothing of it served before.
    pub async fn secrets_to_roll_back(&self, name: &str) -> Result<SecretNames> {
        self.names_of_secrets(&self.before(name, &History::read(self.folder)?).await?)
    }

    /// Brings an application back to the last configuration that served and is not the present one, with the values that
    /// its secrets have now.
    ///
    /// # Errors
    /// If there is none, or it does not serve now.
    pub async fn roll_back(&self, name: &str, secrets: &SecretValues, limit: Duration) -> Result<Brought> {
        let mut history = History::read(self.folder)?;
        let before = self.before(name, &history).await?;
        self.give_packages(name, &before).await?;
        let mut configuration = before.clone();
        if !secrets.is_empty() {
            configuration["runtime_env"]["env_vars"][SECRETS] = Value::String(self.give_secrets(secrets).await?);
        }
        let wanted = BTreeMap::from([(name.to_owned(), configuration)]);
        let (brought, failed) = self.deploy(&wanted, limit).await?;
        self.refuse_failed(&failed, &history, &wanted)?;
        history.go_back_to(name, &before, &wanted[name])?;
        self.sweep_secrets().await;
        Ok(brought)
    }

    /// The last configuration that served and is not the present one.
    async fn before(&self, name: &str, history: &History) -> Result<Value> {
        let serving = self.client.serving().await?;
        let current = serving.applications.get(name).and_then(|it| it.deployed_app_config.as_ref());
        history.before(name, current).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("roll {name} back"))
                .because("nothing else of it served before, as far as this machine knows")
        })
    }

    /// Deploys those that do not serve their configuration, and waits for each; those that failed, with the reason.
    async fn deploy(&self, wanted: &BTreeMap<String, Value>, limit: Duration) -> Result<(Brought, Vec<Failed>)> {
        let (listens, begun) = (listens(self.state)?, Instant::now());
        let before = self.client.serving().await?;
        let is_other = |(name, configuration): &(&String, &Value)| !serves(&before, name, configuration);
        let deployed: Vec<String> = wanted.iter().filter(is_other).map(|(name, _)| name.clone()).collect();
        let mut failed = Vec::new();
        if !deployed.is_empty() {
            self.refuse_another_port(&before, &listens)?;
            let mut all = declared(&before);
            all.extend(wanted.clone());
            self.client.serve(&all.into_values().collect::<Vec<_>>(), &listens).await?;
            failed = self.until_over(&deployed, limit.saturating_sub(begun.elapsed())).await?;
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
        for Failed { name, why, .. } in failed {
            error = error.because(if failed.len() > 1 { format!("{name}: {why}") } else { why.clone() });
        }
        for Failed { name, goes_on, .. } in failed {
            error = error.hint(match goes_on {
                true => format!("{}   # ends it", self.command(&format!("serve delete {name}"))),
                false => self.command(&format!("serve logs {name}")),
            });
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
            if !named(&serving, name)?.is_declared() {
                return Err(Error::new(ErrorKind::Unsupported, format!("delete {name}"))
                    .because("a job deployed it with serve.run; a job can delete it: serve.delete"));
            }
            all.remove(name);
        }
        self.client.serve(&all.into_values().collect::<Vec<_>>(), &listens(self.state)?).await?;
        let begun = Instant::now();
        loop {
            let serving = self.client.serving().await?;
            let Some(name) = names.iter().find(|name| serving.applications.contains_key(*name)) else {
                self.sweep_secrets().await;
                return Ok(());
            };
            if begun.elapsed() > limit {
                return Err(Error::new(ErrorKind::LeftBehind, format!("delete {name}"))
                    .because(format!("it still ends after {}", human::short_duration(limit))));
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Ends Serve and all applications.
    ///
    /// # Errors
    /// If Ray does not answer.
    pub async fn end(&self) -> Result<()> {
        self.client.end_serving().await?;
        self.sweep_secrets().await;
        Ok(())
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

    /// Waits until none of these applications is under way any more; those that failed, the first one first. What has failed
    /// while others are waited for is said at once.
    async fn until_over(&self, names: &[String], limit: Duration) -> Result<Vec<Failed>> {
        let begun = Instant::now();
        let mut waiting: Vec<Waiting<'_>> =
            names.iter().map(|name| Waiting { name, said: String::new(), in_vain: 0 }).collect();
        let mut failed: Vec<Failed> = Vec::new();
        loop {
            let serving = self.client.serving().await?;
            let is_late = begun.elapsed() > limit;
            let before = failed.len();
            let mut still = Vec::new();
            for mut one in waiting {
                let is = serving.applications.get(one.name);
                match self.look(&mut one, is, is_late.then_some(limit)).await? {
                    Now::UnderWay => still.push(one),
                    Now::Serves => {}
                    Now::Failed(why) => failed.push(why),
                }
            }
            if still.is_empty() {
                return Ok(failed);
            }
            for Failed { name, why, .. } in &failed[before..] {
                self.events.warn(format!("{name} failed: {why}"));
            }
            waiting = still;
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// How an application is now; it has failed, too, if it waits for what no node will have, or is `late`: it was to serve
    /// within this time.
    async fn look(&self, one: &mut Waiting<'_>, is: Option<&Application>, late: Option<Duration>) -> Result<Now> {
        let name = one.name;
        let failed = |why, goes_on| Now::Failed(Failed { name: name.to_owned(), why, goes_on });
        if let Some(application) = is.filter(|it| it.is_over()) {
            return Ok(match application.status {
                ApplicationStatus::Running => Now::Serves,
                _ => failed(application.why().unwrap_or_else(|| "Serve does not say why".to_owned()), false),
            });
        }
        let unmet = match is {
            Some(application) => self.unmet(application).await?,
            None => None,
        };
        one.in_vain = if unmet.as_ref().is_some_and(|unmet| unmet.is_in_vain) { one.in_vain + 1 } else { 0 };
        // Ray's own message comes after 30 s, and says less.
        let why = unmet.map(|unmet| unmet.why).or_else(|| is.and_then(Application::why)).unwrap_or_default();
        if !why.is_empty() && why != one.said {
            self.events.note(format!("{name}: {why}"));
            one.said.clone_from(&why);
        }
        if one.in_vain > IN_VAIN {
            return Ok(failed(why, true));
        }
        let Some(limit) = late else { return Ok(Now::UnderWay) };
        let late = format!("it does not serve after {}", human::short_duration(limit));
        Ok(failed(if why.is_empty() { late } else { format!("{late}: {why}") }, true))
    }

    /// What the replicas of an application ask for in vain.
    ///
    /// # Errors
    /// If Ray does not answer.
    pub async fn unmet(&self, application: &Application) -> Result<Option<Unmet>> {
        let Some(situation) = self.client.waiting(application).await? else { return Ok(None) };
        Ok(unmet(&Situation { growing: growing(self.state), ..situation }))
    }

    /// Serve listens where its first configuration said, and takes another port without a word.
    fn refuse_another_port(&self, serving: &Serving, listens: &HttpOptions) -> Result<()> {
        let Some(options) = serving.http_options.as_ref().filter(|_| !serving.applications.is_empty()) else {
            return Ok(());
        };
        if options == listens {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "deploy")
            .because(format!("Serve was started by a job, and listens at {}:{}", options.host, options.port))
            .hint(format!("{}   # ends it and its applications; then deploy again", self.command("serve delete"))))
    }
}

/// Whether an application serves this configuration.
pub(super) fn serves(serving: &Serving, name: &str, configuration: &Value) -> bool {
    let application = serving.applications.get(name);
    application.is_some_and(|it| it.status == ApplicationStatus::Running && it.has(configuration))
}

/// The configurations of all applications that were deployed by one: those that are not sent again are deleted.
fn declared(serving: &Serving) -> BTreeMap<String, Value> {
    let declared = serving.applications.iter();
    let declared = declared.filter(|(_, it)| it.is_declared() && it.status != ApplicationStatus::Deleting);
    declared.filter_map(|(name, it)| Some((name.clone(), it.deployed_app_config.clone()?))).collect()
}
