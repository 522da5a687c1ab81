//! One world with what is done while its provider has none: for one branch of the plan while the others go on, and for all hosts before.

use async_trait::async_trait;

use super::decide::AfterRefusal;
use super::wait::{CapacityWait, Next};
use crate::cluster::backend::hosts::acquire::Found;
use crate::cluster::backend::hosts::world::ProjectWorld;
use crate::engine::{Ledger, Replan};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::ResourceRequest;

/// A world, and what is done while its provider has none of what is asked for.
pub(in crate::cluster::backend::hosts) struct CapacityReplan<'a> {
    pub(in crate::cluster::backend::hosts) world: &'a ProjectWorld,
    pub(in crate::cluster::backend::hosts) wait: CapacityWait,
}

#[async_trait]
impl Replan for CapacityReplan<'_> {
    async fn instead(&self, refused: &[ResourceRequest], refusal: Error, ledger: &Ledger) -> Result<ResourceRequest> {
        let Some(last) = refused.last() else { return Err(refusal) };
        match self.wait.after_refusal() {
            AfterRefusal::AskForNext => self.next_choice(refused, last, refusal, ledger).await,
            AfterRefusal::Wait => self.choice_when_there(last, refusal, ledger).await,
            AfterRefusal::End => Err(refusal),
        }
    }

    fn heed(&self, error: &Error) {
        self.wait.heed(error);
    }
}

impl CapacityReplan<'_> {
    /// What the spec comes to at the provider; asked again while there is none of it, as long as that was asked for.
    pub(in crate::cluster::backend::hosts) async fn resolve(&self) -> Result<Found> {
        match self.world.resolve().await {
            Err(error) if error.kind() == ErrorKind::Capacity => self.resolve_again(error).await,
            done => done,
        }
    }

    /// Asks again for all hosts, after this refusal.
    pub(super) async fn resolve_again(&self, mut refused: Error) -> Result<Found> {
        let mut seen = self.wait.checks();
        loop {
            let choose = || self.world.choose();
            refused = match self.wait.next("all hosts", refused, &mut seen, choose).await? {
                Next::Refused(error) => error,
                Next::Ask(_) => match self.world.resolve().await {
                    Err(error) if error.kind() == ErrorKind::Capacity => error,
                    done => return done,
                },
            };
        }
    }

    /// What the spec takes as well, after these were refused; the refusal where there is nothing more.
    async fn next_choice(
        &self,
        refused: &[ResourceRequest],
        last: &ResourceRequest,
        refusal: Error,
        ledger: &Ledger,
    ) -> Result<ResourceRequest> {
        match self.world.choose().await {
            Err(none) if none.kind() == ErrorKind::Capacity => return Err(refusal),
            chosen => chosen?,
        }
        match self.chosen_for(last, ledger)? {
            Some(next) if refused.iter().all(|one| (&one.settings, &one.found) != (&next.settings, &next.found)) => {
                self.world.config.events.note(format!("{refusal}; the next choice is {}", next.label()));
                Ok(next)
            }
            Some(_) => Err(refusal),
            None => {
                self.wait.set_needs_replan();
                Err(refusal)
            }
        }
    }

    /// Waits until the provider may be asked again, and chooses anew by the order of the spec.
    async fn choice_when_there(
        &self,
        last: &ResourceRequest,
        mut refusal: Error,
        ledger: &Ledger,
    ) -> Result<ResourceRequest> {
        let wait = &self.wait;
        let mut seen = wait.last_check_of(&last.key);
        loop {
            let next = wait.next(&last.key.display_name(), refusal, &mut seen, || self.world.choose()).await;
            wait.set_last_check(&last.key, seen);
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

    /// What was chosen last for this; `None` when what it needs is not what was made for it, such as rules of another region: a plan is
    /// made anew then.
    fn chosen_for(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<Option<ResourceRequest>> {
        let all = self.world.requests()?;
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
