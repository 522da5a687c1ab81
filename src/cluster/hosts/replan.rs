//! Replanning for lack of capacity: for one branch while the others go on, and for all hosts before the plan.

use async_trait::async_trait;

use super::capacity::{AfterRefusal, Next};
use crate::cluster::hosts::on_hosts::OnHosts;
use crate::cluster::substrate::Resolution;
use crate::engine::{Ledger, Replan};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::ResourceRequest;

#[async_trait]
impl Replan for OnHosts {
    async fn replacement(
        &self,
        refused: &[ResourceRequest],
        refusal: Error,
        ledger: &Ledger,
    ) -> Result<ResourceRequest> {
        let Some(last) = refused.last() else { return Err(refusal) };
        match self.wait.after_refusal() {
            AfterRefusal::AskForNext => self.next_choice(refused, last, refusal, ledger).await,
            AfterRefusal::Wait => self.choice_when_there(last, refusal, ledger).await,
            AfterRefusal::End => Err(refusal),
        }
    }

    fn note_failure(&self, error: &Error) {
        self.wait.note_failure(error);
    }
}

impl OnHosts {
    /// Resolves the spec at the provider; while capacity is lacking, retries until the capacity wait ends.
    pub(in crate::cluster::hosts) async fn resolve_or_wait(&self) -> Result<Resolution> {
        match self.supply.resolve().await {
            Err(error) if error.kind() == ErrorKind::Capacity => self.resolve_again(error).await,
            done => done,
        }
    }

    /// Waits for capacity and resolves all hosts again, after this refusal.
    pub(in crate::cluster::hosts) async fn resolve_again(&self, mut refused: Error) -> Result<Resolution> {
        let mut last_check = self.wait.checks();
        loop {
            let choose = || self.supply.resolve_hosts_again();
            refused = match self.wait.next("all hosts", refused, &mut last_check, choose).await? {
                Next::Refused(error) => error,
                Next::Ask(_) => match self.supply.resolve().await {
                    Err(error) if error.kind() == ErrorKind::Capacity => error,
                    done => return done,
                },
            };
        }
    }

    /// The spec's next choice after these were refused, or the refusal if there is none.
    async fn next_choice(
        &self,
        refused: &[ResourceRequest],
        last: &ResourceRequest,
        refusal: Error,
        ledger: &Ledger,
    ) -> Result<ResourceRequest> {
        match self.supply.resolve_hosts_again().await {
            Err(none) if none.kind() == ErrorKind::Capacity => return Err(refusal),
            chosen => chosen?,
        }
        match self.chosen_for(last, ledger)? {
            Some(next) if refused.iter().all(|one| (&one.settings, &one.found) != (&next.settings, &next.found)) => {
                self.events.note(format!("{refusal}; the next choice is {}", next.label()));
                Ok(next)
            }
            Some(_) => Err(refusal),
            None => {
                self.wait.set_needs_replan();
                Err(refusal)
            }
        }
    }

    /// Polls the provider until it has capacity, and chooses again in the order of the spec.
    async fn choice_when_there(
        &self,
        last: &ResourceRequest,
        mut refusal: Error,
        ledger: &Ledger,
    ) -> Result<ResourceRequest> {
        let wait = &self.wait;
        let mut last_check = wait.last_check_of(&last.key);
        loop {
            let next = wait
                .next(&last.key.display_name(), refusal, &mut last_check, || self.supply.resolve_hosts_again())
                .await;
            wait.set_last_check(&last.key, last_check);
            refusal = match next? {
                Next::Refused(error) => error,
                Next::Ask(refusal) => {
                    let chosen = self.chosen_for(last, ledger)?;
                    return chosen.ok_or_else(|| {
                        wait.set_needs_replan();
                        refusal
                    });
                }
            };
        }
    }

    /// The last choice for this request; `None` if it depends on other resources than those that exist, such as the
    /// rules of another region: then a new plan is needed.
    fn chosen_for(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<Option<ResourceRequest>> {
        let all = self.supply.requests()?;
        let known = ledger.state();
        let is_there = |need: &ResourceRequest| {
            let of_journal = known.items.get(&need.key).map(|item| item.digest.as_str());
            need.adopted.is_some() || of_journal == Some(need.digest().as_str())
        };
        let fits = |chosen: &&ResourceRequest| {
            chosen.needs == request.needs && all.iter().filter(|need| chosen.needs.contains(&need.key)).all(is_there)
        };
        let chosen = all.iter().find(|chosen| chosen.key == request.key && chosen.kind == request.kind);
        Ok(chosen.filter(fits).cloned())
    }
}
