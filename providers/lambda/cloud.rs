//! Shared context of this provider: the account, opened on first use, and its lists, shared by concurrent callers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as Plain, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::Url;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::api::{self, Account, Api, FileSystem, Instance, Pace, Ruleset, SshKey};
use super::config::Settings;
use super::credentials;
use super::found::key_key;
use crate::error::Result;
use crate::name::{ClusterName, Scope, Tag};
use crate::provider::kit::http::is_loopback;
use crate::provider::{Context, UserEnvironment};

/// Lambda's default address.
const ENDPOINT: &str = "https://cloud.lambda.ai";
/// The key of the instance tag that holds our tag.
pub(super) const TAG: &str = "gpucl";
/// The maximum age of a list in an observation: including the call itself, less than the consistency delay.
const FRESH: Duration = Duration::from_secs(3);
/// How long a refusal for lack of capacity overrides the list of types.
const REFUSED: Duration = Duration::from_secs(60);
/// The minimum of `REFUSED`, also for a stand-in with a fast pace.
const LEAST_REFUSED: Duration = Duration::from_secs(2);

/// An account and the spec's settings for it.
pub(super) struct Cloud {
    pub(super) settings: Settings,
    pub(super) context: Context,
    account: OnceLock<Account>,
    instances: Shared<Instance>,
    keys: Shared<SshKey>,
    rulesets: Shared<Ruleset>,
    file_systems: Shared<FileSystem>,
    /// Types and regions that refused a launch, and when.
    refused: Plain<BTreeMap<(String, String), Instant>>,
    /// Serializes launches.
    pub(super) launching: Mutex<()>,
    /// Serializes changes of firewall rules.
    pub(super) changing_rules: Mutex<()>,
}

/// The maximum age of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Age {
    /// As old as the consistency delay allows.
    Fresh,
    /// Requested from now on.
    New,
    /// Requested at most this long ago.
    Within(Duration),
}

/// Lambda's address: from the spec, else `LAMBDA_API_URL`, else the default.
pub(super) fn endpoint(settings: Option<&str>, user_environment: &UserEnvironment) -> Result<Url> {
    api::endpoint(settings.or_else(|| user_environment.variable("LAMBDA_API_URL")).unwrap_or(ENDPOINT))
}

/// The pace of an account. For a stand-in on this machine, the factor GPUCL_LAMBDA_PACE shortens every wait.
pub(super) fn pace(context: &Context, endpoint: &Url, key: &secrecy::SecretString) -> Pace {
    let factor = context.user_environment.variable("GPUCL_LAMBDA_PACE").and_then(|text| text.parse().ok());
    let factor = factor.filter(|factor| is_loopback(endpoint) && (1e-6..=1.0).contains(factor));
    Pace::new(&context.cache_dir, endpoint.as_str(), key, factor.unwrap_or(1.0))
}

impl Cloud {
    pub(super) fn new(settings: Settings, context: &Context) -> Self {
        Self {
            settings,
            context: context.clone(),
            account: OnceLock::new(),
            instances: Shared::default(),
            keys: Shared::default(),
            rulesets: Shared::default(),
            file_systems: Shared::default(),
            refused: Plain::default(),
            launching: Mutex::default(),
            changing_rules: Mutex::default(),
        }
    }

    /// The account; opens it on first use.
    pub(super) fn account(&self) -> Result<&Account> {
        if let Some(account) = self.account.get() {
            return Ok(account);
        }
        let user_environment = &self.context.user_environment;
        let endpoint = endpoint(self.settings.endpoint.as_deref(), user_environment)?;
        let found = credentials::find(user_environment, &api::place_of(&endpoint))?;
        let pace = pace(&self.context, &endpoint, &found.key);
        let account = Account::new(&endpoint, found.key, &found.source, pace, self.context.events.clone())?;
        Ok(self.account.get_or_init(|| account))
    }

    pub(super) fn folder(&self, cluster: &ClusterName) -> PathBuf {
        self.context.clusters_dir.join(cluster.as_str())
    }

