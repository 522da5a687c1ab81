//! The guards of the end on hosts: they are given the end of the cluster, and answer with what they have done.

use futures_util::future::join_all;
use serde_json::Value;

use super::on_hosts::OnHosts;
use crate::agent::end::End;
use crate::agent::given::GivenEnd;
use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::runtime::project::{GuardAsk, guards};
use crate::util::text::shortened;

impl OnHosts {
    /// Gives the guard of each host the end of the cluster as it is known now, unless there is none and never was.
    ///
    /// # Errors
    /// If a guard did not take it.
    pub(super) async fn give_end(&self, ledger: &Ledger) -> Result<()> {
        let (folder, end) = (ledger.folder(), End::for_hosts(&ledger.folder(), &ledger.state()));
        let is_news = end.is_some() || GivenEnd::last(&folder).is_some();
        if guards(&self.spec, self.hosts()).is_empty() || !is_news {
            return Ok(());
        }
        let given = GivenEnd::next(&folder, end, 0)?.text()?;
        self.tell_guards(&given).await.into_iter().try_for_each(|(_, state)| state.map(|_| ()))
    }

    /// Gives the guard of each host an end, as the JSON of `guard.py tell`, by one exec per host at the same time. Returns
    /// the state of each; none for a cluster without `end:` and `idle:`.
    pub(in crate::cluster) async fn tell_guards(&self, end: &str) -> Vec<(Key, Result<Value>)> {
        let all = guards(&self.spec, self.hosts());
        join_all(all.into_iter().map(async |(host, guard)| (host.clone(), self.tell_guard(&host, &guard, end).await)))
            .await
    }

    async fn tell_guard(&self, host: &Key, guard: &Key, end: &str) -> Result<Value> {
        let (tag, folders) = (self.fleet.tag(host), self.fleet.folders(host));
        let script = self.runtime().guard_script(&tag, &folders, &self.scope.tag(guard), &GuardAsk::Tell(end));
        let lines = self.fleet.run(host, "give the end of the cluster to", &script).await?;
        lines.iter().rev().find_map(|line| serde_json::from_str(line).ok()).ok_or_else(|| {
            let why = lines.last().map_or_else(|| "it gave no answer".to_owned(), |line| shortened(line));
            let doing = format!("give the end of the cluster to the guard on {}", host.display_name());
            Error::new(ErrorKind::Host, doing).because(why).hint(format!(
                "its log: gpucl logs {} -c {}",
                guard.display_name(),
                self.scope.cluster
            ))
        })
    }
}