    /// The instances, without terminated ones that linger in the list.
    pub(super) async fn instances(&self, age: Age) -> Result<Arc<Vec<Instance>>> {
        let account = self.account()?;
        let ask = async {
            let mut found = account.instances().await?;
            found.retain(|one| one.status != api::Status::Terminated);
            Ok(found)
        };
        Ok(self.instances.get(age.of(account), ask).await?)
    }

    pub(super) async fn keys(&self, age: Age) -> Result<Arc<Vec<SshKey>>> {
        let account = self.account()?;
        Ok(self.keys.get(age.of(account), account.ssh_keys()).await?)
    }

    pub(super) async fn rulesets(&self, age: Age) -> Result<Arc<Vec<Ruleset>>> {
        let account = self.account()?;
        Ok(self.rulesets.get(age.of(account), account.rulesets()).await?)
    }

    pub(super) async fn file_systems(&self, age: Age) -> Result<Arc<Vec<FileSystem>>> {
        let account = self.account()?;
        Ok(self.file_systems.get(age.of(account), account.file_systems()).await?)
    }

    /// Discards all lists after a change, or a possible one.
    pub(super) fn changed(&self) {
        self.instances.forget();
        self.keys.forget();
        self.rulesets.forget();
        self.file_systems.forget();
    }

    /// Records that a launch was refused for lack of capacity.
    pub(super) fn has_refused(&self, kind: &str, region: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.insert((kind.to_owned(), region.to_owned()), Instant::now());
    }

    /// Whether a launch was refused recently.
    pub(super) fn just_refused(&self, account: &Account, kind: &str, region: &str) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let at = refused.get(&(kind.to_owned(), region.to_owned()));
        at.is_some_and(|at| at.elapsed() < account.scaled(REFUSED).max(LEAST_REFUSED))
    }
}

impl Age {
    fn of(self, account: &Account) -> Duration {
        match self {
            Self::Fresh => account.scaled(FRESH),
            Self::New => Duration::ZERO,
            Self::Within(time) => time,
        }
    }
}

/// A list that concurrent callers fetch only once.
struct Shared<T> {
    kept: Mutex<Option<(Instant, Arc<Vec<T>>)>>,
    /// Lists requested before this are stale.
    not_before: Plain<Option<Instant>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { kept: Mutex::default(), not_before: Plain::default() }
    }
}

impl<T> Shared<T> {
    async fn get(&self, age: Duration, ask: impl Future<Output = Api<Vec<T>>>) -> Api<Arc<Vec<T>>> {
        let wanted = Instant::now();
        let mut kept = self.kept.lock().await;
        let not_before = *self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, list)) = kept.as_ref()
            && *begun + age >= wanted
            && not_before.is_none_or(|limit| *begun > limit)
        {
            return Ok(list.clone());
        }
        let begun = Instant::now();
        let list = Arc::new(ask.await?);
        *kept = Some((begun, list.clone()));
        Ok(list)
    }

    fn forget(&self) {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// The tag of an instance, set at its launch. Its name counts only if the instance also has the SSH key of that
/// cluster: any user of the account can change a name, but nobody the keys.
pub(super) fn tag_of(instance: &Instance) -> Option<Tag> {
    if let Some(tag) = instance.tag(TAG) {
        return tag.parse().ok();
    }
    let tag: Tag = instance.name.parse().ok()?;
    let key = Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() }.tag(&key_key()).to_string();
    instance.ssh_key_names.contains(&key).then_some(tag)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_call_and_a_change_invalidates_it() {
        let shared = Shared::<usize>::default();
        let asked = AtomicUsize::new(0);
        let ask = || async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(vec![asked.fetch_add(1, Ordering::Relaxed)])
        };
        let one = shared.get(Duration::ZERO, ask());
        let late = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            // Both need a list requested after they asked: one more call serves both.
            tokio::join!(shared.get(Duration::ZERO, ask()), shared.get(Duration::ZERO, ask()))
        };
        let (first, (second, third)) = tokio::join!(one, late);
        assert_eq!((first.unwrap()[0], second.unwrap()[0], third.unwrap()[0]), (0, 1, 1));
        assert_eq!(shared.get(Duration::from_secs(60), ask()).await.unwrap()[0], 1);
        shared.forget();
        assert_eq!(shared.get(Duration::from_secs(60), ask()).await.unwrap()[0], 2);
    }
}
